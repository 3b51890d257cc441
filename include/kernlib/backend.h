// What a binding asks of the backend it is linked with; csrc/common has one unit per backend.
#pragma once

namespace kernlib {

// Launchers return one of the backend's error codes.
constexpr int kSuccess = 0;
// No kernel was instantiated for the element type; negative, so that no CUDA code equals it.
constexpr int kUnsupportedDType = -1;

namespace backend {

// The DLPack device type that the kernels of this library run on.
int device_type();

// Makes `device` current and says which one was.
int exchange_device(int device, int* previous);

// The backend's words for an error code.
const char* error_text(int code);

}  // namespace backend
}  // namespace kernlib
