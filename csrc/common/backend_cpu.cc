// The CPU backend: nothing to make current, one error.

#include "kernlib/backend.h"

namespace kernlib::backend {

int device_type() { return 1; }  // kDLCPU

int exchange_device(int, int* previous) {
  *previous = 0;
  return kSuccess;
}

const char* error_text(int code) {
  return code == kUnsupportedDType ? "no kernel was built for this dtype" : "unknown error";
}

}  // namespace kernlib::backend
