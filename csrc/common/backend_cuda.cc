// The CUDA backend: devices and error texts of the runtime.

#include <cuda_runtime_api.h>

#include "kernlib/backend.h"

namespace kernlib::backend {

int device_type() { return 2; }  // kDLCUDA

int exchange_device(int device, int* previous) {
  if (const cudaError_t code = cudaGetDevice(previous); code != cudaSuccess) return code;
  return *previous == device ? cudaSuccess : cudaSetDevice(device);
}

const char* error_text(int code) {
  if (code == kUnsupportedDType) return "no kernel was built for this dtype";
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

}  // namespace kernlib::backend
