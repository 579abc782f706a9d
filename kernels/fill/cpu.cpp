// One value to every element of a strided output.
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/strided.h"

namespace veil {
namespace {

template <class T>
void fill(const VeilCall& call) {
  const Walk w = walk(call.buffers[0], call.buffers[0]);
  if (w.empty()) return;
  T* out = reinterpret_cast<T*>(call.buffers[0].data);
  const T value = static_cast<T>(params_of<FillParams>(call).value);
  const Dimension run = w.inner();
  for_each_index(w, w.rank - 1, 0, 0, [&](int64_t offset, int64_t) {
    if (run.out == 1) {
      for (int64_t i = 0; i < run.extent; ++i) out[offset + i] = value;
    } else {
      for (int64_t i = 0; i < run.extent; ++i) out[offset + i * run.out] = value;
    }
  });
}

const char* check(const VeilCall* call, int64_t* at) {
  if (call->buffer_count != 1) return fault(at, -1, "wrong number of buffers");
  if (const char* reason = check_params<FillParams>(*call, at)) return reason;
  return check_words(*call, at);
}

int64_t scratch_bytes(const VeilCall*) { return 0; }

const char* run(const VeilCall* call) {
  if (call->buffers[0].kind == VEIL_WORDS64) {
    fill<uint64_t>(*call);
  } else {
    fill<uint32_t>(*call);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_fill;
const VeilKernel veil_fill = {"fill", veil::check, veil::scratch_bytes, veil::run, nullptr};
