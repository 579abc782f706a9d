// Sums over windows of an image; what lies outside it counts as zero.
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/windows.h"

namespace veil {
namespace {

Window window_of(const VeilCall& call) {
  const VeilBuffer &out = call.buffers[0], &in = call.buffers[1];
  const auto p = params_of<PoolSumParams>(call);
  return {in.shape[2], in.shape[3], out.shape[2], out.shape[3], p.kernel_h, p.kernel_w,
          p.stride_h,  p.stride_w,  p.pad_top,    p.pad_left,   1,          1};
}

template <class T>
void pool_sum(const VeilCall& call) {
  const VeilBuffer &out = call.buffers[0], &in = call.buffers[1];
  if (element_count(out) == 0) return;
  const Window window = window_of(call);
  const int64_t image = window.h * window.w, pooled = window.oh * window.ow;
  T* to = reinterpret_cast<T*>(out.data);
  const T* from = reinterpret_cast<const T*>(in.data);
  auto piece = [&](int64_t, int64_t first, int64_t last, uint8_t*) {
    for_each_part(window, [&](const auto& part) {
      for (int64_t i = first; i < last; ++i) {
        part.put(to + i * pooled, 1,
                 [&](int64_t) { return WindowTerm<T>{from + i * image, nullptr}; });
      }
    });
  };
  constexpr int64_t kGrain = int64_t{1} << 15;
  const int64_t work = element_count(in) + element_count(out);
  parallel_grid(*call.context, 1, out.shape[0] * out.shape[1], work, kGrain, piece);
}

const char* check(const VeilCall* call, int64_t* at) {
  if (call->buffer_count != 2) return fault(at, -1, "wrong number of buffers");
  if (const char* reason = check_params<PoolSumParams>(*call, at)) return reason;
  if (const char* reason = check_words(*call, at)) return reason;
  const VeilBuffer &out = call->buffers[0], &in = call->buffers[1];
  for (int64_t i = 0; i < 2; ++i) {
    if (call->buffers[i].rank != 4) return fault(at, i, "image is not of rank 4");
    if (!is_contiguous(call->buffers[i])) return fault(at, i, "image is not contiguous");
  }
  if (out.shape[0] != in.shape[0] || out.shape[1] != in.shape[1]) {
    return fault(at, 1, "images differ in number or channels");
  }
  return nullptr;
}

int64_t scratch_bytes(const VeilCall*) { return 0; }

const char* run(const VeilCall* call) {
  if (call->buffers[0].kind == VEIL_WORDS64) {
    pool_sum<uint64_t>(*call);
  } else {
    pool_sum<uint32_t>(*call);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_pool_sum;
const VeilKernel veil_pool_sum = {"pool_sum", veil::check, veil::scratch_bytes, veil::run, nullptr};
