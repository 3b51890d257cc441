// What a fatal signal was about, written with calls that are safe in its handler.
#pragma once

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace kernlib::crash {

// One line at a time; a line that does not fit is cut.
class Writer {
 public:
  explicit Writer(int file) : file_(file) {}

  Writer& text(const char* part) {
    while (*part != '\0') put(*part++);
    return *this;
  }

  Writer& hex(uint64_t value) {
    text("0x");
    int shift = 60;
    while (shift > 0 && value >> shift == 0) shift -= 4;
    for (; shift >= 0; shift -= 4) put("0123456789abcdef"[value >> shift & 15]);
    return *this;
  }

  Writer& decimal(int64_t value) {
    if (value < 0) put('-');
    uint64_t rest = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    char digits[20];
    int count = 0;
    do {
      digits[count++] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    while (count > 0) put(digits[--count]);
    return *this;
  }

  void end() {
    line_[size_++] = '\n';
    write_all(line_, size_);
    size_ = 0;
  }

  void write_all(const char* bytes, size_t size) {
    while (size > 0) {
      const ssize_t done = ::write(file_, bytes, size);
      if (done <= 0) return;
      bytes += done;
      size -= static_cast<size_t>(done);
    }
  }

 private:
  void put(char c) {
    if (size_ + 1 < sizeof(line_)) line_[size_++] = c;
  }

  int file_;
  char line_[256];
  size_t size_ = 0;
};

// Where the thread was, and what the processor says of an access.
struct State {
  uint64_t pc = 0;
  const char* access = "unknown";
  bool has_address = true;
};

inline State state_of(const void* context) {
  State state;
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  constexpr int64_t kGeneralProtection = 13, kPageFault = 14;
  constexpr int64_t kWrite = 2, kFetch = 16;
  const int64_t trap = machine.gregs[REG_TRAPNO], error = machine.gregs[REG_ERR];
  state.pc = static_cast<uint64_t>(machine.gregs[REG_RIP]);
  // An address that no process can have is not told.
  state.has_address = trap != kGeneralProtection;
  if (trap == kPageFault) {
    state.access = (error & kWrite) ? "write" : (error & kFetch) ? "execution" : "read";
  }
#elif defined(__aarch64__)
  state.pc = machine.pc;
#endif
  return state;
}

inline void copy_maps(Writer* out) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  char part[4096];
  for (ssize_t size; (size = ::read(maps, part, sizeof(part))) > 0;) {
    out->write_all(part, static_cast<size_t>(size));
  }
  ::close(maps);
}

inline void report(int file, int number, const siginfo_t& info, const void* context) {
  constexpr int kFrames = 64;
  const State state = state_of(context);
  const bool from_access = (number == SIGSEGV || number == SIGBUS) && info.si_code > 0;
  Writer out(file);
  out.text("signal ").decimal(number).end();
  out.text("code ").decimal(info.si_code).end();
  if (from_access && state.has_address) {
    out.text("address ").hex(reinterpret_cast<uint64_t>(info.si_addr)).end();
  }
  if (from_access) out.text("access ").text(state.access).end();
  out.text("pc ").hex(state.pc).end();
  void* frames[kFrames];
  const int count = ::backtrace(frames, kFrames);
  for (int i = 0; i < count; ++i) {
    out.text("frame ").hex(reinterpret_cast<uint64_t>(frames[i])).end();
  }
  out.text("maps").end();
  copy_maps(&out);
}

}  // namespace kernlib::crash
