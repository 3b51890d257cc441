// Rows of a tensor whose leading dimensions are strided.
#pragma once

#include <cstdint>

#include "kernlib/scalar.h"

namespace kernlib {

// Row `r` starts at (r / inner) * outer_stride + (r % inner) * inner_stride elements. Two levels
// cover slices of a fused projection, x[:, a:b].view(tokens, heads, dim), without a copy.
struct Rows {
  int64_t count;
  int64_t inner;
  int64_t outer_stride;
  int64_t inner_stride;

  KERNLIB_HOST_DEVICE int64_t offset(int64_t row) const {
    return (row / inner) * outer_stride + (row % inner) * inner_stride;
  }
};

}  // namespace kernlib
