// Statistics of a tensor on the CPU, in one pass.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernlib/statistics.h"
#include "kernlib/statistics_formats.h"
#include "kernlib/statistics_walk.h"

namespace kernlib {

// What is known of some elements; keys are those of the format.
template <typename Format>
struct Tally {
  using Key = typename Format::Key;
  Key lowest = std::numeric_limits<Key>::max();
  Key highest = std::numeric_limits<Key>::lowest();
  int64_t count = 0, nans = 0, infinities = 0, zeros = 0;
  double sum = 0;  // of the finite elements, over Format::kScale

  KERNLIB_ALWAYS void add(const Tally& other) {
    lowest = other.lowest < lowest ? other.lowest : lowest;
    highest = other.highest > highest ? other.highest : highest;
    count += other.count;
    nans += other.nans;
    infinities += other.infinities;
    zeros += other.zeros;
    sum += other.sum;
  }
};

// Counts a block without widening it; 8 bits would not do.
template <typename Bits>
using Counter = std::conditional_t<sizeof(Bits) == 1, uint16_t, std::make_unsigned_t<Bits>>;
static_assert(kBlock <= std::numeric_limits<uint16_t>::max());

// A block that is supposed to be calm: finite, and its sum no danger. If the keys say otherwise
// afterwards, only they are right.
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

// A block of 16-bit floats that is supposed to be calm. Left to itself a compiler widens them with
// shuffles; here a word of two is shifted and masked.
template <typename Format, int kBytes>
KERNLIB_ALWAYS Tally<Format> tally_pairs(const uint16_t* elements, int64_t count) {
  using Halves = Vector<uint16_t, kBytes>;
  using Signed = Vector<int16_t, kBytes>;
  using Words = Vector<uint32_t, kBytes>;
  using SignedWords = Vector<int32_t, kBytes>;
  using Floats = Vector<float, kBytes>;
  constexpr int kLanes = kBytes / 2;
  Signed most = Signed{} + std::numeric_limits<int16_t>::lowest(), zeros = {};
  Halves largest = {}, smallest = ~Halves{};
  Floats even = {}, odd = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    Halves x;
    std::memcpy(&x, elements + i, kBytes);
    const Signed negative_below = (Signed)x;
    most = negative_below > most ? negative_below : most;
    largest = x > largest ? x : largest;
    smallest = x < smallest ? x : smallest;
    zeros -= (x & Format::kMagnitude) == 0;
    const Words word = (Words)x;
    even += (Floats)((Words)((SignedWords)(word << 16) >> Format::kShift) & Format::kMask);
    odd += (Floats)((Words)((SignedWords)word >> Format::kShift) & Format::kMask);
  }
  Tally<Format> tally = tally_calm<Format>(elements + whole, count - whole);
  for (int lane = 0; whole > 0 && lane < kLanes; ++lane) {
    // Among bits with a sign the largest are the lowest numbers; without one, as among integers.
    const uint16_t lowest = largest[lane] >> 15 ? largest[lane] : smallest[lane];
    const uint16_t highest = most[lane] >= 0 ? most[lane] : smallest[lane];
    tally.lowest = std::min(tally.lowest, Format::key(lowest));
    tally.highest = std::max(tally.highest, Format::key(highest));
    tally.zeros += zeros[lane];
  }
  for (int lane = 0; lane < kLanes / 2; ++lane) {
    tally.sum += static_cast<double>(even[lane]) + static_cast<double>(odd[lane]);
  }
  tally.count = count;
  return tally;
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
    Tally<Format> block;
    if (calm) {
      if constexpr (sizeof(Bits) == 2 && !Format::kAllFinite) {
        block = tally_pairs<Format, kVectorBytes>(elements, count);
      } else {
        block = tally_calm<Format>(elements, count);
      }
    }
    if constexpr (!Format::kAllFinite) {
      if (!calm || !Format::calm(block.lowest, block.highest)) {
        block = tally_any<Format>(elements, count);
        calm = block.nans + block.infinities == 0 && Format::calm(block.lowest, block.highest);
      }
    }
    total.add(block);
  }
  return total;
}

}  // namespace kernlib
