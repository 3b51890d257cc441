// Appending to the paged key-value cache on CUDA: one block a token.
#pragma once

#include "kernlib/device.cuh"
#include "kernlib/paged_cache.h"

namespace kernlib {

// `Chunk` is what a thread moves at a time, an element or 16 bytes of them; all sizes and strides
// of the task are counted in chunks.
template <typename Chunk>
__global__ void __launch_bounds__(kMaxThreads) append_paged_kv_kernel(AppendPagedKv task) {
  Chunk* cache = static_cast<Chunk*>(task.cache);
  const int64_t per_kind = task.heads * task.head_dim;
  for (int64_t token = blockIdx.x; token < task.tokens; token += gridDim.x) {
    const int64_t position = task.positions[token];
    const int64_t page = task.table.page(task.batch_indices[token], position / task.page_size);
    const int64_t slot = position % task.page_size;
    for (int64_t at = threadIdx.x; at < 2 * per_kind; at += blockDim.x) {
      const int kind = at >= per_kind;
      const int64_t head = (at - kind * per_kind) / task.head_dim;
      const int64_t i = (at - kind * per_kind) % task.head_dim;
      const Chunk* source = static_cast<const Chunk*>(task.source[kind]);
      const Chunk chunk =
          source[token * task.token_stride[kind] + head * task.head_stride[kind] + i];
      cache[task.layout.offset(page, kind, head, slot) + i] = chunk;
    }
  }
}

// The same task counted in chunks of `factor` elements.
inline AppendPagedKv in_chunks(AppendPagedKv task, int64_t factor) {
  for (int kind = 0; kind < 2; ++kind) {
    task.token_stride[kind] /= factor;
    task.head_stride[kind] /= factor;
  }
  task.layout.page_stride /= factor;
  task.layout.kind_stride /= factor;
  task.layout.head_stride /= factor;
  task.layout.slot_stride /= factor;
  task.head_dim /= factor;
  return task;
}

inline bool whole_words(const AppendPagedKv& task, int64_t element) {
  for (int kind = 0; kind < 2; ++kind) {
    if (!whole_words(task.source[kind]) || !whole_words(task.token_stride[kind] * element) ||
        !whole_words(task.head_stride[kind] * element)) {
      return false;
    }
  }
  return whole_words(task.cache) && whole_words(task.layout, element) &&
         whole_words(task.head_dim * element);
}

}  // namespace kernlib
