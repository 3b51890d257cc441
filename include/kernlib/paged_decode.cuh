// Decoding attention over a paged cache on CUDA: one block a sequence and query head.
#pragma once

#include "kernlib/device.cuh"
#include "kernlib/paged_decode.h"

namespace kernlib {

constexpr int kDecodeThreads = 128;

// Threads that share a token: one for each pack of the head, rounded up to a power of two so that
// they reduce by shuffles.
template <int kHeadDim>
struct Team {
  static constexpr int kPacks = kHeadDim / kPack;
  static constexpr int kSize = kPacks <= 1    ? 1
                               : kPacks <= 2  ? 2
                               : kPacks <= 4  ? 4
                               : kPacks <= 8  ? 8
                               : kPacks <= 16 ? 16
                                              : 32;
  static constexpr int kCount = kDecodeThreads / kSize;  // tokens in flight
};

// What a team has of the online softmax: its outputs are acc / sum, relative to `largest`.
struct TeamState {
  float largest = -INFINITY;
  float sum = 0.0f;
  float acc[kPack] = {};
};

// The one read of K; a page id beyond the cache faults on a marked line.
template <typename T>
__device__ __forceinline__ Pack<T> read_key(const T* key, bool aligned) {
  if (aligned) {
    return *reinterpret_cast<const Pack<T>*>(key);  // reads the page, 16 bytes at a time
  }
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    pack.at[i] = key[i];  // reads the page, an element at a time
  }
  return pack;
}

template <typename T>
__device__ __forceinline__ void admit(TeamState& state, float score, const Pack<T>& value) {
  if (score == -INFINITY) return;
  const float largest = fmaxf(state.largest, score);
  const float shrink = expf(state.largest - largest);
  const float weight = expf(score - largest);
  state.largest = largest;
  state.sum = state.sum * shrink + weight;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    state.acc[i] = state.acc[i] * shrink + weight * to_float(value.at[i]);
  }
}

template <int kTeam, typename T>
__device__ __forceinline__ float dot(const float (&query)[kPack], const Pack<T>& key) {
  float score = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack; ++i) score += query[i] * to_float(key.at[i]);
#pragma unroll
  for (int step = kTeam / 2; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
  return score;
}

// Walks the tokens team, team + kCount, ... of a sequence. Every thread takes part in every round,
// because the shuffles of a warp span several teams.
template <typename T, int kHeadDim>
__device__ __forceinline__ TeamState attend(const PagedDecode& task, const float (&query)[kPack],
                                            int64_t sequence, int64_t head, bool aligned) {
  using Shape = Team<kHeadDim>;
  const int team = threadIdx.x / Shape::kSize, lane = threadIdx.x % Shape::kSize;
  const T* cache = static_cast<const T*>(task.cache) + lane * kPack;
  const int64_t length = task.table.length(sequence, task.page_size);
  int64_t ordinal = team / task.page_size, slot = team % task.page_size;
  const int64_t pages_on = Shape::kCount / task.page_size,
                slots_on = Shape::kCount % task.page_size;
  TeamState state;
  for (int64_t first = 0; first < length; first += Shape::kCount) {
    const bool live = first + team < length;
    Pack<T> key = {}, value = {};
    if (live && lane < Shape::kPacks) {
      const int64_t page = task.table.page(sequence, ordinal);
      key = read_key(cache + task.layout.offset(page, 0, head, slot), aligned);
      value = load_pack(cache + task.layout.offset(page, 1, head, slot), aligned);
    }
    const float score = dot<Shape::kSize>(query, key);
    if (live) admit(state, score, value);
    ordinal += pages_on;
    slot += slots_on;
    if (slot >= task.page_size) ++ordinal, slot -= task.page_size;
  }
  return state;
}

// The states of all teams of a block.
template <int kHeadDim>
struct Board {
  float largest[Team<kHeadDim>::kCount];
  float sum[Team<kHeadDim>::kCount];
  float acc[Team<kHeadDim>::kCount][kHeadDim];
};

// Merges the teams; thread i writes the elements i, i + kDecodeThreads, ... of the output.
template <typename T, int kHeadDim>
__device__ __forceinline__ void merge(const Board<kHeadDim>& board, T* out, float* lse) {
  using Shape = Team<kHeadDim>;
  float largest = -INFINITY, sum = 0.0f;
  for (int team = 0; team < Shape::kCount; ++team) largest = fmaxf(largest, board.largest[team]);
  const float anchor = largest == -INFINITY ? 0.0f : largest;
  for (int team = 0; team < Shape::kCount; ++team) {
    sum += board.sum[team] * expf(board.largest[team] - anchor);
  }
  const float share = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int i = threadIdx.x; i < kHeadDim; i += kDecodeThreads) {
    float total = 0.0f;
    for (int team = 0; team < Shape::kCount; ++team) {
      total += board.acc[team][i] * expf(board.largest[team] - anchor);
    }
    out[i] = from_float<T>(total * share);
  }
  if (lse != nullptr && threadIdx.x == 0) *lse = largest + logf(sum);
}

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kDecodeThreads)
    paged_decode_kernel(PagedDecode task, bool aligned) {
  using Shape = Team<kHeadDim>;
  __shared__ Board<kHeadDim> board;
  const int team = threadIdx.x / Shape::kSize, lane = threadIdx.x % Shape::kSize;
  for (int64_t item = blockIdx.x; item < task.batch * task.num_qo_heads; item += gridDim.x) {
    const int64_t sequence = item / task.num_qo_heads, head = item % task.num_qo_heads;
    const T* q =
        static_cast<const T*>(task.q) + sequence * task.q_stride[0] + head * task.q_stride[1];
    float query[kPack] = {};
    if (lane < Shape::kPacks) {
      const Pack<T> pack = load_pack(q + lane * kPack, aligned);
#pragma unroll
      for (int i = 0; i < kPack; ++i) query[i] = to_float(pack.at[i]) * task.scale;
    }
    const TeamState state = attend<T, kHeadDim>(task, query, sequence, head / task.group, aligned);
    if (lane == 0) board.largest[team] = state.largest, board.sum[team] = state.sum;
    if (lane < Shape::kPacks) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) board.acc[team][lane * kPack + i] = state.acc[i];
    }
    __syncthreads();
    T* out = static_cast<T*>(task.out) + sequence * task.out_stride[0] + head * task.out_stride[1];
    merge<T, kHeadDim>(board, out, task.lse == nullptr ? nullptr : task.lse + item);
    __syncthreads();  // the board is read before the next item writes it
  }
}

}  // namespace kernlib
