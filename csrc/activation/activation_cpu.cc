// CPU instantiations of the gated activations.

#include "kernlib/activation_cpu.h"

#include <type_traits>

#include "kernlib/backend.h"

namespace kernlib {

int launch_silu_and_mul(const SiluAndMul& task, DType dtype, void*) {
  const bool known = dispatch(dtype, [&](auto* element) {
    silu_and_mul_cpu<std::remove_pointer_t<decltype(element)>>(task);
  });
  return known ? kSuccess : kUnsupportedDType;
}

}  // namespace kernlib
