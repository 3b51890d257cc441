// Checks of the paged cache that its operators share.
#pragma once

#include "common/checks.h"
#include "kernlib/paged_cache.h"

namespace kernlib::check {

// kv_cache[num_pages, 2, num_kv_heads, page_size, head_dim] with any strides but the last.
inline PagedLayout paged_layout(const Arg& cache) {
  dims(cache, 5, "[num_pages, 2, num_kv_heads, page_size, head_dim]");
  size_is(cache, 1, 2, "K and V");
  dense_last(cache);
  element_aligned(cache);
  if (cache.view.size(3) < 1)
    value_error({cache.name, ".shape[3] = 0, but a page holds at least 1"});
  return PagedLayout{cache.view.stride(0), cache.view.stride(1), cache.view.stride(2),
                     cache.view.stride(3)};
}

// The lists of a page table; `other` says on which device they must be.
inline PageTable page_table(const Arg& indptr, const Arg& indices_arg, const Arg& last_page_len,
                            const Arg& other) {
  const PageTable table{indices(indptr, other), indices(indices_arg, other),
                        indices(last_page_len, other)};
  if (indptr.view.size(0) != last_page_len.view.size(0) + 1) {
    value_error({size_text(indptr, 0), " = ", indptr.view.size(0), ", but ",
                 size_text(last_page_len, 0), " + 1 = ", last_page_len.view.size(0) + 1});
  }
  return table;
}

}  // namespace kernlib::check
