// The planted faults on CUDA: one thread an element; the race is in shared memory.
#pragma once

#include "kernlib/device.cuh"
#include "kernlib/selftest.h"

namespace kernlib::selftest {

constexpr int kThreads = 64;  // two warps: within one, there would be no race to find

template <typename Task>
__global__ void __launch_bounds__(kThreads) each(Task task) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < task.count; i += step) task(i);
}

// One block: every thread reads what its mirror image writes at the same time.
__global__ void __launch_bounds__(kThreads) race(Race task) {
  __shared__ volatile float shared[kThreads];
  const int i = threadIdx.x;
  if (task.guarded) shared[i] = task.x[i];
  __syncthreads();
  if (!task.guarded) shared[i] = shared[kThreads - 1 - i];  // planted: race
  task.out[i] = task.x[i];
}

}  // namespace kernlib::selftest
