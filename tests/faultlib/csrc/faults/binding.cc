// Checks and exports, for both backends. What would catch the planted faults is left out.

#include <tvm/ffi/function.h>

#include "common/checks.h"
#include "common/launching.h"
#include "faultlib/faults.h"

namespace faultlib {
namespace {

namespace check = kernlib::check;
using check::Arg;
using tvm::ffi::TensorView;

constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt64{kDLInt, 64, 1};

// A tensor without gaps, on this library's kind of device.
template <typename T>
T* dense(const Arg& arg, DLDataType dtype, int dims, const char* layout) {
  check::runs_here(arg);
  check::dtype_is(arg, dtype);
  check::dims(arg, dims, layout);
  if (!arg.view.IsContiguous()) check::value_error({arg.name, " has gaps"});
  return static_cast<T*>(arg.view.data_ptr());
}

template <typename Task>
void launch_each(const Arg& arg, const char* name, const Task& task) {
  if (task.count == 0) return;
  kernlib::launch_on(arg, name, [&](void* stream) { return launch(task, stream); });
}

void take_rows(TensorView out, TensorView pool, TensorView pages, double scale) {
  const Arg pool_arg = KERNLIB_ARG(pool), pages_arg = KERNLIB_ARG(pages);
  const TakeRows task{dense<const float>(pool_arg, kFloat32, 2, "[rows, width]"),
                      dense<const int64_t>(pages_arg, kInt64, 1, "[count]"),
                      dense<float>(KERNLIB_ARG(out), kFloat32, 2, "[count, width]"),
                      out.numel(),
                      pool.size(1),
                      static_cast<float>(scale)};
  launch_each(pool_arg, "take_rows", task);
}

void put(TensorView out, TensorView slots, TensorView values) {
  const Arg values_arg = KERNLIB_ARG(values), slots_arg = KERNLIB_ARG(slots);
  const Put task{dense<const float>(values_arg, kFloat32, 1, "[count]"),
                 dense<const int64_t>(slots_arg, kInt64, 1, "[count]"),
                 dense<float>(KERNLIB_ARG(out), kFloat32, 1, "[size]"), values.numel()};
  check::same_size(slots_arg, 0, values_arg, 0);
  launch_each(values_arg, "put", task);
}

void look_back(TensorView out, TensorView x, TensorView back) {
  const Arg x_arg = KERNLIB_ARG(x), back_arg = KERNLIB_ARG(back);
  const LookBack task{dense<const float>(x_arg, kFloat32, 1, "[count]"),
                      dense<const int64_t>(back_arg, kInt64, 1, "[count]"),
                      dense<float>(KERNLIB_ARG(out), kFloat32, 1, "[count]"), x.numel()};
  check::same_size(back_arg, 0, x_arg, 0);
  launch_each(x_arg, "look_back", task);
}

void sum_rows(TensorView out, TensorView x, int64_t row_stride) {
  const Arg x_arg = KERNLIB_ARG(x);
  const SumRows task{dense<const float>(x_arg, kFloat32, 2, "[rows, width]"),
                     dense<float>(KERNLIB_ARG(out), kFloat32, 1, "[rows]"), x.size(0), x.size(1),
                     row_stride};
  launch_each(x_arg, "sum_rows", task);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(take_rows, take_rows);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(put, put);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(look_back, look_back);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum_rows, sum_rows);

}  // namespace faultlib
