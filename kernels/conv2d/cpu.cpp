// Sums of two-dimensional convolutions: a blocked matrix product over image windows, or, where a
// group has one channel, sums of shifted images.
#include <cstdint>
#include <cstring>

#include "kernels/conv2d/geometry.h"
#include "kernels/conv2d/image_source.h"
#include "kernels/cpu/abi.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/windows.h"
#include "kernels/gemm/cpu/blocked.h"
#include "kernels/gemm/cpu/strided_source.h"

namespace veil {
namespace {

int64_t pair_count(const VeilCall& call) { return (call.buffer_count - 1) / 2; }

// The pairs of one group, as the blocked product wants them: weights on the left, windows on the
// right.
template <class T>
struct GroupPairs {
  const VeilCall& call;
  const Convolution& c;
  int64_t group;

  int64_t count() const { return pair_count(call); }

  Term<StridedSource<T>, ImageSource<T>> term(int64_t pair) const {
    const T* x = reinterpret_cast<const T*>(call.buffers[1 + 2 * pair].data);
    const T* w = reinterpret_cast<const T*>(call.buffers[2 + 2 * pair].data);
    const int64_t depth = c.group_channels() * c.kh * c.kw;
    return {{w + group * c.group_filters() * depth, depth, 1},
            {x + group * c.group_channels() * c.h * c.w, c},
            depth};
  }
};

// One group's product.
Product product_of(const Convolution& c) {
  return {c.bits, c.group_filters(), c.batch * c.oh * c.ow, c.group_channels() * c.kh * c.kw};
}

// Multiply-adds of a call, and for how many a thread is worth waking.
int64_t multiply_adds(const VeilCall& call, const Convolution& c) {
  const int64_t weights = c.group_channels() * c.kh * c.kw * pair_count(call);
  return saturating_product(element_count(call.buffers[0]), weights);
}

constexpr int64_t kGrain = int64_t{1} << 19;

template <class Micro>
void by_product(const VeilCall& call, const Convolution& c) {
  using T = typename Micro::Word;
  const int64_t image = c.oh * c.ow, columns = c.batch * image;
  auto part = [&](int64_t group, int64_t first, int64_t last, uint8_t* scratch) {
    const int64_t begin = first * Micro::kColumns, end = last * Micro::kColumns;
    const Tile tile{0, c.group_filters(), begin, (end < columns ? end : columns) - begin};
    T* out = reinterpret_cast<T*>(call.buffers[0].data) + group * c.group_filters() * image;
    multiply<Micro>(GroupPairs<T>{call, c, group}, ImageSink<T>{out, image, c.filters}, tile,
                    scratch);
  };
  const int64_t steps = (columns + Micro::kColumns - 1) / Micro::kColumns;
  parallel_grid(*call.context, c.groups, steps, multiply_adds(call, c), kGrain, part);
}

// One input channel a group is too thin for a matrix product.
template <class T>
void by_channel(const VeilCall& call, const Convolution& c) {
  const Window window{c.h,        c.w,        c.oh,      c.ow,       c.kh,         c.kw,
                      c.stride_h, c.stride_w, c.pad_top, c.pad_left, c.dilation_h, c.dilation_w};
  const int64_t image = c.oh * c.ow;
  T* out = reinterpret_cast<T*>(call.buffers[0].data);
  auto piece = [&](int64_t n, int64_t first, int64_t last, uint8_t*) {
    for_each_part(window, [&](const auto& part) {
      for (int64_t filter = first; filter < last; ++filter) {
        const int64_t channel = n * c.channels + filter / c.group_filters();
        part.put(out + (n * c.filters + filter) * image, pair_count(call), [&](int64_t pair) {
          const T* x = reinterpret_cast<const T*>(call.buffers[1 + 2 * pair].data);
          const T* w = reinterpret_cast<const T*>(call.buffers[2 + 2 * pair].data);
          return WindowTerm<T>{x + channel * c.h * c.w, w + filter * c.kh * c.kw};
        });
      }
    });
  };
  parallel_grid(*call.context, c.batch, c.filters, multiply_adds(call, c), kGrain, piece);
}

template <class T>
void conv2d(const VeilCall& call) {
  const Convolution c = convolution_of(call);
  if (element_count(call.buffers[0]) == 0) return;
  if (element_count(call.buffers[2]) == 0) {  // no channels: sums of nothing
    std::memset(call.buffers[0].data, 0, element_count(call.buffers[0]) * sizeof(T));
    return;
  }
  if (c.group_channels() == 1 && c.groups > 1) return by_channel<T>(call, c);
  with_micro<T>(product_of(c), [&]<class Micro>() { by_product<Micro>(call, c); });
}

const char* check(const VeilCall* call, int64_t* at) { return check_convolution(*call, at); }

int64_t scratch_bytes(const VeilCall* call) {
  const auto bytes = []<class Micro>() { return Blocking<Micro>::kScratch; };
  const Product p = product_of(convolution_of(*call));
  return call->buffers[0].kind == VEIL_WORDS64 ? with_micro<uint64_t>(p, bytes)
                                               : with_micro<uint32_t>(p, bytes);
}

const char* run(const VeilCall* call) {
  if (call->buffers[0].kind == VEIL_WORDS64) {
    conv2d<uint64_t>(*call);
  } else {
    conv2d<uint32_t>(*call);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_conv2d;
const VeilKernel veil_conv2d = {"conv2d", veil::check, veil::scratch_bytes, veil::run, nullptr};
