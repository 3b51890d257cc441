// What some elements of a tensor add to its statistics on CUDA.
#pragma once

#include <type_traits>

#include "kernlib/device.cuh"
#include "kernlib/statistics_formats.h"
#include "kernlib/statistics_tally.h"

namespace kernlib {

constexpr int kVectorBytes = 16;

// How the terms of some vectors are added up: those of floats are calm then.
template <typename Format>
struct SumOf {
  using Type = decltype(Format::term(0));
};
template <>
struct SumOf<format::Float32> {
  using Type = float;
};

// Any elements.
template <typename Format, int kCount>
__device__ __forceinline__ void tally_any(const typename Format::Bits (&x)[kCount],
                                          Tally<Format>& tally) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool nan = Format::is_nan(x[i]), infinite = Format::is_infinite(x[i]);
    tally.nans += nan;
    tally.infinities += infinite;
    tally.zeros += Format::is_zero(x[i]);
    if (nan || infinite) continue;
    const auto key = Format::key(x[i]);
    tally.lowest = key < tally.lowest ? key : tally.lowest;
    tally.highest = key > tally.highest ? key : tally.highest;
    tally.sum += static_cast<double>(Format::term(x[i]));
  }
}

template <typename Format>
__device__ __forceinline__ void tally_one(const char* at, Tally<Format>& tally) {
  typename Format::Bits x[1];
  std::memcpy(x, at, sizeof x);  // at any address
  tally_any<Format>(x, tally);
}

// What has been loaded, if it is finite and its sum no danger; false if it is not.
template <typename Format, int kCount>
__device__ __forceinline__ bool tally_calm(const typename Format::Bits (&x)[kCount],
                                           Tally<Format>& tally) {
  if constexpr (Format::kCounted && !Format::kAllFinite) {
    return false;
  } else {
    constexpr int kEach = kVectorBytes / sizeof(x[0]);
    auto lowest = Tally<Format>::kMost, highest = Tally<Format>::kLeast;
    typename SumOf<Format>::Type part = 0;
    double sum = 0;
    int zeros = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i % kEach == 0 && i > 0) sum += static_cast<double>(part), part = 0;
      const auto key = Format::key(x[i]);
      lowest = key < lowest ? key : lowest;
      highest = key > highest ? key : highest;
      zeros += Format::is_zero(x[i]);
      part += static_cast<typename SumOf<Format>::Type>(Format::term(x[i]));
    }
    if constexpr (!Format::kAllFinite) {
      if (!Format::calm(lowest, highest)) return false;
    }
    tally.lowest = lowest < tally.lowest ? lowest : tally.lowest;
    tally.highest = highest > tally.highest ? highest : tally.highest;
    tally.sum += sum + static_cast<double>(part);
    tally.zeros += zeros;
    return true;
  }
}

}  // namespace kernlib
