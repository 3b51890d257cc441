// The kernels on CUDA: one thread an element.

#include "faultlib/faults.h"
#include "kernlib/device.cuh"

namespace faultlib {
namespace {

constexpr int kThreads = 128;

template <typename Task>
__global__ void __launch_bounds__(kThreads) each(Task task) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < task.count; i += step) task(i);
}

template <typename Task>
int run(const Task& task, void* stream) {
  const int64_t blocks = (task.count + kThreads - 1) / kThreads;
  return kernlib::launch(each<Task>, kernlib::grid_of(blocks), dim3(kThreads), stream, task);
}

}  // namespace

int launch(const TakeRows& task, void* stream) { return run(task, stream); }
int launch(const Put& task, void* stream) { return run(task, stream); }
int launch(const LookBack& task, void* stream) { return run(task, stream); }
int launch(const SumRows& task, void* stream) { return run(task, stream); }

}  // namespace faultlib
