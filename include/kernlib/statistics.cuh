// Statistics of a tensor on CUDA, in one pass, written to memory of the host by the last block.
#pragma once

#include <type_traits>

#include "kernlib/device.cuh"
#include "kernlib/statistics.h"
#include "kernlib/statistics_elements.cuh"
#include "kernlib/statistics_formats.h"
#include "kernlib/statistics_packed.cuh"
#include "kernlib/statistics_tally.h"
#include "kernlib/statistics_walk.h"

namespace kernlib {

constexpr int kVectors = 4;     // that a thread loads before it looks at the first
constexpr int kBlocksEach = 2;  // on a multiprocessor: enough loads under way for its memory

// A walk cut into segments: runs along its first dimension that one group of lanes reads.
struct Segments {
  Walk walk;
  int64_t length;  // elements; fewer in the last one of a row
  int64_t per_row;
  int64_t count;
  int lanes;  // of a group, a power of two
};

// A thread's, a block's or a grid's share. All of it is zero where nothing has been seen, so that
// accumulators need no other preparation: of the keys, ordered as unsigned numbers, the largest and
// the largest of their complements.
struct Share {
  unsigned long long highest, lowest_complement, nans, infinities, zeros;
  double sum;
};

struct Accumulator {
  Share share;
  unsigned int blocks_done;
};

template <typename Key>
__device__ __forceinline__ unsigned long long ordered(Key key) {
  if constexpr (std::is_signed_v<Key>) {
    return static_cast<unsigned long long>(static_cast<long long>(key)) ^ (1ull << 63);
  } else {
    return key;
  }
}

template <typename Key>
__device__ __forceinline__ Key unordered(unsigned long long value) {
  return static_cast<Key>(std::is_signed_v<Key> ? value ^ (1ull << 63) : value);
}

// Vectors that lie `step` apart. Where they are not calm they are loaded again, a word at a time:
// kept for that, they would take more registers than there are.
template <typename Format, int kCount>
__device__ __forceinline__ void tally_vectors(const uint4* from, int step, Tally<Format>& tally) {
  using Bits = typename Format::Bits;
  using Word = std::conditional_t<sizeof(Bits) == 8, uint64_t, uint32_t>;
  constexpr int kWords = kVectorBytes / sizeof(Word);
  uint4 vectors[kCount];
#pragma unroll
  for (int v = 0; v < kCount; ++v) vectors[v] = __ldg(from + v * step);
  if constexpr (Packed<Format>::kPairs > 0) {
    uint32_t all[sizeof vectors / sizeof(uint32_t)];
    std::memcpy(all, vectors, sizeof all);
    if (tally_packed<Format>(all, tally)) return;
  } else {
    Bits all[sizeof vectors / sizeof(Bits)];
    std::memcpy(all, vectors, sizeof all);
    if (tally_calm<Format>(all, tally)) return;
  }
#pragma unroll 1
  for (int word = 0; word < kCount * kWords; ++word) {
    const Word bits =
        __ldg(reinterpret_cast<const Word*>(from + word / kWords * step) + word % kWords);
    Bits x[sizeof bits / sizeof(Bits)];
    std::memcpy(x, &bits, sizeof x);
    tally_any<Format>(x, tally);
  }
}

// A lane's part of a run of neighbouring elements.
template <typename Format>
__device__ __forceinline__ void tally_run(const char* at, int64_t count, int lane, int lanes,
                                          Tally<Format>& tally) {
  constexpr int kSize = sizeof(typename Format::Bits), kEach = kVectorBytes / kSize;
  const auto address = reinterpret_cast<uintptr_t>(at);
  int64_t head = count;  // of elements at odd addresses there are no whole vectors
  if (address % kSize == 0) {
    const int64_t before = (kVectorBytes - address % kVectorBytes) % kVectorBytes / kSize;
    head = before < count ? before : count;
  }
  for (int64_t i = lane; i < head; i += lanes) tally_one<Format>(at + i * kSize, tally);
  const int64_t vectors = (count - head) / kEach;
  const uint4* from = reinterpret_cast<const uint4*>(at + head * kSize);
  int64_t i = lane;
  for (; i + (kVectors - 1) * lanes < vectors; i += kVectors * lanes) {
    tally_vectors<Format, kVectors>(from + i, lanes, tally);
  }
  for (; i < vectors; i += lanes) tally_vectors<Format, 1>(from + i, lanes, tally);
  for (i = head + vectors * kEach + lane; i < count; i += lanes) {
    tally_one<Format>(at + i * kSize, tally);
  }
}

// The division of 64 bits takes several times as long as that of 32.
__device__ __forceinline__ int64_t divided(int64_t number, int64_t by, int64_t* rest) {
  int64_t quotient;
  if (((number | by) >> 32) == 0) {
    quotient = static_cast<uint32_t>(number) / static_cast<uint32_t>(by);
  } else {
    quotient = number / by;
  }
  *rest = number - quotient * by;
  return quotient;
}

template <typename Format>
__device__ __forceinline__ Tally<Format> tally_segments(const Segments& segments) {
  constexpr int kSize = sizeof(typename Format::Bits);
  const Walk& walk = segments.walk;
  const int lanes = segments.lanes, lane = threadIdx.x % lanes;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
  const int64_t groups = static_cast<int64_t>(gridDim.x) * blockDim.x / lanes;
  const int64_t stride = walk.strides[0] * kSize;
  Tally<Format> tally;
  for (int64_t segment = first; segment < segments.count; segment += groups) {
    int64_t part, index;
    int64_t row = divided(segment, segments.per_row, &part);
    const int64_t begin = part * segments.length, left = walk.sizes[0] - begin;
    const char* at = walk.data + begin * stride;
    for (int dim = 1; dim < walk.dims; ++dim) {
      row = divided(row, walk.sizes[dim], &index);
      at += index * walk.strides[dim] * kSize;
    }
    const int64_t count = left < segments.length ? left : segments.length;
    if (stride == kSize) {
      tally_run<Format>(at, count, lane, lanes, tally);
    } else {
      for (int64_t i = lane; i < count; i += lanes) tally_one<Format>(at + i * stride, tally);
    }
  }
  return tally;
}

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}

