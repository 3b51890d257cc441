// Gated activations on the CPU.
#pragma once

#include <cmath>

#include "kernlib/activation.h"

namespace kernlib {

template <typename T>
void silu_and_mul_cpu(const SiluAndMul& task) {
  for (int64_t row = 0; row < task.x_rows.count; ++row) {
    const T* gate = static_cast<const T*>(task.x) + task.x_rows.offset(row);
    const T* up = gate + task.width;
    T* out = static_cast<T*>(task.out) + task.out_rows.offset(row);
    for (int64_t i = 0; i < task.width; ++i) {
      const float value = to_float(gate[i]);
      out[i] = from_float<T>(value / (1.0f + std::exp(-value)) * to_float(up[i]));
    }
  }
}

}  // namespace kernlib
