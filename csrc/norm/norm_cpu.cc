// CPU instantiations of the norms.

#include "kernlib/norm_cpu.h"

#include <type_traits>

#include "kernlib/backend.h"

namespace kernlib {

int launch_rms_norm(const RmsNorm& task, DType dtype, void*) {
  const bool known = dispatch(
      dtype, [&](auto* element) { rms_norm_cpu<std::remove_pointer_t<decltype(element)>>(task); });
  return known ? kSuccess : kUnsupportedDType;
}

int launch_fused_add_rms_norm(const FusedAddRmsNorm& task, DType dtype, void*) {
  const bool known = dispatch(dtype, [&](auto* element) {
    fused_add_rms_norm_cpu<std::remove_pointer_t<decltype(element)>>(task);
  });
  return known ? kSuccess : kUnsupportedDType;
}

}  // namespace kernlib
