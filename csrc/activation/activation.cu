// CUDA instantiations of the gated activations.

#include <type_traits>

#include "kernlib/activation.cuh"
#include "kernlib/backend.h"

namespace kernlib {

int launch_silu_and_mul(const SiluAndMul& task, DType dtype, void* stream) {
  int code = kUnsupportedDType;
  dispatch(dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const int64_t width_bytes = task.width * sizeof(T);  // where the second half starts
    const bool aligned = whole_words(task.x, task.x_rows, sizeof(T)) &&
                         whole_words(task.out, task.out_rows, sizeof(T)) &&
                         whole_words(width_bytes);
    code = launch(silu_and_mul_kernel<T>, grid_of(task.x_rows.count), block_of(task.width / kPack),
                  stream, task, aligned);
  });
  return code;
}

}  // namespace kernlib
