// The kernel, on raw pointers: it knows no framework.
#pragma once

#include <cstdint>

namespace example {

// out[i] = table[rows[i]]
inline void gather(const float* table, const int64_t* rows, float* out, int64_t count,
                   int64_t width) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t column = 0; column < width; ++column) {
      const float value = table[rows[i] * width + column];  // a row too far faults here
      out[i * width + column] = value;
    }
  }
}

}  // namespace example
