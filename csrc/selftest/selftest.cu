// CUDA instantiations of the planted faults.

#include "kernlib/selftest.cuh"

namespace kernlib::selftest {
namespace {

template <typename Task>
int run(const Task& task, void* stream) {
  const int64_t blocks = (task.count + kThreads - 1) / kThreads;
  return kernlib::launch(each<Task>, grid_of(blocks), dim3(kThreads), stream, task);
}

}  // namespace

int launch(const ReadOutOfBounds& task, void* stream) { return run(task, stream); }
int launch(const WriteOutOfBounds& task, void* stream) { return run(task, stream); }
int launch(const OffByOne& task, void* stream) { return run(task, stream); }
int launch(const Misalignment& task, void* stream) { return run(task, stream); }
int launch(const Assertion& task, void* stream) { return run(task, stream); }
int launch(const Hang& task, void* stream) { return run(task, stream); }
int launch(const NotANumber& task, void* stream) { return run(task, stream); }
int launch(const Int32Overflow& task, void* stream) { return run(task, stream); }
int launch(const StaleWorkspace& task, void* stream) { return run(task, stream); }
int launch(const AddBias& task, void* stream) { return run(task, stream); }

int launch(const Race& task, void* stream) {
  return kernlib::launch(race, dim3(1), dim3(kThreads), stream, task);
}

}  // namespace kernlib::selftest
