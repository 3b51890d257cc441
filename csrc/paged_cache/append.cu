// CUDA instantiations of appending to the paged cache.

#include "kernlib/append_paged_kv.cuh"
#include "kernlib/backend.h"

namespace kernlib {
namespace {

template <typename Chunk>
int launch_chunks(const AppendPagedKv& task, void* stream) {
  return launch(append_paged_kv_kernel<Chunk>, grid_of(task.tokens),
                block_of(2 * task.heads * task.head_dim), stream, task);
}

}  // namespace

int launch_append_paged_kv(const AppendPagedKv& task, int element_bytes, void* stream) {
  if (whole_words(task, element_bytes)) {
    return launch_chunks<uint4>(in_chunks(task, sizeof(uint4) / element_bytes), stream);
  }
  if (element_bytes == 2) return launch_chunks<uint16_t>(task, stream);
  if (element_bytes == 4) return launch_chunks<uint32_t>(task, stream);
  return kUnsupportedDType;
}

}  // namespace kernlib
