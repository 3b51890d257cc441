// CUDA instantiations of the statistics.

#include <algorithm>

#include "kernlib/backend.h"
#include "kernlib/statistics.cuh"

namespace kernlib {
namespace {

constexpr int64_t kLongestSegment = 16 << 10;                          // bytes
constexpr int64_t kShortestSegment = kVectors * kVectorBytes * kWarp;  // what a warp loads at once

__device__ Accumulator accumulators[kStatisticsSlots];

int64_t power_of_two_below(int64_t value, int64_t limit) {
  int64_t power = 1;
  while (2 * power <= value && 2 * power <= limit) power *= 2;
  return power;
}

// Cuts a walk so that all multiprocessors have work, if there is enough of it.
Segments segments_of(const Walk& walk, int64_t element, int64_t multiprocessors) {
  const int64_t groups = multiprocessors * kBlocksEach * kMaxThreads / kWarp;
  const int64_t share = walk.count * element / groups / kShortestSegment * kShortestSegment;
  const int64_t bytes = std::clamp(share, kShortestSegment, kLongestSegment);
  Segments segments{walk};
  segments.length = bytes / element;
  segments.per_row = (walk.sizes[0] + segments.length - 1) / segments.length;
  segments.count = walk.count / walk.sizes[0] * segments.per_row;
  const int64_t run = std::min(walk.sizes[0], segments.length);
  const int64_t loads = walk.strides[0] == 1 ? run * element / kVectorBytes : run;
  segments.lanes = static_cast<int>(power_of_two_below(loads, kWarp));
  return segments;
}

int accumulator_of(int slot, Accumulator** accumulator) {
  void* first = nullptr;
  const cudaError_t code = cudaGetSymbolAddress(&first, accumulators);
  *accumulator = static_cast<Accumulator*>(first) + slot;
  return code;
}

int multiprocessors_here(int* count) {
  int device = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) return code;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

template <typename Format>
int run(const StatisticsTask& task, Statistics* out, void* stream) {
  int multiprocessors = 0;
  Accumulator* accumulator = nullptr;
  if (const int code = multiprocessors_here(&multiprocessors)) return code;
  if (const int code = accumulator_of(task.slot, &accumulator)) return code;
  const Segments segments =
      segments_of(walk_of(task), sizeof(typename Format::Bits), multiprocessors);
  const int64_t threads = segments.count * segments.lanes;
  const int64_t blocks = std::min<int64_t>((threads + kMaxThreads - 1) / kMaxThreads,
                                           static_cast<int64_t>(multiprocessors) * kBlocksEach);
  return launch(statistics_kernel<Format>, dim3(static_cast<unsigned>(blocks)), dim3(kMaxThreads),
                stream, segments, accumulator, task.ticket, out);
}

}  // namespace

int launch_statistics(const StatisticsTask& task, Statistics* out, void* stream) {
  int code = kUnsupportedDType;
  format::dispatch(task.element,
                   [&](auto format) { code = run<decltype(format)>(task, out, stream); });
  return code;
}

}  // namespace kernlib
