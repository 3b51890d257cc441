// CUDA instantiations of the norms.

#include <type_traits>

#include "kernlib/backend.h"
#include "kernlib/norm.cuh"

namespace kernlib {

int launch_rms_norm(const RmsNorm& task, DType dtype, void* stream) {
  int code = kUnsupportedDType;
  dispatch(dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const bool aligned = whole_words(task.x, task.x_rows, sizeof(T)) &&
                         whole_words(task.out, task.out_rows, sizeof(T)) &&
                         whole_words(task.weight);
    code = launch(rms_norm_kernel<T>, grid_of(task.x_rows.count), block_of(task.hidden / kPack),
                  stream, task, aligned);
  });
  return code;
}

int launch_fused_add_rms_norm(const FusedAddRmsNorm& task, DType dtype, void* stream) {
  int code = kUnsupportedDType;
  dispatch(dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const bool aligned = whole_words(task.x, task.x_rows, sizeof(T)) &&
                         whole_words(task.residual, task.residual_rows, sizeof(T)) &&
                         whole_words(task.weight);
    code = launch(fused_add_rms_norm_kernel<T>, grid_of(task.x_rows.count),
                  block_of(task.hidden / kPack), stream, task, aligned);
  });
  return code;
}

}  // namespace kernlib
