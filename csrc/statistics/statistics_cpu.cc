// CPU instantiations of the statistics, for several instruction sets.

#include "kernlib/statistics_cpu.h"

#include <cfenv>

#include "kernlib/backend.h"
#include "statistics/team.h"

namespace kernlib {
namespace {

template <typename Format>
using TallyRange = Tally<Format> (*)(const Walk&, int64_t, int64_t);

template <typename Format>
Tally<Format> tally_baseline(const Walk& walk, int64_t begin, int64_t end) {
  return tally_range<Format, 16>(walk, begin, end);
}

#ifdef __x86_64__

#ifdef __clang__
#define KERNLIB_AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define KERNLIB_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

template <typename Format>
__attribute__((target("avx2"))) Tally<Format> tally_avx2(const Walk& walk, int64_t begin,
                                                         int64_t end) {
  return tally_range<Format, 32>(walk, begin, end);
}

template <typename Format>
__attribute__((target(KERNLIB_AVX512))) Tally<Format> tally_avx512(const Walk& walk, int64_t begin,
                                                                   int64_t end) {
  return tally_range<Format, 64>(walk, begin, end);
}

int widest_vector() {
  static const int bytes = [] {
    if (!__builtin_cpu_supports("avx2")) return 16;
    const bool wider = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wider ? 64 : 32;
  }();
  return bytes;
}

template <typename Format>
TallyRange<Format> best(int vector_bytes) {
  const int bytes = std::min(vector_bytes, widest_vector());
  return bytes >= 64   ? tally_avx512<Format>
         : bytes >= 32 ? tally_avx2<Format>
                       : tally_baseline<Format>;
}

#else

template <typename Format>
TallyRange<Format> best(int) {
  return tally_baseline<Format>;
}

#endif

// Rounding to nearest and no flushing of subnormals, whatever the process has set for itself.
class DefaultFloats {
 public:
#ifdef __x86_64__  // <cfenv> would save and restore the x87 unit as well, at many times the cost
  DefaultFloats() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(0x1f80); }
  ~DefaultFloats() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
#else
  DefaultFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
#endif
};

int64_t stored(double value) { return format::bit_cast<int64_t>(value + 0.0); }  // no minus zero
int64_t stored(int64_t value) { return value; }

template <typename Format>
Statistics statistics_of(const Tally<Format>& tally, int64_t repeats) {
  const int64_t finite = tally.count - tally.nans - tally.infinities;
  Statistics result{0,
                    0,
                    0.0,
                    finite * repeats,
                    tally.nans * repeats,
                    tally.infinities * repeats,
                    tally.zeros * repeats};
  if (finite > 0) {
    result.lowest = stored(Format::value(tally.lowest));
    result.highest = stored(Format::value(tally.highest));
    result.mean = tally.sum / static_cast<double>(finite) * Format::kScale;
  }
  return result;
}

// The work of a thread below this is not worth waking it.
constexpr int64_t kLeastBytes = 256 << 10;

template <typename Format>
void run(const StatisticsTask& task, Statistics* out) {
  const Walk walk = walk_of(task);
  const TallyRange<Format> tally_part = best<Format>(task.vector_bytes);
  const int64_t bytes = walk.count * static_cast<int64_t>(sizeof(typename Format::Bits));
  const int parts = team_size(
      static_cast<int>(std::min<int64_t>({task.threads, kMostParts, bytes / kLeastBytes})));
  Tally<Format> tallies[kMostParts];
  in_team(parts, [&](int part) {
    const DefaultFloats floats;
    tallies[part] = tally_part(walk, walk.count * part / parts, walk.count * (part + 1) / parts);
  });
  for (int part = 1; part < parts; ++part) tallies[0].add(tallies[part]);
  const DefaultFloats floats;
  *out = statistics_of(tallies[0], walk.repeats);
}

}  // namespace

int launch_statistics(const StatisticsTask& task, Statistics* out, void*) {
  using namespace format;
  switch (task.element) {
    case Element::kFloat64:
      run<Float64>(task, out);
      break;
    case Element::kFloat32:
      run<Float32>(task, out);
      break;
    case Element::kFloat16:
      run<Float16>(task, out);
      break;
    case Element::kBFloat16:
      run<BFloat16>(task, out);
      break;
    case Element::kFloat8E4M3FN:
      run<Float8E4M3FN>(task, out);
      break;
    case Element::kFloat8E4M3FNUZ:
      run<Float8E4M3FNUZ>(task, out);
      break;
    case Element::kFloat8E5M2:
      run<Float8E5M2>(task, out);
      break;
    case Element::kFloat8E5M2FNUZ:
      run<Float8E5M2FNUZ>(task, out);
      break;
    case Element::kFloat8E8M0FNU:
      run<Float8E8M0FNU>(task, out);
      break;
    case Element::kInt8:
      run<Integer<int8_t>>(task, out);
      break;
    case Element::kInt16:
      run<Integer<int16_t>>(task, out);
      break;
    case Element::kInt32:
      run<Integer<int32_t>>(task, out);
      break;
    case Element::kInt64:
      run<Integer<int64_t>>(task, out);
      break;
    case Element::kUInt8:
      run<Integer<uint8_t>>(task, out);
      break;
    case Element::kUInt16:
      run<Integer<uint16_t>>(task, out);
      break;
    case Element::kUInt32:
      run<Integer<uint32_t>>(task, out);
      break;
    case Element::kUInt64:
      run<Integer<uint64_t>>(task, out);
      break;
    case Element::kBool:
      run<Bool>(task, out);
      break;
    default:
      return kUnsupportedDType;
  }
  return kSuccess;
}

}  // namespace kernlib
