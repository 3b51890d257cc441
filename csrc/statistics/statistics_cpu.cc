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
  *out = statistics_of(tallies[0], walk.repeats, task.ticket);
}

}  // namespace

int launch_statistics(const StatisticsTask& task, Statistics* out, void*) {
  const bool known =
      format::dispatch(task.element, [&](auto format) { run<decltype(format)>(task, out); });
  return known ? kSuccess : kUnsupportedDType;
}

}  // namespace kernlib
