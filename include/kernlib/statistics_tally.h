// What is known of some elements of a tensor, and what is told of it.
#pragma once

#include <limits>

#include "kernlib/statistics.h"
#include "kernlib/statistics_formats.h"

namespace kernlib {

// What is known of some elements; keys are those of the format.
template <typename Format>
struct Tally {
  using Key = typename Format::Key;
  static constexpr Key kMost = std::numeric_limits<Key>::max();
  static constexpr Key kLeast = std::numeric_limits<Key>::lowest();
  Key lowest = kMost;
  Key highest = kLeast;
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

// What is written of the elements of a view, each of which is in it `repeats` times.
template <typename Format>
KERNLIB_ALWAYS Statistics statistics_of(const Tally<Format>& tally, int64_t repeats,
                                        int64_t ticket) {
  const int64_t finite = tally.count - tally.nans - tally.infinities;
  Statistics result{0,
                    0,
                    0.0,
                    finite * repeats,
                    tally.nans * repeats,
                    tally.infinities * repeats,
                    tally.zeros * repeats,
                    ticket};
  if (finite > 0) {
    result.lowest = format::stored(Format::value(tally.lowest));
    result.highest = format::stored(Format::value(tally.highest));
    result.mean = tally.sum / static_cast<double>(finite) * Format::kScale;
  }
  return result;
}

}  // namespace kernlib
