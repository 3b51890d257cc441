// Decoding attention over a paged cache: what the launchers of both backends take.
#pragma once

#include <cstdint>

#include "kernlib/paged_cache.h"
#include "kernlib/scalar.h"

namespace kernlib {

// One query token a sequence: out[b, h] = softmax(q[b, h] . K * scale) V over the tokens of
// sequence b, with the kv head h / group. lse[b, h] is the natural logarithm of the sum of
// exponentials. A sequence without tokens gives zeros and -infinity.
struct PagedDecode {
  const void* q;
  const void* cache;
  void* out;
  float* lse;           // null when not asked for; dense [batch, num_qo_heads]
  int64_t q_stride[2];  // sequence, head
  int64_t out_stride[2];
  PagedLayout layout;
  PageTable table;
  int64_t batch;
  int64_t num_qo_heads;
  int64_t group;  // query heads that share a kv head
  int64_t page_size;
  float scale;
};

int launch_paged_decode(const PagedDecode& task, DType dtype, void* stream);

}  // namespace kernlib
