// Gated activations on CUDA: one block a row.
#pragma once

#include "kernlib/activation.h"
#include "kernlib/device.cuh"

namespace kernlib {

template <typename T>
__device__ __forceinline__ T silu_times(T gate, T up) {
  const float value = to_float(gate);
  return from_float<T>(value / (1.0f + expf(-value)) * to_float(up));
}

// `out` may be the gate itself, hence no __restrict__.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads) silu_and_mul_kernel(SiluAndMul task, bool aligned) {
  const int64_t packed = task.width / kPack * kPack;
  for (int64_t row = blockIdx.x; row < task.x_rows.count; row += gridDim.x) {
    const T* gate = static_cast<const T*>(task.x) + task.x_rows.offset(row);
    const T* up = gate + task.width;
    T* out = static_cast<T*>(task.out) + task.out_rows.offset(row);
    for (int64_t at = threadIdx.x * kPack; at < packed; at += blockDim.x * kPack) {
      Pack<T> pack = load_pack(gate + at, aligned);
      const Pack<T> factor = load_pack(up + at, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack.at[i] = silu_times(pack.at[i], factor.at[i]);
      store_pack(out + at, pack, aligned);
    }
    for (int64_t at = packed + threadIdx.x; at < task.width; at += blockDim.x) {
      out[at] = silu_times(gate[at], up[at]);
    }
  }
}

}  // namespace kernlib
