// Checks and exports of the planted faults, for both backends. What would catch them is left out.

#include <tvm/ffi/function.h>

#include "common/checks.h"
#include "common/launching.h"
#include "kernlib/selftest.h"

namespace kernlib::selftest {
namespace {

using check::Arg;
using tvm::ffi::TensorView;

constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};
constexpr DLDataType kInt64{kDLInt, 64, 1};
constexpr int64_t kRaceCount = 64;  // one block of two warps

// A list without gaps.
template <typename T>
T* list(const Arg& arg, DLDataType dtype) {
  check::dtype_is(arg, dtype);
  check::dims(arg, 1, "a list");
  check::dense_last(arg);
  return static_cast<T*>(arg.view.data_ptr());
}

// A list of floats on the kind of device that the kernels were built for.
template <typename T>
T* floats(const Arg& arg) {
  check::runs_here(arg);
  return list<T>(arg, kFloat32);
}

template <typename Task>
void launch_each(const Arg& arg, const char* name, const Task& task) {
  if (task.count == 0) return;
  launch_on(arg, name, [&](void* stream) { return launch(task, stream); });
}

void read_out_of_bounds(TensorView out, TensorView pool, TensorView indices) {
  const Arg pool_arg = KERNLIB_ARG(pool), indices_arg = KERNLIB_ARG(indices);
  check::same_device(indices_arg, pool_arg);
  const ReadOutOfBounds task{floats<const float>(pool_arg),
                             list<const int64_t>(indices_arg, kInt64),
                             floats<float>(KERNLIB_ARG(out)), out.numel()};
  launch_each(pool_arg, "read_out_of_bounds", task);
}

void write_out_of_bounds(TensorView out, TensorView indices, TensorView values) {
  const Arg out_arg = KERNLIB_ARG(out), indices_arg = KERNLIB_ARG(indices);
  check::same_device(indices_arg, out_arg);
  check::same_size(KERNLIB_ARG(values), 0, indices_arg, 0);
  const WriteOutOfBounds task{floats<const float>(KERNLIB_ARG(values)),
                              list<const int64_t>(indices_arg, kInt64), floats<float>(out_arg),
                              values.numel()};
  launch_each(out_arg, "write_out_of_bounds", task);
}

void off_by_one(TensorView out, TensorView x, bool guarded) {
  const Arg x_arg = KERNLIB_ARG(x);
  const OffByOne task{floats<const float>(x_arg), floats<float>(KERNLIB_ARG(out)), x.numel(),
                      guarded};
  launch_each(x_arg, "off_by_one", task);
}

void misalignment(TensorView out, TensorView x) {
  const Arg x_arg = KERNLIB_ARG(x), out_arg = KERNLIB_ARG(out);
  const Misalignment task{reinterpret_cast<const Pair*>(floats<const float>(x_arg)),
                          floats<float>(out_arg), out.numel()};
  launch_each(x_arg, "misalignment", task);
}

void assertion(TensorView out, TensorView pool, TensorView indices) {
  const Arg pool_arg = KERNLIB_ARG(pool), indices_arg = KERNLIB_ARG(indices);
  check::same_device(indices_arg, pool_arg);
  const Assertion task{floats<const float>(pool_arg), list<const int64_t>(indices_arg, kInt64),
                       floats<float>(KERNLIB_ARG(out)), out.numel(), pool.numel()};
  launch_each(pool_arg, "assertion", task);
}

void race(TensorView out, TensorView x, bool guarded) {
  const Arg x_arg = KERNLIB_ARG(x);
  check::size_is(x_arg, 0, kRaceCount, "a block");
  const Race task{floats<const float>(x_arg), floats<float>(KERNLIB_ARG(out)), x.numel(), guarded};
  launch_each(x_arg, "race", task);
}

void hang(TensorView out, TensorView x, int64_t step) {
  const Arg x_arg = KERNLIB_ARG(x);
  const Hang task{floats<const float>(x_arg), floats<float>(KERNLIB_ARG(out)), x.numel(), step};
  launch_each(x_arg, "hang", task);
}

void not_a_number(TensorView out, TensorView x, TensorView scale) {
  const Arg x_arg = KERNLIB_ARG(x), scale_arg = KERNLIB_ARG(scale);
  check::same_size(scale_arg, 0, x_arg, 0);
  const NotANumber task{floats<const float>(x_arg), floats<const float>(scale_arg),
                        floats<float>(KERNLIB_ARG(out)), x.numel()};
  launch_each(x_arg, "not_a_number", task);
}

void int32_overflow(TensorView out, TensorView table, TensorView ids, int64_t scale) {
  const Arg table_arg = KERNLIB_ARG(table), ids_arg = KERNLIB_ARG(ids);
  check::same_device(ids_arg, table_arg);
  const Int32Overflow task{floats<const float>(table_arg), list<const int32_t>(ids_arg, kInt32),
                           floats<float>(KERNLIB_ARG(out)), out.numel(),
                           static_cast<int32_t>(scale)};
  launch_each(table_arg, "int32_overflow", task);
}

void stale_workspace(TensorView out, TensorView x, TensorView workspace, bool guarded) {
  const Arg x_arg = KERNLIB_ARG(x), workspace_arg = KERNLIB_ARG(workspace);
  check::same_size(workspace_arg, 0, x_arg, 0);
  const StaleWorkspace task{floats<const float>(x_arg), floats<float>(workspace_arg),
                            floats<float>(KERNLIB_ARG(out)), x.numel(), guarded};
  launch_each(x_arg, "stale_workspace", task);
}

// The kind of device is checked by the caller, which device of a kind by nobody.
void add_bias(TensorView out, TensorView x, TensorView bias) {
  const Arg x_arg = KERNLIB_ARG(x), bias_arg = KERNLIB_ARG(bias);
  check::same_size(bias_arg, 0, x_arg, 0);
  const AddBias task{floats<const float>(x_arg), floats<const float>(bias_arg),
                     floats<float>(KERNLIB_ARG(out)), x.numel()};
  launch_each(x_arg, "add_bias", task);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_out_of_bounds, read_out_of_bounds);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(write_out_of_bounds, write_out_of_bounds);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(off_by_one, off_by_one);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(misalignment, misalignment);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(assertion, assertion);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(race, race);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(hang, hang);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(not_a_number, not_a_number);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(int32_overflow, int32_overflow);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stale_workspace, stale_workspace);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_bias, add_bias);

}  // namespace kernlib::selftest
