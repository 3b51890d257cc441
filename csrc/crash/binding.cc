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
constexpr size_t kStackBytes = 1 << 16;

int file = -1;
std::atomic_flag reporting = ATOMIC_FLAG_INIT;

// The signal's default is back when this runs: a second fault, in here, ends the process, and so
// does the instruction that faulted when it is repeated.
void on_signal(int number, siginfo_t* info, void* context) {
  if (reporting.test_and_set()) {
    for (;;) ::pause();  // another thread is telling; it ends the process
  }
  report(file, number, *info, context);
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
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  for (const int number : kSignals) ::sigaction(number, &action, nullptr);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(install, install);

}  // namespace kernlib::crash
