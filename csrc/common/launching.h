// How a binding launches: the tensor's own device, its current stream, the backend's error.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "common/checks.h"
#include "kernlib/backend.h"

namespace kernlib {

// Calls `launcher(stream)` with the device of `arg` current, and raises what it returns.
template <typename Launcher>
void launch_on(const check::Arg& arg, const char* kernel, Launcher&& launcher) {
  const DLDevice device = arg.view.device();
  int previous = device.device_id;
  int code = backend::exchange_device(device.device_id, &previous);
  if (code == kSuccess) {
    code = launcher(TVMFFIEnvGetStream(device.device_type, device.device_id));
    int ignored;
    const int restored = backend::exchange_device(previous, &ignored);
    if (code == kSuccess) code = restored;
  }
  if (code == kSuccess) return;
  TVM_FFI_THROW(RuntimeError) << kernel << " on " << check::text(device) << ": "
                              << backend::error_text(code) << " (error " << code << ")";
}

}  // namespace kernlib
