// Root-mean-square normalisation on CUDA: one block a row.
#pragma once

#include "kernlib/device.cuh"
#include "kernlib/norm.h"

namespace kernlib {

template <typename T>
__device__ __forceinline__ float squares_of(const Pack<T>& pack) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum += to_float(pack.at[i]) * to_float(pack.at[i]);
  return sum;
}

template <typename T>
__device__ __forceinline__ Pack<T> scaled(const Pack<T>& x, const Pack<T>& weight, float scale) {
  Pack<T> result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    result.at[i] = from_float<T>(to_float(x.at[i]) * scale * to_float(weight.at[i]));
  }
  return result;
}

// `from` and `to` may be the same row, hence no __restrict__. Every pass over a row visits an
// element in the same thread, so in-place results need no barrier of their own.
template <typename T>
__device__ __forceinline__ void normalise_row(const T* from, const T* weight, T* to, int64_t hidden,
                                              float scale, bool aligned) {
  const int64_t packed = hidden / kPack * kPack;
  for (int64_t at = threadIdx.x * kPack; at < packed; at += blockDim.x * kPack) {
    const Pack<T> x = load_pack(from + at, aligned);
    store_pack(to + at, scaled(x, load_pack(weight + at, aligned), scale), aligned);
  }
  for (int64_t at = packed + threadIdx.x; at < hidden; at += blockDim.x) {
    to[at] = from_float<T>(to_float(from[at]) * scale * to_float(weight[at]));
  }
}

template <typename T>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_kernel(RmsNorm task, bool aligned) {
  const int64_t packed = task.hidden / kPack * kPack;
  for (int64_t row = blockIdx.x; row < task.x_rows.count; row += gridDim.x) {
    const T* x = static_cast<const T*>(task.x) + task.x_rows.offset(row);
    T* out = static_cast<T*>(task.out) + task.out_rows.offset(row);
    float sum = 0.0f;
    for (int64_t at = threadIdx.x * kPack; at < packed; at += blockDim.x * kPack) {
      sum += squares_of(load_pack(x + at, aligned));
    }
    for (int64_t at = packed + threadIdx.x; at < task.hidden; at += blockDim.x) {
      sum += to_float(x[at]) * to_float(x[at]);
    }
    const float scale = rsqrtf(block_sum(sum) / static_cast<float>(task.hidden) + task.eps);
    normalise_row(x, static_cast<const T*>(task.weight), out, task.hidden, scale, aligned);
  }
}

// Adds x to the residual row and returns this thread's share of the squares of what was stored.
template <typename T>
__device__ __forceinline__ float add_row(const T* x, T* residual, int64_t hidden, bool aligned) {
  const int64_t packed = hidden / kPack * kPack;
  float sum = 0.0f;
  for (int64_t at = threadIdx.x * kPack; at < packed; at += blockDim.x * kPack) {
    const Pack<T> added = load_pack(x + at, aligned);
    Pack<T> pack = load_pack(residual + at, aligned);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      pack.at[i] = from_float<T>(to_float(pack.at[i]) + to_float(added.at[i]));
    }
    store_pack(residual + at, pack, aligned);
    sum += squares_of(pack);
  }
  for (int64_t at = packed + threadIdx.x; at < hidden; at += blockDim.x) {
    residual[at] = from_float<T>(to_float(residual[at]) + to_float(x[at]));
    sum += to_float(residual[at]) * to_float(residual[at]);
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    fused_add_rms_norm_kernel(FusedAddRmsNorm task, bool aligned) {
  for (int64_t row = blockIdx.x; row < task.x_rows.count; row += gridDim.x) {
    T* x = static_cast<T*>(task.x) + task.x_rows.offset(row);
    T* residual = static_cast<T*>(task.residual) + task.residual_rows.offset(row);
    const float sum = block_sum(add_row(x, residual, task.hidden, aligned));
    const float scale = rsqrtf(sum / static_cast<float>(task.hidden) + task.eps);
    normalise_row(residual, static_cast<const T*>(task.weight), x, task.hidden, scale, aligned);
  }
}

}  // namespace kernlib
