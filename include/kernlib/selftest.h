// What each planted fault does with one element, for both backends.
//
// The line that is wrong ends in a marker, which the selftest looks up: it may move. What a plain
// run must not show is read as volatile, so that no compiler removes a read that nobody uses.
#pragma once

#undef NDEBUG  // the planted assertion must be there whatever the flags say
#include <cassert>
#include <cstdint>

#include "kernlib/scalar.h"

namespace kernlib::selftest {

// out[i] = pool[indices[i]]
struct ReadOutOfBounds {
  const float* pool;
  const int64_t* indices;
  float* out;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    out[i] = pool[indices[i]];  // planted: read_out_of_bounds
  }
};

// out[indices[i]] = values[i]
struct WriteOutOfBounds {
  const float* values;
  const int64_t* indices;
  float* out;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    out[indices[i]] = values[i];  // planted: write_out_of_bounds
  }
};

// out[i] = x[i + 1] - x[i], and 0 for the last one, which has no neighbour to be read.
struct OffByOne {
  const volatile float* x;
  float* out;
  int64_t count;
  bool guarded;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    if (guarded && i + 1 == count) return void(out[i] = 0.0f);
    const float next = x[i + 1];  // planted: off_by_one
    out[i] = i + 1 < count ? next - x[i] : 0.0f;
  }
};

struct alignas(8) Pair {
  float first;
  float second;
};

// out[i] = x[2 i] + x[2 i + 1], loaded as one word of eight bytes.
struct Misalignment {
  const Pair* pairs;
  float* out;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    const Pair pair = pairs[i];  // planted: misalignment
    out[i] = pair.first + pair.second;
  }
};

// out[i] = pool[indices[i]]
struct Assertion {
  const float* pool;
  const int64_t* indices;
  float* out;
  int64_t count;
  int64_t rows;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    assert(indices[i] >= 0 && indices[i] < rows);  // planted: assertion
    out[i] = pool[indices[i]];
  }
};

// out[i] = the sum of x[i], x[i + step], x[i + 2 step], ...
struct Hang {
  const volatile float* x;
  float* out;
  int64_t count;
  int64_t step;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    float sum = 0.0f;
    for (int64_t at = i; at < count; at += step) sum += x[at];  // planted: hang
    out[i] = sum;
  }
};

// out[i] = x[i] / scale[i]
struct NotANumber {
  const float* x;
  const float* scale;
  float* out;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    out[i] = x[i] / scale[i];  // planted: not_a_number
  }
};

// out[i] = table[ids[i] * scale >> 24]: a fixed-point scale, whose product needs 64 bits. The
// first read, in 32 bits, only warms the cache.
struct Int32Overflow {
  const volatile float* table;
  const int32_t* ids;
  float* out;
  int64_t count;
  int32_t scale;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    (void)table[ids[i] * scale >> 24];  // planted: int32_overflow
    out[i] = table[static_cast<int64_t>(ids[i]) * scale >> 24];
  }
};

// out[i] = 2 x[i], summed in a workspace that should have been cleared.
struct StaleWorkspace {
  const float* x;
  float* workspace;
  float* out;
  int64_t count;
  bool guarded;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    if (guarded) workspace[i] = 0.0f;
    workspace[i] += x[i];  // planted: stale_workspace
    out[i] = workspace[i] + x[i];
  }
};

// out[i] = x[i] + bias[i]
struct AddBias {
  const float* x;
  const float* bias;
  float* out;
  int64_t count;

  KERNLIB_HOST_DEVICE void operator()(int64_t i) const {
    out[i] = x[i] + bias[i];  // planted: other_device
  }
};

// out[i] = x[i], while threads meet that should have waited; each backend has its own way.
struct Race {
  const float* x;
  float* out;
  int64_t count;
  bool guarded;
};

// Each returns one of the backend's error codes.
int launch(const ReadOutOfBounds& task, void* stream);
int launch(const WriteOutOfBounds& task, void* stream);
int launch(const OffByOne& task, void* stream);
int launch(const Misalignment& task, void* stream);
int launch(const Assertion& task, void* stream);
int launch(const Hang& task, void* stream);
int launch(const NotANumber& task, void* stream);
int launch(const Int32Overflow& task, void* stream);
int launch(const StaleWorkspace& task, void* stream);
int launch(const AddBias& task, void* stream);
int launch(const Race& task, void* stream);

}  // namespace kernlib::selftest
