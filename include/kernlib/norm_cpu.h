// Root-mean-square normalisation on the CPU.
#pragma once

#include <cmath>

#include "kernlib/norm.h"

namespace kernlib {

// Eight partial sums: the compiler may not reorder one float sum, but it can run these abreast.
template <typename T>
float mean_of_squares(const T* row, int64_t hidden) {
  constexpr int kLanes = 8;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= hidden; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = to_float(row[i + lane]);
      sums[lane] += value * value;
    }
  }
  float total = 0.0f;
  for (; i < hidden; ++i) total += to_float(row[i]) * to_float(row[i]);
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total / static_cast<float>(hidden);
}

template <typename T>
void normalise_row(const T* from, const T* weight, T* to, int64_t hidden, float eps) {
  const float scale = 1.0f / std::sqrt(mean_of_squares(from, hidden) + eps);
  for (int64_t i = 0; i < hidden; ++i) {
    to[i] = from_float<T>(to_float(from[i]) * scale * to_float(weight[i]));
  }
}

template <typename T>
void rms_norm_cpu(const RmsNorm& task) {
  const T* x = static_cast<const T*>(task.x);
  const T* weight = static_cast<const T*>(task.weight);
  T* out = static_cast<T*>(task.out);
  for (int64_t row = 0; row < task.x_rows.count; ++row) {
    normalise_row(x + task.x_rows.offset(row), weight, out + task.out_rows.offset(row), task.hidden,
                  task.eps);
  }
}

template <typename T>
void fused_add_rms_norm_cpu(const FusedAddRmsNorm& task) {
  const T* weight = static_cast<const T*>(task.weight);
  for (int64_t row = 0; row < task.x_rows.count; ++row) {
    T* x = static_cast<T*>(task.x) + task.x_rows.offset(row);
    T* residual = static_cast<T*>(task.residual) + task.residual_rows.offset(row);
    for (int64_t i = 0; i < task.hidden; ++i) {
      residual[i] = from_float<T>(to_float(residual[i]) + to_float(x[i]));
    }
    normalise_row<T>(residual, weight, x, task.hidden, task.eps);
  }
}

}  // namespace kernlib
