// The paged key-value cache: its layout, and what appending takes.
#pragma once

#include <cstdint>

#include "kernlib/scalar.h"

namespace kernlib {

// The strides of kv_cache[num_pages, 2, num_kv_heads, page_size, head_dim], in elements; elements
// of a head lie side by side. Kind 0 is K, kind 1 is V.
struct PagedLayout {
  int64_t page_stride;
  int64_t kind_stride;
  int64_t head_stride;
  int64_t slot_stride;

  // 64 bits throughout: a page id times a stride passes 2^31 in caches of a few gigabytes.
  KERNLIB_HOST_DEVICE int64_t offset(int64_t page, int kind, int64_t head, int64_t slot) const {
    return page * page_stride + kind * kind_stride + head * head_stride + slot * slot_stride;
  }
};

// Pages of sequence b are indices[indptr[b]] to indices[indptr[b + 1] - 1], in order. Page ids are
// not checked: they live in device memory, where a check would cost a round trip.
struct PageTable {
  const int32_t* indptr;
  const int32_t* indices;
  const int32_t* last_page_len;

  KERNLIB_HOST_DEVICE int64_t page(int64_t sequence, int64_t ordinal) const {
    return indices[indptr[sequence] + ordinal];
  }

  KERNLIB_HOST_DEVICE int64_t length(int64_t sequence, int64_t page_size) const {
    const int64_t pages = static_cast<int64_t>(indptr[sequence + 1]) - indptr[sequence];
    return pages > 0 ? (pages - 1) * page_size + last_page_len[sequence] : 0;
  }
};

// Token t of k and v [tokens, num_kv_heads, head_dim] goes to positions[t] of sequence
// batch_indices[t].
struct AppendPagedKv {
  const void* source[2];  // k, v
  int64_t token_stride[2];
  int64_t head_stride[2];
  void* cache;
  PagedLayout layout;
  PageTable table;
  const int32_t* batch_indices;
  const int32_t* positions;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t page_size;
};

// Appending copies: only the size of an element matters.
int launch_append_paged_kv(const AppendPagedKv& task, int element_bytes, void* stream);

}  // namespace kernlib
