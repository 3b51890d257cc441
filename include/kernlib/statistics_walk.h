// The elements of a strided view in the order of memory, a block at a time.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernlib/statistics.h"

namespace kernlib {

// Elements that are looked at together: few enough to stay in the first cache.
constexpr int64_t kBlock = 8192;

// The dimensions of a view, the smallest stride first, neighbours joined where they are one.
struct Walk {
  const char* data;
  int dims = 0;
  int64_t sizes[kMaxDims + 1];
  int64_t strides[kMaxDims + 1];
  int64_t count = 1;    // elements that lie apart
  int64_t repeats = 1;  // how often each of them is in the view
};

inline Walk walk_of(const StatisticsTask& task) {
  Walk walk{static_cast<const char*>(task.data)};
  for (int dim = 0; dim < task.dims; ++dim) {
    const int64_t size = task.sizes[dim], stride = task.strides[dim];
    if (size == 1) continue;
    if (stride == 0) {
      walk.repeats *= size;
      continue;
    }
    int at = walk.dims++;
    for (; at > 0 && walk.strides[at - 1] > stride; --at) {
      walk.sizes[at] = walk.sizes[at - 1], walk.strides[at] = walk.strides[at - 1];
    }
    walk.sizes[at] = size, walk.strides[at] = stride;
    walk.count *= size;
  }
  int last = 0;
  for (int dim = 1; dim < walk.dims; ++dim) {
    if (walk.strides[dim] == walk.sizes[last] * walk.strides[last]) {
      walk.sizes[last] *= walk.sizes[dim];
    } else {
      ++last;
      walk.sizes[last] = walk.sizes[dim], walk.strides[last] = walk.strides[dim];
    }
  }
  if (walk.dims == 0) walk.sizes[0] = walk.strides[0] = 1;
  walk.dims = last + 1;
  return walk;
}

// Hands out the elements `begin` to `end` of a walk: long runs where they are, others gathered.
template <typename Bits>
class Reader {
 public:
  Reader(const Walk& walk, int64_t begin, int64_t end) : walk_(walk), left_(end - begin) {
    in_place_ = walk.strides[0] == 1 && walk.sizes[0] >= kLongRun &&
                reinterpret_cast<uintptr_t>(walk.data) % sizeof(Bits) == 0;
    at_ = walk.data;
    for (int dim = 0; dim < walk.dims; ++dim) {
      index_[dim] = begin % walk.sizes[dim];
      at_ += index_[dim] * walk.strides[dim] * kElement;
      begin /= walk.sizes[dim];
    }
  }

  // Returns how many elements there are at `*elements`; zero at the end.
  int64_t next(const Bits** elements) {
    if (left_ == 0) return 0;
    const int64_t run = std::min(run_left(), kBlock);
    if (in_place_ && (run >= kLongRun || run == left_)) {
      *elements = reinterpret_cast<const Bits*>(at_);
      advance(run);
      return run;
    }
    *elements = gathered_;
    return gather();
  }

 private:
  static constexpr int64_t kElement = sizeof(Bits);
  static constexpr int64_t kLongRun = 1024;

  int64_t run_left() const { return std::min(walk_.sizes[0] - index_[0], left_); }

  int64_t gather() {
    int64_t filled = 0;
    while (filled < kBlock && left_ > 0) {
      const int64_t run = std::min(run_left(), kBlock - filled), stride = walk_.strides[0];
      if (stride == 1) {
        std::memcpy(gathered_ + filled, at_, run * kElement);
      } else {
        for (int64_t i = 0; i < run; ++i) {
          std::memcpy(gathered_ + filled + i, at_ + i * stride * kElement, kElement);
        }
      }
      filled += run;
      advance(run);
    }
    return filled;
  }

  void advance(int64_t run) {
    left_ -= run;
    index_[0] += run;
    at_ += run * walk_.strides[0] * kElement;
    for (int dim = 0; dim + 1 < walk_.dims && index_[dim] == walk_.sizes[dim]; ++dim) {
      at_ += (walk_.strides[dim + 1] - walk_.sizes[dim] * walk_.strides[dim]) * kElement;
      index_[dim] = 0;
      ++index_[dim + 1];
    }
  }

  const Walk& walk_;
  const char* at_;
  int64_t left_;
  bool in_place_;
  int64_t index_[kMaxDims + 1];
  Bits gathered_[kBlock];
};

}  // namespace kernlib
