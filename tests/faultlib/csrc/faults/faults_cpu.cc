// The kernels on the CPU.

#include "faultlib/faults.h"
#include "kernlib/backend.h"

namespace faultlib {
namespace {

template <typename Task>
int run(const Task& task) {
  for (int64_t i = 0; i < task.count; ++i) task(i);
  return kernlib::kSuccess;
}

}  // namespace

int launch(const TakeRows& task, void*) { return run(task); }
int launch(const Put& task, void*) { return run(task); }
int launch(const LookBack& task, void*) { return run(task); }
int launch(const SumRows& task, void*) { return run(task); }

}  // namespace faultlib