__device__ __forceinline__ Share joined(const Share& a, const Share& b) {
  return {larger(a.highest, b.highest),
          larger(a.lowest_complement, b.lowest_complement),
          a.nans + b.nans,
          a.infinities + b.infinities,
          a.zeros + b.zeros,
          a.sum + b.sum};
}

__device__ __forceinline__ Share warp_share(Share share) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Share other{__shfl_down_sync(~0u, share.highest, step),
                      __shfl_down_sync(~0u, share.lowest_complement, step),
                      __shfl_down_sync(~0u, share.nans, step),
                      __shfl_down_sync(~0u, share.infinities, step),
                      __shfl_down_sync(~0u, share.zeros, step),
                      __shfl_down_sync(~0u, share.sum, step)};
    share = joined(share, other);
  }
  return share;
}

// The share of a whole block, in its first thread.
__device__ __forceinline__ Share block_share(const Share& share) {
  __shared__ Share shares[kMaxThreads / kWarp];
  const Share own = warp_share(share);
  if (threadIdx.x % kWarp == 0) shares[threadIdx.x / kWarp] = own;
  __syncthreads();
  Share total{};
  if (threadIdx.x < kWarp) {
    if (threadIdx.x < blockDim.x / kWarp) total = shares[threadIdx.x];
    total = warp_share(total);
  }
  return total;
}

// Adds a block's share; true for the last block, which finds the whole in `total` and leaves the
// accumulator as it was before the first.
__device__ __forceinline__ bool accumulate(Accumulator& accumulator, const Share& share,
                                           Share* total) {
  Share& sum = accumulator.share;
  atomicMax(&sum.highest, share.highest);
  atomicMax(&sum.lowest_complement, share.lowest_complement);
  if (share.nans) atomicAdd(&sum.nans, share.nans);
  if (share.infinities) atomicAdd(&sum.infinities, share.infinities);
  if (share.zeros) atomicAdd(&sum.zeros, share.zeros);
  atomicAdd(&sum.sum, share.sum);
  __threadfence();
  if (atomicAdd(&accumulator.blocks_done, 1u) + 1 != gridDim.x) return false;
  __threadfence();
  *total = {atomicExch(&sum.highest, 0ull),
            atomicExch(&sum.lowest_complement, 0ull),
            atomicExch(&sum.nans, 0ull),
            atomicExch(&sum.infinities, 0ull),
            atomicExch(&sum.zeros, 0ull),
            __longlong_as_double(static_cast<long long>(
                atomicExch(reinterpret_cast<unsigned long long*>(&sum.sum), 0ull)))};
  accumulator.blocks_done = 0;
  return true;
}

template <typename Format>
__global__ void __launch_bounds__(kMaxThreads, kBlocksEach)
    statistics_kernel(const __grid_constant__ Segments segments, Accumulator* accumulator,
                      int64_t ticket, Statistics* out) {
  using Key = typename Format::Key;
  const Tally<Format> own = tally_segments<Format>(segments);
  const Share share = block_share({ordered(own.highest), ~ordered(own.lowest),
                                   static_cast<unsigned long long>(own.nans),
                                   static_cast<unsigned long long>(own.infinities),
                                   static_cast<unsigned long long>(own.zeros), own.sum});
  if (threadIdx.x != 0) return;
  Share total;
  if (!accumulate(*accumulator, share, &total)) return;
  Tally<Format> all;
  all.highest = unordered<Key>(total.highest);
  all.lowest = unordered<Key>(~total.lowest_complement);
  all.count = segments.walk.count;
  all.nans = static_cast<int64_t>(total.nans);
  all.infinities = static_cast<int64_t>(total.infinities);
  all.zeros = static_cast<int64_t>(total.zeros);
  all.sum = total.sum;
  *out = statistics_of(all, segments.walk.repeats, ticket - 1);  // another than the one awaited
  __threadfence_system();
  *static_cast<volatile int64_t*>(&out->ticket) = ticket;
}

}  // namespace kernlib
