// The planted faults on the CPU: a loop over the elements; the race is of two threads.
#pragma once

#include <atomic>
#include <thread>

#include "kernlib/selftest.h"

namespace kernlib::selftest {

template <typename Task>
void each(const Task& task) {
  for (int64_t i = 0; i < task.count; ++i) task(i);
}

inline void race(const Race& task) {
  int64_t ended = 0;
  std::atomic<int64_t> counted{0};
  const auto part = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) task.out[i] = task.x[i];
    if (task.guarded) return void(counted += end - begin);
    ended += end - begin;  // planted: race
  };
  std::thread other(part, int64_t{0}, task.count / 2);
  part(task.count / 2, task.count);
  other.join();
}

}  // namespace kernlib::selftest
