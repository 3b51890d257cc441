// Checks and exports of paged decoding, for both backends.

#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include "common/checks.h"
#include "common/launching.h"
#include "common/paged_checks.h"
#include "kernlib/paged_decode.h"
#include "paged_decode_params.h"

namespace kernlib {
namespace {

using check::Arg;
using tvm::ffi::Optional;
using tvm::ffi::TensorView;

// q and out: [batch, num_qo_heads, head_dim], of this kernel's head size.
void check_heads(const Arg& arg, int64_t num_qo_heads) {
  check::dims(arg, 3, "[batch, num_qo_heads, head_dim]");
  check::size_is(arg, 1, num_qo_heads, "num_qo_heads");
  check::size_is(arg, 2, kHeadDim, "head_dim");
  check::dense_last(arg);
}

void check_out(const Arg& out, const Arg& q) {
  check::like(out, q);
  check::same_shape(out, q);
  check::dense_last(out);
  check::writable(out);
}

float* check_lse(const Arg& lse, const Arg& q) {
  check::same_device(lse, q);
  check::dtype_is(lse, DLDataType{kDLFloat, 32, 1});
  check::dims(lse, 2, "[batch, num_qo_heads]");
  check::same_size(lse, 0, q, 0);
  check::same_size(lse, 1, q, 1);
  if (!lse.view.IsContiguous()) check::value_error({"lse is not contiguous, but must be"});
  return static_cast<float*>(lse.view.data_ptr());
}

// What a plan can know: that the lists are lists, and live where this kernel runs.
void check_page_table(TensorView kv_indptr, TensorView kv_indices, TensorView kv_last_page_len) {
  const Arg indptr = KERNLIB_ARG(kv_indptr);
  check::runs_here(indptr);
  check::page_table(indptr, KERNLIB_ARG(kv_indices), KERNLIB_ARG(kv_last_page_len), indptr);
}

void check_groups(int64_t num_qo_heads, int64_t num_kv_heads) {
  if (num_kv_heads > 0 && num_qo_heads % num_kv_heads == 0) return;
  check::value_error(
      {"num_qo_heads = ", num_qo_heads, " is not a multiple of num_kv_heads = ", num_kv_heads});
}

void paged_decode(TensorView out, Optional<TensorView> lse, TensorView q, TensorView kv_cache,
                  TensorView kv_indptr, TensorView kv_indices, TensorView kv_last_page_len,
                  int64_t num_qo_heads, int64_t num_kv_heads, int64_t page_size, double sm_scale) {
  const Arg q_arg = KERNLIB_ARG(q), cache = KERNLIB_ARG(kv_cache), out_arg = KERNLIB_ARG(out);
  const Arg indptr = KERNLIB_ARG(kv_indptr);
  const DType dtype = check::float_dtype(q_arg);
  check::runs_here(q_arg);
  check::element_aligned(q_arg);
  check_groups(num_qo_heads, num_kv_heads);
  check_heads(q_arg, num_qo_heads);
  check_out(out_arg, q_arg);
  check::like(cache, q_arg);
  PagedDecode task{};
  task.layout = check::paged_layout(cache);
  check::size_is(cache, 2, num_kv_heads, "num_kv_heads");
  check::size_is(cache, 3, page_size, "page_size");
  check::size_is(cache, 4, kHeadDim, "head_dim");
  const Arg last_page_len = KERNLIB_ARG(kv_last_page_len);
  task.table = check::page_table(indptr, KERNLIB_ARG(kv_indices), last_page_len, q_arg);
  check::same_size(last_page_len, 0, q_arg, 0);
  if (lse.has_value()) task.lse = check_lse(Arg{"lse", lse.value()}, q_arg);
  task.q = q.data_ptr();
  task.cache = kv_cache.data_ptr();
  task.out = out.data_ptr();
  for (int dim = 0; dim < 2; ++dim) {
    task.q_stride[dim] = q.stride(dim);
    task.out_stride[dim] = out.stride(dim);
  }
  task.batch = q.size(0);
  task.num_qo_heads = num_qo_heads;
  task.group = num_qo_heads / num_kv_heads;
  task.page_size = page_size;
  task.scale = static_cast<float>(sm_scale);
  if (q.numel() == 0) return;
  launch_on(q_arg, "PagedDecode.run",
            [&](void* stream) { return launch_paged_decode(task, dtype, stream); });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_decode, paged_decode);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(check_page_table, check_page_table);

}  // namespace kernlib
