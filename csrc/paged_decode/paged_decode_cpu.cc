// CPU instantiations of paged decoding, for the head size of the generated header.

#include "kernlib/paged_decode_cpu.h"

#include <type_traits>

#include "kernlib/backend.h"
#include "paged_decode_params.h"

namespace kernlib {

int launch_paged_decode(const PagedDecode& task, DType dtype, void*) {
  const bool known = dispatch(dtype, [&](auto* element) {
    paged_decode_cpu<std::remove_pointer_t<decltype(element)>, kHeadDim>(task);
  });
  return known ? kSuccess : kUnsupportedDType;
}

}  // namespace kernlib
