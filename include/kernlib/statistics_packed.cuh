// Statistics of elements of 8 and 16 bits on CUDA, two or four of them with each instruction.
#pragma once

#include "kernlib/device.cuh"
#include "kernlib/statistics_formats.h"
#include "kernlib/statistics_tally.h"

namespace kernlib {

// A format's elements as pairs in the halves of a word, ordered like their values. `kPairs` of them
// come of a word that is loaded; none says that the format is not looked at in this way.
template <typename Format>
struct Packed {
  static constexpr int kPairs = 0;
};

// Numbers of 8 bits become the upper bytes of numbers of 16.
__device__ __forceinline__ uint32_t upper_bytes(uint32_t word, int which) {
  return (which == 0 ? word << 8 : word) & 0xff00ff00u;
}

// Floats that are compared, and told from zero, as halves. A NaN is passed on by both.
struct Halves {
  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  static __device__ __forceinline__ uint32_t smaller(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  static __device__ __forceinline__ float term(uint32_t half) {
    float result;
    asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(result) : "r"(half));
    return result;
  }
};

template <>
struct Packed<format::Float16> : Halves {
  static constexpr int kPairs = 1;
  static constexpr double kUnit = 1;  // the value of the term 1
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int) { return word; }
  static __device__ __forceinline__ uint32_t bits(uint32_t half) { return half; }
};

template <>
struct Packed<format::BFloat16> {
  static constexpr int kPairs = 1;
  static constexpr double kUnit = 1;
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int) { return word; }
  static __device__ __forceinline__ uint32_t bits(uint32_t half) { return half; }
  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  static __device__ __forceinline__ uint32_t smaller(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
  }
  static __device__ __forceinline__ float term(uint32_t half) {
    return __uint_as_float(half << 16);
  }
};

template <>
struct Packed<format::Float8E5M2> : Halves {
  static constexpr int kPairs = 2;
  static constexpr double kUnit = 1;
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int which) {
    return upper_bytes(word, which);
  }
  static __device__ __forceinline__ uint32_t bits(uint32_t half) { return half >> 8; }
};

// With the magnitude one bit lower a half's exponent has room for it: each is a half / 256, even
// NaN, which is then larger than the largest number.
template <>
struct Packed<format::Float8E4M3FN> : Halves {
  static constexpr int kPairs = 2;
  static constexpr double kUnit = 256;
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int which) {
    const uint32_t upper = upper_bytes(word, which);
    return (upper & 0x80008000u) | ((upper & 0x7f007f00u) >> 1);
  }
  static __device__ __forceinline__ uint32_t bits(uint32_t half) {
    return ((half >> 8) & 0x80u) | ((half >> 7) & 0x7fu);
  }
};

template <typename T>
struct PackedIntegers {
  static constexpr bool kByte = sizeof(T) == 1, kSigned = std::is_signed_v<T>;
  static constexpr int kPairs = kByte ? 2 : 1;
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int which) {
    return kByte ? upper_bytes(word, which) : word;
  }
  static __device__ __forceinline__ uint32_t bits(uint32_t half) {
    return kByte ? half >> 8 : half;
  }
  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return kSigned ? __vmaxs2(a, b) : __vmaxu2(a, b);
  }
  static __device__ __forceinline__ uint32_t smaller(uint32_t a, uint32_t b) {
    return kSigned ? __vmins2(a, b) : __vminu2(a, b);
  }
  // Adds all elements of a word.
  static __device__ __forceinline__ int32_t plus(int32_t sum, uint32_t word) {
    constexpr int kOnes = 0x01010101;
    const int32_t x = static_cast<int32_t>(word);
    if constexpr (kSigned) return kByte ? __dp4a(x, kOnes, sum) : __dp2a_lo(x, kOnes, sum);
    const uint32_t ones = kOnes, before = static_cast<uint32_t>(sum);
    return static_cast<int32_t>(kByte ? __dp4a(word, ones, before) : __dp2a_lo(word, ones, before));
  }
  // One in the lowest bit of each element that is not zero.
  static __device__ __forceinline__ uint32_t nonzero(uint32_t word) {
    constexpr uint32_t kTop = kByte ? 0x80808080u : 0x80008000u;
    return ((((word & ~kTop) + ~kTop) | word) & kTop) >> (kByte ? 7 : 15);
  }
};
template <>
struct Packed<format::Integer<int8_t>> : PackedIntegers<int8_t> {};
template <>
struct Packed<format::Integer<uint8_t>> : PackedIntegers<uint8_t> {};
template <>
struct Packed<format::Integer<int16_t>> : PackedIntegers<int16_t> {};
template <>
struct Packed<format::Integer<uint16_t>> : PackedIntegers<uint16_t> {};

