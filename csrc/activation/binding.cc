// Checks and exports of the gated activations, for both backends.

#include <tvm/ffi/function.h>

#include "common/checks.h"
#include "common/launching.h"
#include "kernlib/activation.h"

namespace kernlib {
namespace {

using check::Arg;
using tvm::ffi::TensorView;

void silu_and_mul(TensorView out, TensorView x) {
  const Arg x_arg = KERNLIB_ARG(x), out_arg = KERNLIB_ARG(out);
  const DType dtype = check::float_dtype(x_arg);
  check::runs_here(x_arg);
  check::element_aligned(x_arg);
  check::like(out_arg, x_arg);
  const int last = x.ndim() - 1;
  if (last < 0) check::value_error({"x has 0 dimensions, but at least 1 is needed"});
  if (x.size(last) % 2 != 0) {
    check::value_error(
        {"x.shape[", last, "] = ", x.size(last), ", but gate and up need an even size"});
  }
  check::dims(out_arg, x.ndim(), "x");
  for (int dim = 0; dim < last; ++dim) check::same_size(out_arg, dim, x_arg, dim);
  check::size_is(out_arg, last, x.size(last) / 2, "half of x's last dimension");
  check::writable(out_arg);
  const SiluAndMul task{x.data_ptr(), out.data_ptr(), check::rows(x_arg), check::rows(out_arg),
                        x.size(last) / 2};
  if (x.numel() == 0) return;
  launch_on(x_arg, "silu_and_mul",
            [&](void* stream) { return launch_silu_and_mul(task, dtype, stream); });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(silu_and_mul, silu_and_mul);

}  // namespace kernlib
