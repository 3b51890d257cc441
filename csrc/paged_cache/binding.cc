// Checks and exports of the paged cache, for both backends.

#include <tvm/ffi/function.h>

#include "common/checks.h"
#include "common/launching.h"
#include "common/paged_checks.h"
#include "kernlib/paged_cache.h"

namespace kernlib {
namespace {

using check::Arg;
using tvm::ffi::TensorView;

// One of k and v: [tokens, num_kv_heads, head_dim].
void check_source(const Arg& source, const Arg& cache) {
  check::like(source, cache);
  check::dims(source, 3, "[tokens, num_kv_heads, head_dim]");
  check::same_size(source, 1, cache, 2);
  check::same_size(source, 2, cache, 4);
  check::dense_last(source);
}

void append_paged_kv(TensorView k, TensorView v, TensorView kv_cache, TensorView kv_indices,
                     TensorView kv_indptr, TensorView kv_last_page_len, TensorView batch_indices,
                     TensorView positions) {
  const Arg k_arg = KERNLIB_ARG(k), v_arg = KERNLIB_ARG(v), cache = KERNLIB_ARG(kv_cache);
  const Arg batch_arg = KERNLIB_ARG(batch_indices), positions_arg = KERNLIB_ARG(positions);
  check::float_dtype(cache);
  check::runs_here(cache);
  AppendPagedKv task{};
  task.layout = check::paged_layout(cache);
  check::writable(cache);
  check_source(k_arg, cache);
  check_source(v_arg, cache);
  check::same_size(v_arg, 0, k_arg, 0);
  task.table = check::page_table(KERNLIB_ARG(kv_indptr), KERNLIB_ARG(kv_indices),
                                 KERNLIB_ARG(kv_last_page_len), cache);
  task.batch_indices = check::indices(batch_arg, cache);
  task.positions = check::indices(positions_arg, cache);
  check::same_size(batch_arg, 0, k_arg, 0);
  check::same_size(positions_arg, 0, k_arg, 0);
  const TensorView sources[] = {k, v};
  for (int kind = 0; kind < 2; ++kind) {
    task.source[kind] = sources[kind].data_ptr();
    task.token_stride[kind] = sources[kind].stride(0);
    task.head_stride[kind] = sources[kind].stride(1);
  }
  task.cache = kv_cache.data_ptr();
  task.tokens = k.size(0);
  task.heads = k.size(1);
  task.head_dim = k.size(2);
  task.page_size = kv_cache.size(3);
  if (k.numel() == 0) return;
  launch_on(cache, "append_paged_kv", [&](void* stream) {
    return launch_append_paged_kv(task, kv_cache.dtype().bits / 8, stream);
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(append_paged_kv, append_paged_kv);

}  // namespace kernlib
