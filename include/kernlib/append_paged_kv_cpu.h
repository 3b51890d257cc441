// Appending to the paged key-value cache on the CPU.
#pragma once

#include "kernlib/paged_cache.h"

namespace kernlib {

// Not inlined, so that the fault of a bad page id has a line of its own.
template <typename Element>
[[gnu::noinline]] void copy_head(const Element* from, Element* to, int64_t head_dim) {
  // A loop, not memcpy: a bad page id then faults on a line of this file.
  for (int64_t i = 0; i < head_dim; ++i) {
    to[i] = from[i];
  }
}

template <typename Element>
void append_paged_kv_cpu(const AppendPagedKv& task) {
  Element* cache = static_cast<Element*>(task.cache);
  for (int64_t token = 0; token < task.tokens; ++token) {
    const int64_t position = task.positions[token];
    const int64_t page = task.table.page(task.batch_indices[token], position / task.page_size);
    const int64_t slot = position % task.page_size;
    for (int kind = 0; kind < 2; ++kind) {
      const Element* source = static_cast<const Element*>(task.source[kind]);
      for (int64_t head = 0; head < task.heads; ++head) {
        copy_head(source + token * task.token_stride[kind] + head * task.head_stride[kind],
                  cache + task.layout.offset(page, kind, head, slot), task.head_dim);
      }
    }
  }
}

}  // namespace kernlib
