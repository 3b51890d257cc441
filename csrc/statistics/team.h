// Work shared out among the threads that the process already has.
//
// torch's OpenMP is borrowed if it is there: threads of our own would compete with its threads,
// which spin for a while after each of torch's operators.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

// Of any OpenMP runtime that is loaded for all; absent otherwise.
extern "C" __attribute__((weak)) void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);

namespace kernlib {

constexpr int kMostParts = 64;

// Whether a process was forked and has not called exec since, by what Linux says of it.
inline bool forked_here() {
  char text[1024] = {};
  std::FILE* file = std::fopen("/proc/self/stat", "r");
  if (file == nullptr) return true;  // who knows
  const size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* behind_name = std::strrchr(text, ')');
  unsigned long flags = 0;
  constexpr unsigned long kForkedNoExec = 0x40;
  if (behind_name == nullptr ||
      std::sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) != 1) {
    return true;
  }
  return (flags & kForkedNoExec) != 0;
}

// A forked child has OpenMP's records of its threads but none of the threads: it works alone, or it
// would wait for them for ever.
inline bool may_team() {
  static std::atomic<int64_t> known{0};  // process id and answer; its own are those of a process
  const int64_t process = getpid(), before = known.load(std::memory_order_relaxed);
  if (before / 2 == process) return before % 2 != 0;
  const bool answer = before == 0 && !forked_here();
  known.store(2 * process + answer, std::memory_order_relaxed);
  return answer;
}

inline int team_size(int wanted) {
  return wanted > 1 && GOMP_parallel != nullptr && may_team() ? wanted : 1;
}

// Calls `work(part)` for each part, on as many threads as the runtime gives.
template <typename Work>
void in_team(int parts, const Work& work) {
  if (parts == 1) return work(0);
  struct Team {
    const Work& work;
    int parts;
    std::atomic<int> next{0};
  } team{work, parts};
  const auto member = [](void* data) {
    Team& team = *static_cast<Team*>(data);
    for (int part; (part = team.next.fetch_add(1)) < team.parts;) team.work(part);
  };
  GOMP_parallel(member, &team, static_cast<unsigned>(parts), 0);
}

}  // namespace kernlib
