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
// on a device that may be long after the launch, and `ticket` last.
struct Statistics {
  int64_t lowest;   // of the finite elements: a double's bits for floats, else the integer itself;
  int64_t highest;  // without any, both are zero
  double mean;      // of the finite elements
  int64_t finite;
  int64_t nans;
  int64_t infinities;
  int64_t zeros;   // of either sign
  int64_t ticket;  // the task's, once all the rest is there
};

constexpr int kMaxDims = 64;

// Tasks that may be under way on a device at a time, each with a slot of its own.
constexpr int kStatisticsSlots = 4096;

// A strided view; strides in elements. A dimension of stride 0 repeats its elements.
struct StatisticsTask {
  const void* data;
  Element element;
  int dims;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t ticket;
  int slot;          // on a device: of no other task that is under way
  int threads;       // on the CPU: at most so many, the caller's own among them
  int vector_bytes;  // on the CPU: vectors of at most so many bytes; all widths give the same
};

int launch_statistics(const StatisticsTask& task, Statistics* out, void* stream);

}  // namespace kernlib
