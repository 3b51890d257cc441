// How the elements of a tensor are ordered, told apart and added up, by their bits.
//
// A format has integers as keys that are ordered like its values: comparing them is exact for
// subnormals whatever the process does with them, and a loop over integers vectorises.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernlib/statistics.h"

// Inlined into functions for several instruction sets, and compiled anew in each.
#ifdef __CUDACC__
#define KERNLIB_ALWAYS __host__ __device__ __forceinline__
#else
#define KERNLIB_ALWAYS inline __attribute__((always_inline))
#endif

namespace kernlib::format {

template <typename To, typename From>
KERNLIB_ALWAYS To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// A format says how it is looked at: kAllFinite has no NaN and no infinity, of kInFloat32 each
// value is a float32 times a power of two, kCounted is best counted value by value.

// Floats that are a sign and a magnitude: with the magnitude of the negative ones flipped, they are
// ordered like integers. kLargest is the largest finite magnitude; infinity, if there is one, is
// next, and NaNs are all beyond.
template <typename BitsOf, BitsOf kLargest, bool kInfinity>
struct SignMagnitude {
  using Bits = BitsOf;
  using Key = std::make_signed_t<Bits>;
  static constexpr bool kAllFinite = false, kInFloat32 = false, kCounted = false;
  static constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;

  static KERNLIB_ALWAYS Key key(Bits x) {
    const Bits negative = static_cast<Bits>(static_cast<Key>(x) >> (8 * sizeof(Bits) - 1));
    return static_cast<Key>(x ^ (negative & kMagnitude));
  }
  static KERNLIB_ALWAYS Bits bits(Key key) {  // its own inverse
    return static_cast<Bits>(SignMagnitude::key(static_cast<Bits>(key)));
  }
  static KERNLIB_ALWAYS bool is_zero(Bits x) { return (x & kMagnitude) == 0; }
  static KERNLIB_ALWAYS bool is_nan(Bits x) { return (x & kMagnitude) > kLargest + kInfinity; }
  static KERNLIB_ALWAYS bool is_infinite(Bits x) {
    return kInfinity && (x & kMagnitude) == kLargest + 1;
  }
  // Whether everything between two keys is of a magnitude up to this one.
  static KERNLIB_ALWAYS bool within(Key lowest, Key highest, Bits magnitude = kLargest) {
    return highest <= static_cast<Key>(magnitude) && lowest >= static_cast<Key>(~magnitude);
  }
};

struct Float64 : SignMagnitude<uint64_t, 0x7fefffffffffffff, true> {
  static constexpr double kScale = 1;
  static KERNLIB_ALWAYS double term(Bits x) { return bit_cast<double>(x); }
  static KERNLIB_ALWAYS double value(Key key) { return term(bits(key)); }
  static KERNLIB_ALWAYS bool calm(Key lowest, Key highest) { return within(lowest, highest); }
};

struct Float32 : SignMagnitude<uint32_t, 0x7f7fffff, true> {
  static constexpr bool kInFloat32 = true;
  static constexpr double kScale = 1;
  static constexpr int kShift = 0;
  static constexpr uint32_t kMask = ~0u;
  static constexpr Bits kCalm = 0x7b000000;  // 2^119: a few of these add up to a float32
  static KERNLIB_ALWAYS double term(Bits x) { return bit_cast<float>(x); }
  static KERNLIB_ALWAYS double value(Key key) { return term(bits(key)); }
  static KERNLIB_ALWAYS bool calm(Key lowest, Key highest) {
    return within(lowest, highest, kCalm);
  }
};

constexpr double power_of_two(int exponent) {
  double value = 1;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return value;
}

// Floats of 8 and 16 bits. Put where a float32 has them, exponent and mantissa are those of the
// value times a power of two, subnormals too.
template <typename BitsOf, BitsOf kLargest, bool kInfinity, int kExponentBits, int kBias>
struct SmallFloat : SignMagnitude<BitsOf, kLargest, kInfinity> {
  using Base = SignMagnitude<BitsOf, kLargest, kInfinity>;
  using typename Base::Key;
  static constexpr bool kInFloat32 = true;
  static constexpr double kScale = power_of_two(127 - kBias);
  static constexpr int kShift = 8 - kExponentBits;
  static constexpr uint32_t kMask =
      0x80000000u | static_cast<uint32_t>(Base::kMagnitude) << (32 - 8 * sizeof(BitsOf)) >> kShift;
  // Sums of a block of these are far from the end of float32.
  static constexpr BitsOf kCalm = kExponentBits == 8 ? BitsOf(0x7000) : kLargest;  // or 2^97

  static KERNLIB_ALWAYS float term(BitsOf x) {
    const uint32_t upper = static_cast<uint32_t>(x) << (32 - 8 * sizeof(BitsOf));
    return bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(upper) >> kShift) & kMask);
  }
  static KERNLIB_ALWAYS double value(Key key) { return term(Base::bits(key)) * kScale; }
  static KERNLIB_ALWAYS bool calm(Key lowest, Key highest) {
    return Base::within(lowest, highest, kCalm);
  }
};

