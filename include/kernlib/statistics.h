// Statistics of a tensor in one pass: what the launchers of every backend take.
#pragma once

#include <cstdint>

namespace kernlib {

enum class Element : int {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
};

// What is known of a tensor after one pass. A launcher writes it to memory that the host can see;
// on a device that may be long after the launch.
struct Statistics {
  int64_t lowest;   // of the finite elements: a double's bits for floats, else the integer itself;
  int64_t highest;  // without any, both are zero
  double mean;      // of the finite elements
  int64_t finite;
  int64_t nans;
  int64_t infinities;
  int64_t zeros;  // of either sign
};

constexpr int kMaxDims = 64;

// A strided view; strides in elements. A dimension of stride 0 repeats its elements.
struct StatisticsTask {
  const void* data;
  Element element;
  int dims;
  const int64_t* sizes;
  const int64_t* strides;
  int threads;       // at most so many, the caller's own among them
  int vector_bytes;  // use vectors of at most so many bytes; all widths give the same
};

int launch_statistics(const StatisticsTask& task, Statistics* out, void* stream);

}  // namespace kernlib
