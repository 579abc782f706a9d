// Sums over whole dimensions.
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/strided.h"

namespace veil {
namespace {

template <class T>
void add_run(T* out, const T* in, const Dimension& d) {
  if (d.out == 0) {
    T sum = 0;
    if (d.in == 1) {
      for (int64_t i = 0; i < d.extent; ++i) sum += in[i];
    } else {
      for (int64_t i = 0; i < d.extent; ++i) sum += in[i * d.in];
    }
    *out += sum;
  } else if (d.out == 1 && d.in == 1) {
    for (int64_t i = 0; i < d.extent; ++i) out[i] += in[i];
  } else {
    for (int64_t i = 0; i < d.extent; ++i) out[i * d.out] += in[i * d.in];
  }
}

template <class T>
void reduce_sum(const VeilCall& call) {
  T* out = reinterpret_cast<T*>(call.buffers[0].data);
  const T* in = reinterpret_cast<const T*>(call.buffers[1].data);
  const Walk all = walk(call.buffers[0], call.buffers[0]);
  if (all.empty()) return;
  for_each_index(all, all.rank, 0, 0, [&](int64_t offset, int64_t) { out[offset] = 0; });
  const Walk w = walk(call.buffers[0], call.buffers[1], Order::kInput);
  if (w.empty()) return;
  for_each_index(w, w.rank - 1, 0, 0,
                 [&](int64_t o, int64_t i) { add_run(out + o, in + i, w.inner()); });
}

const char* check(const VeilCall* call, int64_t* at) {
  if (const char* reason = check_counts(*call, 2)) return fault(at, -1, reason);
  if (const char* reason = check_words(*call, at)) return reason;
  const VeilBuffer &out = call->buffers[0], &in = call->buffers[1];
  if (out.rank != in.rank) return fault(at, 1, "ranks differ");
  for (uint32_t d = 0; d < out.rank; ++d) {
    if (out.shape[d] != in.shape[d] && out.shape[d] != 1) {
      return fault(at, 0, "output extent is neither the input's nor 1");
    }
  }
  if (repeats(out)) return fault(at, 0, "output repeats elements");
  return nullptr;
}

int64_t scratch_bytes(const VeilCall*) { return 0; }

const char* run(const VeilCall* call) {
  if (call->buffers[0].kind == VEIL_WORDS64) {
    reduce_sum<uint64_t>(*call);
  } else {
    reduce_sum<uint32_t>(*call);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_reduce_sum;
const VeilKernel veil_reduce_sum = {"reduce_sum", veil::check, veil::scratch_bytes, veil::run,
                                    nullptr};
