// Checks and exports of the norms, for both backends.

#include <tvm/ffi/function.h>

#include "common/checks.h"
#include "common/launching.h"
#include "kernlib/norm.h"

namespace kernlib {
namespace {

using check::Arg;
using tvm::ffi::TensorView;

// The checks that both norms share; returns the size of a row.
int64_t check_row_weight(const Arg& x, const Arg& weight) {
  check::runs_here(x);
  if (x.view.ndim() < 1) check::value_error({"x has 0 dimensions, but at least 1 is needed"});
  check::element_aligned(x);
  check::like(weight, x);
  check::dims(weight, 1, "[hidden]");
  check::same_size(weight, 0, x, x.view.ndim() - 1);
  check::dense_last(weight);
  return x.view.size(-1);
}

void rms_norm(TensorView out, TensorView x, TensorView weight, double eps) {
  const Arg x_arg = KERNLIB_ARG(x), out_arg = KERNLIB_ARG(out);
  const DType dtype = check::float_dtype(x_arg);
  const int64_t hidden = check_row_weight(x_arg, KERNLIB_ARG(weight));
  check::like(out_arg, x_arg);
  check::same_shape(out_arg, x_arg);
  check::writable(out_arg);
  const RmsNorm task{x.data_ptr(),           out.data_ptr(),       weight.data_ptr(),
                     check::rows(x_arg),     check::rows(out_arg), hidden,
                     static_cast<float>(eps)};
  if (x.numel() == 0) return;
  launch_on(x_arg, "rms_norm", [&](void* stream) { return launch_rms_norm(task, dtype, stream); });
}

void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, double eps) {
  const Arg x_arg = KERNLIB_ARG(x), residual_arg = KERNLIB_ARG(residual);
  const DType dtype = check::float_dtype(x_arg);
  const int64_t hidden = check_row_weight(x_arg, KERNLIB_ARG(weight));
  check::like(residual_arg, x_arg);
  check::same_shape(residual_arg, x_arg);
  check::writable(x_arg);
  check::writable(residual_arg);
  const FusedAddRmsNorm task{x.data_ptr(),           residual.data_ptr(),       weight.data_ptr(),
                             check::rows(x_arg),     check::rows(residual_arg), hidden,
                             static_cast<float>(eps)};
  if (x.numel() == 0) return;
  if (x.data_ptr() == residual.data_ptr()) {
    check::value_error({"x and residual share memory, but each is written its own result"});
  }
  launch_on(x_arg, "fused_add_rms_norm_",
            [&](void* stream) { return launch_fused_add_rms_norm(task, dtype, stream); });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rms_norm, rms_norm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fused_add_rms_norm, fused_add_rms_norm);

}  // namespace kernlib
