// The launchers that the binding calls; there is one unit per backend.
#pragma once

#include "faultlib/elements.h"

namespace faultlib {

// Each returns one of the backend's error codes.
int launch(const TakeRows& task, void* stream);
int launch(const Put& task, void* stream);
int launch(const LookBack& task, void* stream);
int launch(const SumRows& task, void* stream);

}  // namespace faultlib
