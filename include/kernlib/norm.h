// Root-mean-square normalisation: what the launchers of both backends take.
#pragma once

#include <cstdint>

#include "kernlib/rows.h"
#include "kernlib/scalar.h"

namespace kernlib {

// out[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight; out may be x itself.
struct RmsNorm {
  const void* x;
  void* out;
  const void* weight;
  Rows x_rows;
  Rows out_rows;
  int64_t hidden;
  float eps;
};

// residual[row] += x[row], rounded to the element type; x[row] = rms_norm(residual[row]).
struct FusedAddRmsNorm {
  void* x;
  void* residual;
  const void* weight;
  Rows x_rows;
  Rows residual_rows;
  int64_t hidden;
  float eps;
};

int launch_rms_norm(const RmsNorm& task, DType dtype, void* stream);
int launch_fused_add_rms_norm(const FusedAddRmsNorm& task, DType dtype, void* stream);

}  // namespace kernlib
