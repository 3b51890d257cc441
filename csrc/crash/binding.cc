// Installs a handler that tells what ended the process.

#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "crash/report.h"

namespace kernlib::crash {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kCount = sizeof(kSignals) / sizeof(kSignals[0]);
constexpr size_t kStackBytes = 1 << 16;
constexpr unsigned kSeconds = 20;

int file = -1;
struct sigaction before[kCount];
std::atomic_flag reporting = ATOMIC_FLAG_INIT;

// Hands the signal on to who handled it before. The instruction that faulted is repeated for that;
// a second fault in here ends the process, since the signal is blocked.
void on_signal(int number, siginfo_t* info, void* context) {
  if (reporting.test_and_set()) {
    for (;;) ::pause();  // another thread is telling; it ends the process
  }
  ::alarm(kSeconds);  // a lock that the fault left taken would keep the report waiting for good
  report(file, number, *info, context);
  for (int i = 0; i < kCount; ++i) ::sigaction(kSignals[i], &before[i], nullptr);
  if (info->si_code <= 0) ::raise(number);  // sent by a process: nothing would repeat it
}

void install(const tvm::ffi::String& path) {
  file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) TVM_FFI_THROW(RuntimeError) << path << ": " << std::strerror(errno);
  void* frame;
  ::backtrace(&frame, 1);  // its first use loads a library, which a handler may not
  // A stack that overflowed has no room for a handler.
  static char stack[kStackBytes];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = kStackBytes;
  ::sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < kCount; ++i) ::sigaction(kSignals[i], &action, &before[i]);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(install, install);

}  // namespace kernlib::crash
