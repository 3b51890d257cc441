// CUDA instantiations of paged decoding, for the head size of the generated header.

#include <type_traits>

#include "kernlib/backend.h"
#include "kernlib/paged_decode.cuh"
#include "paged_decode_params.h"

namespace kernlib {

int launch_paged_decode(const PagedDecode& task, DType dtype, void* stream) {
  int code = kUnsupportedDType;
  dispatch(dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const bool aligned = whole_words(task.q) && whole_words(task.q_stride[0] * sizeof(T)) &&
                         whole_words(task.q_stride[1] * sizeof(T)) && whole_words(task.cache) &&
                         whole_words(task.layout, sizeof(T));
    code = launch(paged_decode_kernel<T, kHeadDim>, grid_of(task.batch * task.num_qo_heads),
                  dim3(kDecodeThreads), stream, task, aligned);
  });
  return code;
}

}  // namespace kernlib