struct Float16 : SmallFloat<uint16_t, 0x7bff, true, 5, 15> {};
struct BFloat16 : SmallFloat<uint16_t, 0x7f7f, true, 8, 127> {};
struct Float8E4M3FN : SmallFloat<uint8_t, 0x7e, false, 4, 7> {};
struct Float8E5M2 : SmallFloat<uint8_t, 0x7b, true, 5, 15> {};

// Without infinities and minus zero, whose bits are the only NaN.
template <int kExponentBits, int kBias>
struct OneNan : SmallFloat<uint8_t, 0x7f, false, kExponentBits, kBias> {
  static constexpr bool kInFloat32 = false, kCounted = true;
  static constexpr uint8_t kNan = 0x80;
  static KERNLIB_ALWAYS bool is_zero(uint8_t x) { return x == 0; }
  static KERNLIB_ALWAYS bool is_nan(uint8_t x) { return x == kNan; }
  static KERNLIB_ALWAYS bool is_infinite(uint8_t) { return false; }
};

struct Float8E4M3FNUZ : OneNan<4, 8> {};
struct Float8E5M2FNUZ : OneNan<5, 16> {};

// Powers of two and a NaN.
struct Float8E8M0FNU {
  using Bits = uint8_t;
  using Key = uint8_t;
  static constexpr bool kAllFinite = false, kCounted = true;
  static constexpr double kScale = 1;
  static KERNLIB_ALWAYS Key key(Bits x) { return x; }
  static KERNLIB_ALWAYS bool is_zero(Bits) { return false; }
  static KERNLIB_ALWAYS bool is_nan(Bits x) { return x == 0xff; }
  static KERNLIB_ALWAYS bool is_infinite(Bits) { return false; }
  static KERNLIB_ALWAYS double term(Bits x) {
    return bit_cast<double>(static_cast<uint64_t>(x + 1023 - 127) << 52);
  }
  static KERNLIB_ALWAYS double value(Key key) { return term(key); }
};

template <typename T>
struct Integer {
  using Bits = T;
  using Key = T;
  // Exact sums of a block, but for 64 bits: those are rounded as a double is.
  using Term = std::conditional_t<sizeof(T) == 8, double,
                                  std::conditional_t<sizeof(T) == 4, int64_t, int32_t>>;
  static constexpr bool kAllFinite = true, kCounted = false;
  static constexpr double kScale = 1;
  static KERNLIB_ALWAYS Key key(Bits x) { return x; }
  static KERNLIB_ALWAYS bool is_zero(Bits x) { return x == 0; }
  static KERNLIB_ALWAYS bool is_nan(Bits) { return false; }
  static KERNLIB_ALWAYS bool is_infinite(Bits) { return false; }
  static KERNLIB_ALWAYS Term term(Bits x) { return static_cast<Term>(x); }
  static KERNLIB_ALWAYS int64_t value(Key key) { return static_cast<int64_t>(key); }
};

// Any byte but zero is true.
struct Bool : Integer<uint8_t> {
  static constexpr bool kCounted = true;
  static KERNLIB_ALWAYS Key key(Bits x) { return x != 0; }
  static KERNLIB_ALWAYS Term term(Bits x) { return x != 0; }
};

// Calls `body` with a value of the element's format; false if there is no such element.
template <typename Body>
bool dispatch(Element element, Body&& body) {
  switch (element) {
    case Element::kFloat64:
      return body(Float64{}), true;
    case Element::kFloat32:
      return body(Float32{}), true;
    case Element::kFloat16:
      return body(Float16{}), true;
    case Element::kBFloat16:
      return body(BFloat16{}), true;
    case Element::kFloat8E4M3FN:
      return body(Float8E4M3FN{}), true;
    case Element::kFloat8E4M3FNUZ:
      return body(Float8E4M3FNUZ{}), true;
    case Element::kFloat8E5M2:
      return body(Float8E5M2{}), true;
    case Element::kFloat8E5M2FNUZ:
      return body(Float8E5M2FNUZ{}), true;
    case Element::kFloat8E8M0FNU:
      return body(Float8E8M0FNU{}), true;
    case Element::kInt8:
      return body(Integer<int8_t>{}), true;
    case Element::kInt16:
      return body(Integer<int16_t>{}), true;
    case Element::kInt32:
      return body(Integer<int32_t>{}), true;
    case Element::kInt64:
      return body(Integer<int64_t>{}), true;
    case Element::kUInt8:
      return body(Integer<uint8_t>{}), true;
    case Element::kUInt16:
      return body(Integer<uint16_t>{}), true;
    case Element::kUInt32:
      return body(Integer<uint32_t>{}), true;
    case Element::kUInt64:
      return body(Integer<uint64_t>{}), true;
    case Element::kBool:
      return body(Bool{}), true;
  }
  return false;
}

KERNLIB_ALWAYS int64_t stored(double value) {
  return bit_cast<int64_t>(value + 0.0);  // no minus zero
}
KERNLIB_ALWAYS int64_t stored(int64_t value) { return value; }

}  // namespace kernlib::format
