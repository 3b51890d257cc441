// Checks, then calls. kernlib's headers are found without being asked for.

#include "gather.h"

#include <tvm/ffi/function.h>

#include "common/checks.h"

namespace example {
namespace {

namespace check = kernlib::check;
using tvm::ffi::TensorView;

constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt64{kDLInt, 64, 1};

template <typename T>
T* dense(const check::Arg& arg, DLDataType dtype, int dims, const char* layout) {
  check::runs_here(arg);
  check::dtype_is(arg, dtype);
  check::dims(arg, dims, layout);
  if (!arg.view.IsContiguous()) check::value_error({arg.name, " has gaps"});
  return static_cast<T*>(arg.view.data_ptr());
}

void gather_rows(TensorView out, TensorView table, TensorView rows) {
  const float* from = dense<const float>(KERNLIB_ARG(table), kFloat32, 2, "[size, width]");
  const int64_t* which = dense<const int64_t>(KERNLIB_ARG(rows), kInt64, 1, "[count]");
  float* to = dense<float>(KERNLIB_ARG(out), kFloat32, 2, "[count, width]");
  gather(from, which, to, rows.size(0), table.size(1));
}

}  // namespace
}  // namespace example

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gather, example::gather_rows);
