#include "runtime/native/interpreter/tables.h"

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace veil {
namespace {

// What kernels/cpu/abi.h promises to kernels: with extents and strides under 2^38, at most 2^56
// elements and offsets under 2^56, no index that a kernel computes leaves an int64.
constexpr int64_t kMaxExtent = int64_t{1} << 38;
constexpr int64_t kMaxElements = int64_t{1} << 56;

template <class Record>
std::vector<Record> read(std::span<const uint8_t> bytes, const char* what) {
  if (bytes.size() % sizeof(Record) != 0) {
    throw std::invalid_argument(std::string(what) + " table: " + std::to_string(bytes.size()) +
                                " bytes are no whole records");
  }
  std::vector<Record> records(bytes.size() / sizeof(Record));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

// Bytes before and after a buffer's first element that its elements reach.
struct Extent {
  uint64_t before, after;
};

std::optional<Extent> words_extent(const BufferRecord& b, int64_t elements) {
  const uint64_t size = b.kind == VEIL_WORDS64 ? 8 : 4;
  if (elements == 0) return Extent{0, 0};
  uint64_t before = 0, after = 1;
  for (uint32_t d = 0; d < b.rank; ++d) {
    const bool back = b.strides[d] < 0;
    const uint64_t steps = static_cast<uint64_t>(b.shape[d] - 1);
    const uint64_t stride = static_cast<uint64_t>(back ? -b.strides[d] : b.strides[d]);
    uint64_t reach;
    uint64_t& side = back ? before : after;
    if (__builtin_mul_overflow(steps, stride, &reach)) return std::nullopt;
    if (__builtin_add_overflow(side, reach, &side) || side > kMaxElements) return std::nullopt;
  }
  return Extent{before * size, after * size};
}

std::optional<Extent> bits_extent(const BufferRecord& b) {
  const uint64_t elements = static_cast<uint64_t>(b.shape[0]);  // at most 2^38
  if (b.kind == VEIL_PACKED) return Extent{0, (elements * b.bits + 63) / 64 * 8};
  uint64_t bytes;
  if (__builtin_mul_overflow((elements + 63) / 64 * 8, uint64_t{b.bits}, &bytes))
    return std::nullopt;
  return Extent{0, bytes};
}

const char* shape_fault(const BufferRecord& b, int64_t* elements) {
  *elements = 1;
  for (uint32_t d = 0; d < b.rank; ++d) {
    if (b.shape[d] < 0 || b.shape[d] > kMaxExtent) return "extent out of range";
    if (b.strides[d] < -kMaxExtent || b.strides[d] > kMaxExtent) return "stride out of range";
    if (__builtin_mul_overflow(*elements, b.shape[d], elements) || *elements > kMaxElements) {
      return "too many elements";
    }
  }
  return nullptr;
}

const char* form_fault(const BufferRecord& b) {
  if (b.kind > VEIL_PLANES) return "unknown kind";
  if (b.rank > VEIL_MAX_RANK) return "rank out of range";
  const bool words = b.kind == VEIL_WORDS32 || b.kind == VEIL_WORDS64;
  if (!words && b.rank != 1) return "packed elements and planes are of rank 1";
  const uint32_t most = b.kind == VEIL_WORDS32 ? 32 : b.kind == VEIL_PLANES ? UINT32_MAX : 64;
  return b.bits >= 1 && b.bits <= most ? nullptr : "bits out of range";
}

const char* place_fault(const BufferRecord& b, const Extent& extent, const Region& region) {
  if (b.offset % (b.kind == VEIL_WORDS32 ? 4 : 8) != 0) return "offset is not aligned";
  if (b.offset > region.bytes || extent.after > region.bytes - b.offset) {
    return "ends beyond its region";
  }
  return extent.before <= b.offset ? nullptr : "begins before its region";
}

const char* buffer_fault(const BufferRecord& b, std::span<const Region> regions) {
  if (b.region >= regions.size()) return "unknown region";
  if (const char* reason = form_fault(b)) return reason;
  int64_t elements;
  if (const char* reason = shape_fault(b, &elements)) return reason;
  const bool words = b.kind == VEIL_WORDS32 || b.kind == VEIL_WORDS64;
  const auto extent = words ? words_extent(b, elements) : bits_extent(b);
  return extent ? place_fault(b, *extent, regions[b.region]) : "ends beyond its region";
}

}  // namespace

std::vector<StepRecord> read_steps(std::span<const uint8_t> bytes) {
  return read<StepRecord>(bytes, "step");
}

std::vector<BufferRecord> read_buffers(std::span<const uint8_t> bytes) {
  return read<BufferRecord>(bytes, "buffer");
}

std::vector<int64_t> read_params(std::span<const uint8_t> bytes) {
  return read<int64_t>(bytes, "parameter");
}

std::vector<VeilBuffer> resolve_buffers(std::span<const BufferRecord> records,
                                        std::span<const Region> regions) {
  std::vector<VeilBuffer> buffers;
  buffers.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const BufferRecord& r = records[i];
    if (const char* reason = buffer_fault(r, regions)) {
      throw std::invalid_argument("buffer " + std::to_string(i) + ": " + reason);
    }
    VeilBuffer b{};
    b.data = regions[r.region].data + r.offset;
    b.kind = r.kind;
    b.bits = r.bits;
    b.rank = r.rank;
    b.writable = regions[r.region].writable ? 1 : 0;
    std::memcpy(b.shape, r.shape, sizeof(b.shape));
    std::memcpy(b.strides, r.strides, sizeof(b.strides));
    buffers.push_back(b);
  }
  return buffers;
}

}  // namespace veil
