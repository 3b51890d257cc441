// Statistics of a tensor on the CPU, in one pass.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernlib/statistics.h"
#include "kernlib/statistics_formats.h"
#include "kernlib/statistics_tally.h"
#include "kernlib/statistics_walk.h"

namespace kernlib {

// Counts a block without widening it; 8 bits would not do.
template <typename Bits>
using Counter = std::conditional_t<sizeof(Bits) == 1, uint16_t, std::make_unsigned_t<Bits>>;
static_assert(kBlock <= std::numeric_limits<uint16_t>::max());

// A block that is supposed to be calm: finite, and its sum no danger. If the keys say otherwise
// afterwards, they alone mean anything.
template <typename Format>
KERNLIB_ALWAYS Tally<Format> tally_calm(const typename Format::Bits* elements, int64_t count) {
  Tally<Format> tally;
  Counter<typename Format::Bits> zeros = 0;
  decltype(Format::term(0)) sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const auto x = elements[i];
    const auto key = Format::key(x);
    tally.lowest = key < tally.lowest ? key : tally.lowest;
    tally.highest = key > tally.highest ? key : tally.highest;
    zeros += Format::is_zero(x);
    sum += Format::term(x);
  }
  tally.count = count;
  tally.zeros = zeros;
  tally.sum = static_cast<double>(sum);
  return tally;
}

// Any block of bytes: each of the 256 values is looked at once.
template <typename Format>
KERNLIB_ALWAYS Tally<Format> tally_bytes(const uint8_t* elements, int64_t count) {
  constexpr int kTables = 4;  // counting equal bytes in a row in one table would wait for it
  uint16_t counts[kTables][256] = {};
  int64_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (int table = 0; table < kTables; ++table) ++counts[table][elements[i + table]];
  }
  for (; i < count; ++i) ++counts[0][elements[i]];
  Tally<Format> tally;
  for (int value = 0; value < 256; ++value) {
    int64_t seen = 0;
    for (const auto& table : counts) seen += table[value];
    if (seen == 0) continue;
    const auto x = static_cast<uint8_t>(value);
    tally.nans += Format::is_nan(x) * seen;
    tally.infinities += Format::is_infinite(x) * seen;
    tally.zeros += Format::is_zero(x) * seen;
    if (Format::is_nan(x) || Format::is_infinite(x)) continue;
    tally.lowest = std::min(tally.lowest, Format::key(x));
    tally.highest = std::max(tally.highest, Format::key(x));
    tally.sum += static_cast<double>(Format::term(x)) * static_cast<double>(seen);
  }
  tally.count = count;
  return tally;
}

// Any block.
template <typename Format>
KERNLIB_ALWAYS Tally<Format> tally_any(const typename Format::Bits* elements, int64_t count) {
  using Key = typename Format::Key;
  constexpr Key kMost = std::numeric_limits<Key>::max(),
                kLeast = std::numeric_limits<Key>::lowest();
  Tally<Format> tally;
  Counter<typename Format::Bits> nans = 0, infinities = 0, zeros = 0;
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const auto x = elements[i];
    const bool nan = Format::is_nan(x), infinite = Format::is_infinite(x);
    const bool finite = !nan & !infinite;
    const Key low = finite ? Format::key(x) : kMost, high = finite ? Format::key(x) : kLeast;
    tally.lowest = low < tally.lowest ? low : tally.lowest;
    tally.highest = high > tally.highest ? high : tally.highest;
    nans += nan;
    infinities += infinite;
    zeros += Format::is_zero(x);
    sum += finite ? static_cast<double>(Format::term(x)) : 0.0;
  }
  tally.count = count;
  tally.nans = nans;
  tally.infinities = infinities;
  tally.zeros = zeros;
  tally.sum = sum;
  return tally;
}

template <typename T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <typename T, int kBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

