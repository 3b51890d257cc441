// Decoding attention over a paged cache on the CPU.
#pragma once

#include <cmath>
#include <limits>

#include "kernlib/paged_decode.h"

namespace kernlib {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// An online softmax: outputs so far are acc / sum, relative to the largest score so far.
template <int kHeadDim>
struct SoftmaxState {
  float largest = kMinusInfinity;
  float sum = 0.0f;
  float acc[kHeadDim] = {};

  // Makes room for a score and returns its weight; one of minus infinity weighs nothing.
  float admit(float score) {
    if (score == kMinusInfinity) return 0.0f;
    if (score > largest) {
      const float shrink = std::exp(largest - score);
      for (float& value : acc) value *= shrink;
      sum *= shrink;
      largest = score;
    }
    const float weight = std::exp(score - largest);
    sum += weight;
    return weight;
  }
};

// The first read of a page; a page id beyond the cache faults here. Volatile and not inlined,
// because an optimiser folds a plain read into its use or its address, and the fault has the line
// of those.
[[gnu::noinline]] inline void touch_page(const void* page) {
  (void)*static_cast<const volatile char*>(page);  // reads the page
}

template <typename T, int kHeadDim>
float dot_key(const float* query, const T* key) {
  constexpr int kLanes = 8;
  float sums[kLanes] = {};
  touch_page(key);
  for (int at = 0; at < kHeadDim; at += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[lane] += query[at + lane] * to_float(key[at + lane]);
    }
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  return total;
}

template <typename T, int kHeadDim>
void add_value(float weight, const T* value, float* acc) {
  for (int i = 0; i < kHeadDim; ++i) {
    acc[i] += weight * to_float(value[i]);
  }
}

template <typename T, int kHeadDim>
SoftmaxState<kHeadDim> attend(const PagedDecode& task, const float* query, int64_t sequence,
                              int64_t head) {
  const T* cache = static_cast<const T*>(task.cache);
  const int64_t length = task.table.length(sequence, task.page_size);
  SoftmaxState<kHeadDim> state;
  for (int64_t token = 0; token < length; ++token) {
    const int64_t page = task.table.page(sequence, token / task.page_size);
    const int64_t slot = token % task.page_size;
    const T* key = cache + task.layout.offset(page, 0, head, slot);
    const float weight = state.admit(dot_key<T, kHeadDim>(query, key));
    add_value<T, kHeadDim>(weight, cache + task.layout.offset(page, 1, head, slot), state.acc);
  }
  return state;
}

template <typename T, int kHeadDim>
void paged_decode_cpu(const PagedDecode& task) {
  for (int64_t item = 0; item < task.batch * task.num_qo_heads; ++item) {
    const int64_t sequence = item / task.num_qo_heads, head = item % task.num_qo_heads;
    const T* q =
        static_cast<const T*>(task.q) + sequence * task.q_stride[0] + head * task.q_stride[1];
    T* out = static_cast<T*>(task.out) + sequence * task.out_stride[0] + head * task.out_stride[1];
    float query[kHeadDim];
    for (int i = 0; i < kHeadDim; ++i) query[i] = to_float(q[i]) * task.scale;
    const auto state = attend<T, kHeadDim>(task, query, sequence, head / task.group);
    const float share = state.sum == 0.0f ? 0.0f : 1.0f / state.sum;
    for (int i = 0; i < kHeadDim; ++i) out[i] = from_float<T>(state.acc[i] * share);
    if (task.lse != nullptr) task.lse[item] = state.largest + std::log(state.sum);
  }
}

}  // namespace kernlib
