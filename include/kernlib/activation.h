// Gated activations: what the launchers of both backends take.
#pragma once

#include <cstdint>

#include "kernlib/rows.h"
#include "kernlib/scalar.h"

namespace kernlib {

// out[row][i] = silu(x[row][i]) * x[row][width + i]; out may be the first half of x itself.
struct SiluAndMul {
  const void* x;
  void* out;
  Rows x_rows;
  Rows out_rows;
  int64_t width;
};

int launch_silu_and_mul(const SiluAndMul& task, DType dtype, void* stream);

}  // namespace kernlib
