// What each kernel does with one element, for both backends; the planted faults are here.
//
// A fault happens only for arguments that ask for it: an index, a distance or a stride that leaves
// the tensor. The line of the access ends in a marker, which the tests look up.
#pragma once

#include <cstdint>

#include "kernlib/scalar.h"

namespace faultlib {

// to[i][c] = pool[pages[i]][c] * scale; `count` elements in all.
struct TakeRows {
  const float* pool;
  const int64_t* pages;
  float* to;
  int64_t count;
  int64_t width;
  float scale;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t from = pages[i / width] * width + i % width;
    const float value = pool[from];  // FAULT read-past-pool
    to[i] = value * scale;
  }
};

// to[slots[i]] = from[i]
struct Put {
  const float* from;
  const int64_t* slots;
  float* to;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t slot = slots[i];
    const float value = from[i];
    to[slot] = value;  // FAULT write-past-output
  }
};

// to[i] = from[i - back[i]]
struct LookBack {
  const float* from;
  const int64_t* back;
  float* to;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t at = i - back[i];
    const float value = from[at];  // FAULT negative-index
    to[i] = value;
  }
};

// to[row] = the sum of the row; rows start `row_stride` elements apart, as the caller says.
struct SumRows {
  const float* from;
  float* to;
  int64_t count;
  int64_t width;
  int64_t row_stride;

  KERNLIB_HOST_DEVICE void operator()(int64_t row) const {
    float sum = 0.0f;
    for (int64_t column = 0; column < width; ++column) {
      const int64_t at = row * row_stride + column;
      const float value = from[at];  // FAULT wrong-stride
      sum += value;
    }
    to[row] = sum;
  }
};

}  // namespace faultlib
