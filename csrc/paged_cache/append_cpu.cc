// CPU instantiations of appending to the paged cache.

#include "kernlib/append_paged_kv_cpu.h"
#include "kernlib/backend.h"

namespace kernlib {

int launch_append_paged_kv(const AppendPagedKv& task, int element_bytes, void*) {
  if (element_bytes == 2) return append_paged_kv_cpu<uint16_t>(task), kSuccess;
  if (element_bytes == 4) return append_paged_kv_cpu<uint32_t>(task), kSuccess;
  return kUnsupportedDType;
}

}  // namespace kernlib
