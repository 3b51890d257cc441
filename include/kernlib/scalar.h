// Element types of kernels, their conversions, and dispatch over them.
//
// One pair of 16-bit types serves host and device, so that a kernel is the same template on both.
// Host conversions use integer arithmetic only where a denormal float would be needed: they give
// the same bits whether or not the process flushes denormals to zero.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define KERNLIB_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KERNLIB_HOST_DEVICE inline
#endif

namespace kernlib {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

enum class DType : int { kFloat16, kBFloat16, kFloat32 };

// Calls `body` with a null pointer of the element type; false if there is no such type.
template <typename Body>
inline bool dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat16:
      body(static_cast<Half*>(nullptr));
      return true;
    case DType::kBFloat16:
      body(static_cast<BFloat16*>(nullptr));
      return true;
    case DType::kFloat32:
      body(static_cast<float*>(nullptr));
      return true;
  }
  return false;
}

namespace host {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A selection by masks: the compiler may turn `?:` into a branch, which keeps loops from
// vectorising.
inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float widen(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  const uint32_t magnitude = half.bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;  // infinity and NaN
  // Zero and subnormals are mantissa x 2^-24, which is a normal float.
  const uint32_t small = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = select(magnitude < 0x400u, small, normal);
  return float_of(sign | select(magnitude < 0x7c00u, finite, special));
}

inline Half narrow_to_half(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Below 2^-14 the result is a whole multiple of 2^-24. Adding 2^23 leaves that multiple, rounded
  // to nearest even, in the low bits.
  const uint32_t small = bits_of(float_of(magnitude) * 0x1p24f + 0x1p23f) & 0x7ffu;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x1ffu);  // quiet, with what fits of it
  const uint32_t finite = select(magnitude < 0x38800000u, small, normal);
  const uint32_t special = select(magnitude > 0x7f800000u, nan, 0x7c00u);
  // 65520 and more round to infinity.
  const uint32_t result = select(magnitude < 0x477ff000u, finite, special);
  return Half{static_cast<uint16_t>(((bits >> 16) & 0x8000u) | result)};
}

inline float widen(BFloat16 value) { return float_of(static_cast<uint32_t>(value.bits) << 16); }

inline BFloat16 narrow_to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return BFloat16{static_cast<uint16_t>(nan ? (bits >> 16 | 0x40u) : rounded)};
}

}  // namespace host

KERNLIB_HOST_DEVICE float to_float(float value) { return value; }

KERNLIB_HOST_DEVICE float to_float(Half value) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return host::widen(value);
#endif
}

KERNLIB_HOST_DEVICE float to_float(BFloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  return host::widen(value);
#endif
}

// Rounds to nearest even; NaN stays NaN.
template <typename T>
KERNLIB_HOST_DEVICE T from_float(float value);

template <>
KERNLIB_HOST_DEVICE float from_float<float>(float value) {
  return value;
}

template <>
KERNLIB_HOST_DEVICE Half from_float<Half>(float value) {
#ifdef __CUDA_ARCH__
  Half narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
#else
  return host::narrow_to_half(value);
#endif
}

template <>
KERNLIB_HOST_DEVICE BFloat16 from_float<BFloat16>(float value) {
#ifdef __CUDA_ARCH__
  BFloat16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
#else
  return host::narrow_to_bfloat16(value);
#endif
}

}  // namespace kernlib
