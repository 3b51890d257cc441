// Checks and export of the statistics, for both backends.

#include <tvm/ffi/function.h>

#include "common/checks.h"
#include "common/launching.h"
#include "kernlib/statistics.h"

namespace kernlib {
namespace {

using check::Arg;
using tvm::ffi::TensorView;

struct Row {
  DLDataType dtype;
  Element element;
};

constexpr Row kElements[] = {
    {{kDLFloat, 64, 1}, Element::kFloat64},
    {{kDLFloat, 32, 1}, Element::kFloat32},
    {{kDLFloat, 16, 1}, Element::kFloat16},
    {{kDLBfloat, 16, 1}, Element::kBFloat16},
    {{kDLFloat8_e4m3fn, 8, 1}, Element::kFloat8E4M3FN},
    {{kDLFloat8_e4m3fnuz, 8, 1}, Element::kFloat8E4M3FNUZ},
    {{kDLFloat8_e5m2, 8, 1}, Element::kFloat8E5M2},
    {{kDLFloat8_e5m2fnuz, 8, 1}, Element::kFloat8E5M2FNUZ},
    {{kDLFloat8_e8m0fnu, 8, 1}, Element::kFloat8E8M0FNU},
    {{kDLInt, 8, 1}, Element::kInt8},
    {{kDLInt, 16, 1}, Element::kInt16},
    {{kDLInt, 32, 1}, Element::kInt32},
    {{kDLInt, 64, 1}, Element::kInt64},
    {{kDLUInt, 8, 1}, Element::kUInt8},
    {{kDLUInt, 16, 1}, Element::kUInt16},
    {{kDLUInt, 32, 1}, Element::kUInt32},
    {{kDLUInt, 64, 1}, Element::kUInt64},
    {{kDLBool, 8, 1}, Element::kBool},
};

Element element_of(const Arg& arg) {
  for (const Row& row : kElements) {
    if (check::equal(row.dtype, arg.view.dtype())) return row.element;
  }
  check::type_error({arg.name, " is ", check::text(arg.view.dtype()),
                     ", but a real number of 8 to 64 bits is needed"});
}

// Has a `Statistics` with this ticket written to the address `out`, which the caller keeps alive
// until it is there: at once on the CPU, on a device in the order of the stream.
void statistics(TensorView x, void* out, int64_t ticket, int64_t slot, int64_t threads,
                int64_t vector_bytes) {
  const Arg x_arg = KERNLIB_ARG(x);
  check::runs_here(x_arg);
  const Element element = element_of(x_arg);
  if (x.ndim() > kMaxDims) {
    check::value_error(
        {"x has ", x.ndim(), " dimensions, but at most ", kMaxDims, " are supported"});
  }
  if (x.numel() == 0) check::value_error({"x is empty, but at least 1 element is needed"});
  if (slot < 0 || slot >= kStatisticsSlots) {
    check::value_error({"slot = ", slot, ", but there are ", kStatisticsSlots});
  }
  const StatisticsTask task{x.data_ptr(),
                            element,
                            x.ndim(),
                            x.shape().data(),
                            x.strides().data(),
                            ticket,
                            static_cast<int>(slot),
                            static_cast<int>(threads),
                            static_cast<int>(vector_bytes)};
  launch_on(x_arg, "statistics", [&](void* stream) {
    return launch_statistics(task, static_cast<Statistics*>(out), stream);
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(statistics, statistics);

}  // namespace kernlib
