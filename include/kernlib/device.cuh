// Building blocks of the CUDA kernels: packs, reductions, launching.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernlib/paged_cache.h"
#include "kernlib/rows.h"
#include "kernlib/scalar.h"

namespace kernlib {

constexpr int kWarp = 32;
constexpr int kPack = 8;  // elements handled at a time by a thread

// The largest block of a row kernel. Kernels declare it as their launch bound: without that, a
// debug build may use more registers than a full block has, and would not launch.
constexpr int kMaxThreads = 512;

// Eight elements; moved as 16-byte words where the address allows it.
template <typename T>
struct alignas(16) Pack {
  T at[kPack];
};

// `aligned` is uniform over the grid: base and strides are multiples of 16 bytes.
template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const Pack<T>*>(from);
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.at[i] = from[i];
  return pack;
}

template <typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Pack<T>*>(to) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = pack.at[i];
}

// Sum over a block of whole warps, at most 32; every thread gets it.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float partial[kWarp];
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  const int warps = blockDim.x / kWarp;
  __syncthreads();  // the previous sum's readers are done
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < warps; ++warp) total += partial[warp];
  return total;
}

// Whether a pointer, or a stride of so many bytes, keeps 16-byte words whole.
inline bool whole_words(const void* base) {
  return reinterpret_cast<uintptr_t>(base) % sizeof(uint4) == 0;
}

inline bool whole_words(int64_t stride_bytes) { return stride_bytes % sizeof(uint4) == 0; }

inline bool whole_words(const void* base, const Rows& rows, int64_t element) {
  return whole_words(base) && whole_words(rows.outer_stride * element) &&
         whole_words(rows.inner_stride * element);
}

inline bool whole_words(const PagedLayout& layout, int64_t element) {
  return whole_words(layout.page_stride * element) && whole_words(layout.kind_stride * element) &&
         whole_words(layout.head_stride * element) && whole_words(layout.slot_stride * element);
}

// One block an item; kernels step by the grid, so that more items than blocks are fine.
inline dim3 grid_of(int64_t items) {
  return dim3(static_cast<unsigned>(items < INT32_MAX ? items : INT32_MAX));
}

// Threads for `packs` packs: whole warps, at most kMaxThreads.
inline dim3 block_of(int64_t packs) {
  const int64_t warps = packs < kMaxThreads ? (packs + kWarp - 1) / kWarp : kMaxThreads / kWarp;
  return dim3(static_cast<unsigned>(warps > 0 ? warps * kWarp : kWarp));
}

// Launches and returns the launch's own error, leaving none behind for the next caller to find.
template <typename... Params, typename... Args>
int launch(void (*kernel)(Params...), dim3 grid, dim3 block, void* stream, Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel, Params(args)...);
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}

}  // namespace kernlib