// What some words hold; the extremes are pairs.
struct PackedTally {
  uint32_t smallest, largest;
  double sum = 0;
  int zeros = 0;

  template <typename P>
  __device__ __forceinline__ void compare(uint32_t pair) {
    smallest = P::smaller(smallest, pair);
    largest = P::larger(largest, pair);
  }
};

// Both floats of a pair have a sum of their own.
template <typename Format, int kWords>
__device__ __forceinline__ void add_floats(const uint32_t (&words)[kWords], PackedTally& tally) {
  using P = Packed<Format>;
  uint32_t zeros = 0;  // a pair of halves
#pragma unroll
  for (int first = 0; first < kWords; first += 4) {
    float low = 0, high = 0;
#pragma unroll
    for (int i = 0; i < 4 * P::kPairs; ++i) {
      const uint32_t pair = P::pair(words[first + i / P::kPairs], i % P::kPairs);
      tally.compare<P>(pair);
      uint32_t zero;
      asm("set.eq.f16x2.f16x2 %0, %1, %2;" : "=r"(zero) : "r"(pair), "r"(0));
      asm("add.f16x2 %0, %1, %2;" : "=r"(zeros) : "r"(zeros), "r"(zero));
      low += P::term(pair & 0xffffu);
      high += P::term(pair >> 16);
    }
    tally.sum += static_cast<double>(low + high);
  }
  tally.sum *= P::kUnit / Format::kScale;
  tally.zeros = static_cast<int>(Halves::term(zeros & 0xffffu) + Halves::term(zeros >> 16));
}

template <typename Format, int kWords>
__device__ __forceinline__ void add_integers(const uint32_t (&words)[kWords], PackedTally& tally) {
  using P = Packed<Format>;
  int32_t sum = 0;
  uint32_t nonzero = 0;  // in each element's place, at most one a word
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
#pragma unroll
    for (int which = 0; which < P::kPairs; ++which) tally.compare<P>(P::pair(words[i], which));
    sum = P::plus(sum, words[i]);
    nonzero += P::nonzero(words[i]);
  }
  const uint32_t found =
      P::kByte ? __dp4a(nonzero, 0x01010101u, 0u) : __dp2a_lo(nonzero, 0x01010101u, 0u);
  tally.zeros = kWords * 2 * P::kPairs - static_cast<int>(found);
  tally.sum = static_cast<double>(sum);
}

// What has been loaded, if it is finite and its sum no danger; false if it is not.
template <typename Format, int kWords>
__device__ __forceinline__ bool tally_packed(const uint32_t (&words)[kWords],
                                             Tally<Format>& tally) {
  using P = Packed<Format>;
  PackedTally found;
  found.smallest = found.largest = P::pair(words[0], 0);
  if constexpr (Format::kAllFinite) {
    add_integers<Format>(words, found);
  } else {
    add_floats<Format>(words, found);
  }
  const auto key = [](uint32_t half) {
    return Format::key(static_cast<typename Format::Bits>(P::bits(half)));
  };
  const auto low = key(found.smallest & 0xffffu), other_low = key(found.smallest >> 16);
  const auto high = key(found.largest & 0xffffu), other_high = key(found.largest >> 16);
  const auto lowest = other_low < low ? other_low : low;
  const auto highest = other_high > high ? other_high : high;
  if constexpr (!Format::kAllFinite) {
    if (!Format::calm(lowest, highest)) return false;
  }
  tally.lowest = lowest < tally.lowest ? lowest : tally.lowest;
  tally.highest = highest > tally.highest ? highest : tally.highest;
  tally.sum += found.sum;
  tally.zeros += found.zeros;
  return true;
}

}  // namespace kernlib