// A block of floats that is supposed to be calm, added up in float32 for a while; the sum is right
// to 3e-7 of that of the magnitudes. Left to itself a compiler widens small floats by shuffles,
// where a word of several need only be shifted and masked, and float32 to double.
template <typename Format, int kBytes>
KERNLIB_ALWAYS Tally<Format> tally_vectors(const typename Format::Bits* elements, int64_t count) {
  using Bits = typename Format::Bits;
  using Key = typename Format::Key;
  using Unsigned = Vector<Bits, kBytes>;
  using Signed = Vector<Key, kBytes>;
  using Words = Vector<uint32_t, kBytes>;
  using SignedWords = Vector<int32_t, kBytes>;
  using Floats = Vector<float, kBytes>;
  constexpr int kWidth = 8 * sizeof(Bits), kParts = 32 / kWidth;
  constexpr int kLanes = kBytes / sizeof(Bits), kSums = kBytes / sizeof(float);
  // The sum of two small floats is nearly always exact in float32. 8 bits count to less than 256.
  constexpr int64_t kRun = kParts == 1 ? 8 * kLanes : kParts == 2 ? kBlock : 128 * kLanes;
  Signed most = Signed{} + std::numeric_limits<Key>::lowest();
  Unsigned largest = {}, smallest = ~Unsigned{}, zeros = {};
  int64_t all_zeros = 0;
  double sums[kSums] = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole;) {
    const int64_t end = std::min(whole, i + kRun);
    Floats parts[kParts] = {};
    for (; i < end; i += kLanes) {
      Unsigned x;
      std::memcpy(&x, elements + i, kBytes);
      most = (Signed)x > most ? (Signed)x : most;
      largest = x > largest ? x : largest;
      smallest = x < smallest ? x : smallest;
      zeros -= (Unsigned)((x & Format::kMagnitude) == 0);
      for (int part = 0; part < kParts; ++part) {
        const SignedWords upper = (SignedWords)((Words)x << (32 - kWidth * (part + 1)));
        parts[part] += (Floats)((Words)(upper >> Format::kShift) & Format::kMask);
      }
    }
    for (int part = 0; part < kParts; ++part) {
      float lanes[kSums];
      std::memcpy(lanes, &parts[part], kBytes);
      for (int lane = 0; lane < kSums; ++lane) sums[lane] += lanes[lane];
    }
    if (i < whole && kParts != 4) continue;
    for (int lane = 0; lane < kLanes; ++lane) all_zeros += zeros[lane];
    zeros = Unsigned{};
  }
  Tally<Format> tally = tally_calm<Format>(elements + whole, count - whole);
  for (int lane = 0; whole > 0 && lane < kLanes; ++lane) {
    // Among bits with a sign the largest are the lowest numbers; without one, as among integers.
    const bool negative = static_cast<Key>(largest[lane]) < 0;
    const Bits lowest = negative ? largest[lane] : smallest[lane];
    const Bits highest = most[lane] >= 0 ? most[lane] : smallest[lane];
    tally.lowest = std::min(tally.lowest, Format::key(lowest));
    tally.highest = std::max(tally.highest, Format::key(highest));
  }
  for (const double sum : sums) tally.sum += sum;
  tally.zeros += all_zeros;
  tally.count = count;
  return tally;
}

// A block; `calm` says of the last one whether it was, and of the next one whether to suppose so.
template <typename Format, int kVectorBytes>
KERNLIB_ALWAYS Tally<Format> tally_block(const typename Format::Bits* elements, int64_t count,
                                         bool& calm) {
  if constexpr (Format::kCounted) {
    return tally_bytes<Format>(elements, count);
  } else if constexpr (Format::kAllFinite) {
    return tally_calm<Format>(elements, count);
  } else {
    Tally<Format> block;
    if (calm) {
      if constexpr (Format::kInFloat32) {
        block = tally_vectors<Format, kVectorBytes>(elements, count);
      } else {
        block = tally_calm<Format>(elements, count);
      }
      if (Format::calm(block.lowest, block.highest)) return block;
    }
    if constexpr (sizeof(typename Format::Bits) == 1) {
      block = tally_bytes<Format>(elements, count);
    } else {
      block = tally_any<Format>(elements, count);
    }
    calm = block.nans + block.infinities == 0 && Format::calm(block.lowest, block.highest);
    return block;
  }
}

// The elements `begin` to `end` of a walk.
template <typename Format, int kVectorBytes>
KERNLIB_ALWAYS Tally<Format> tally_range(const Walk& walk, int64_t begin, int64_t end) {
  using Bits = typename Format::Bits;
  Reader<Bits> reader(walk, begin, end);
  Tally<Format> total;
  bool calm = true;
  const Bits* elements;
  while (const int64_t count = reader.next(&elements)) {
    total.add(tally_block<Format, kVectorBytes>(elements, count, calm));
  }
  return total;
}

}  // namespace kernlib
