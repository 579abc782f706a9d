// Comparison functions: words for two parties, and one party's parts at public points.
//
// Elements go down their trees in batches, level by level, so that AES always has many blocks under
// way.
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/point/tree.h"

namespace veil {
namespace {

constexpr int64_t kWords = 2;       // the `party` that makes words
constexpr int64_t kBatch = 32;      // elements
constexpr int64_t kGrain = 1 << 9;  // elements that are worth a thread
constexpr int64_t kMostPayloads = 3;
constexpr int64_t kMostBlocks = 2;  // of payloads, side by side
constexpr int64_t kLeafBits = 2, kPoints = 1 << kLeafBits;
constexpr uint64_t kTag = 3;  // the bits of a node that are no seed's

struct Shape {
  int64_t party, index_bits, lanes, payloads, levels, rows;
  int64_t blocks;                 // of all payloads
  uint64_t rings[kMostPayloads];  // all bits of each
};

Shape shape_of(const CompareParams& p) {
  const int64_t rings[kMostPayloads] = {p.first_ring, p.second_ring, p.third_ring};
  Shape s = {p.party, p.index_bits, 4, 0, p.index_bits - kLeafBits, 0, 0, {}};
  for (; s.payloads < kMostPayloads && rings[s.payloads] > 0; ++s.payloads) {
    if (rings[s.payloads] > 32) s.lanes = 2;
    s.rings[s.payloads] = ~uint64_t{0} >> (64 - rings[s.payloads]);
  }
  s.rows = s.levels + kPoints;
  s.blocks = (s.payloads + s.lanes - 1) / s.lanes;
  return s;
}

int64_t words_of(const Shape& s) { return s.levels * s.lanes + s.payloads * s.rows; }

// A node's seed, with these lowest two bits.
PointBlock tagged(PointBlock node, uint64_t tag) { return {(node.low & ~kTag) | tag, node.high}; }

// The block of payloads `number` of a node.
PointBlock payload_block(PointBlock node, uint64_t tag, int64_t number) {
  return tagged({node.low ^ (static_cast<uint64_t>(number) << 2), node.high}, tag);
}

PointBlock child_of(PointBlock hashed, PointBlock parent, PointBlock word) {
  return tagged(hashed, hashed.low & 1) ^ masked(word, mask_of(parent.low));
}

PointBlock block_at(const uint8_t* at, int64_t i) {
  PointBlock block;
  std::memcpy(&block, at + 16 * i, 16);
  return block;
}

void put_block(uint8_t* at, int64_t i, PointBlock block) { std::memcpy(at + 16 * i, &block, 16); }

uint64_t word_at(const VeilBuffer& b, int64_t i) {
  return b.kind == VEIL_WORDS64 ? reinterpret_cast<const uint64_t*>(b.data)[i]
                                : reinterpret_cast<const uint32_t*>(b.data)[i];
}

// Number `lane` of what begins at a block.
template <class T>
T number_at(const PointBlock* blocks, int64_t lane) {
  T number;
  std::memcpy(&number, reinterpret_cast<const uint8_t*>(blocks) + sizeof(T) * lane, sizeof(T));
  return number;
}

// -x where the mask is set.
template <class T>
T negated(T x, uint64_t mask) {
  const T flip = static_cast<T>(mask);
  return (x ^ flip) - flip;
}

// Words

// One element's way down both trees; its blocks are hashed along with those of others.
template <class T>
class Dealing {
 public:
  static constexpr int64_t kHashes = 4 + 4 * kMostBlocks;

  void begin(PointBlock first, PointBlock second, uint64_t threshold) {
    nodes_[0] = tagged(first, 0);
    nodes_[1] = tagged(second, 1);
    threshold_ = threshold;
    for (T& each : so_far_) each = 0;
  }

  void add_payload(int64_t i, uint64_t payload) { payloads_[i] = static_cast<T>(payload); }

  // What a level hashes: of either party two children, then the payloads of either side.
  void ask(const Shape& s, PointBlock* out) const {
    for (const PointBlock& node : nodes_) {
      for (uint64_t side = 0; side < 2; ++side) *out++ = tagged(node, side);
    }
    for (const PointBlock& node : nodes_) {
      for (uint64_t side = 0; side < 2; ++side) {
        for (int64_t b = 0; b < s.blocks; ++b) *out++ = payload_block(node, 2 + side, b);
      }
    }
  }

  // Of these hashes, the word of the level and the numbers of its payloads.
  PointBlock take(const Shape& s, int64_t level, const PointBlock* hashed, T* numbers) {
    const uint64_t turn = threshold_ >> (s.index_bits - 1 - level) & 1, right = mask_of(turn);
    const PointBlock* values = hashed + 4;
    const uint64_t sign = mask_of(nodes_[1].low);
    for (int64_t i = 0; i < s.payloads; ++i) {
      T apart[2];  // the second party's less the first one's, left and right
      for (int64_t side = 0; side < 2; ++side) {
        apart[side] = number_at<T>(values + (2 + side) * s.blocks, i) -
                      number_at<T>(values + side * s.blocks, i);
      }
      const T which = (apart[0] ^ apart[1]) & static_cast<T>(right);
      const T lost = apart[1] ^ which, kept = apart[0] ^ which;
      const T below = payloads_[i] & static_cast<T>(right);
      numbers[i] = negated<T>(lost - so_far_[i] + below, sign);
      so_far_[i] += negated<T>(numbers[i], sign) - kept;
    }
    const PointBlock left = hashed[0] ^ hashed[2], other = hashed[1] ^ hashed[3];
    const PointBlock lost = chosen(right, left, other);
    const uint64_t bits[2] = {(left.low ^ turn ^ 1) & 1, (other.low ^ turn) & 1};
    const PointBlock word = tagged(lost, (bits[1] & right) | (bits[0] & ~right));
    for (int i = 0; i < 2; ++i) {
      const PointBlock kept = chosen(right, hashed[2 * i + 1], hashed[2 * i]);
      nodes_[i] = child_of(kept, nodes_[i], word);
    }
    return tagged(lost, bits[0] | bits[1] << 1);
  }

  void ask_point(const Shape& s, int64_t point, PointBlock* out) const {
    for (const PointBlock& node : nodes_) {
      for (int64_t b = 0; b < s.blocks; ++b) *out++ = payload_block(node, point, b);
    }
  }

  void take_point(const Shape& s, int64_t point, const PointBlock* hashed, T* numbers) const {
    const uint64_t place = threshold_ & (kPoints - 1), sign = mask_of(nodes_[1].low);
    const uint64_t below = mask_of((static_cast<uint64_t>(point) - place) >> 63);
    for (int64_t i = 0; i < s.payloads; ++i) {
      const T apart = number_at<T>(hashed + s.blocks, i) - number_at<T>(hashed, i);
      const T payload = payloads_[i] & static_cast<T>(below);
      numbers[i] = negated<T>(apart - so_far_[i] + payload, sign);
    }
  }

 private:
  PointBlock nodes_[2];
  uint64_t threshold_;
  T payloads_[kMostPayloads], so_far_[kMostPayloads];
};

template <class T>
void deal(const VeilCall& call, const Shape& s, const AesKey& key, int64_t count, int64_t from,
          int64_t size, uint8_t* scratch) {
  auto* blocks = reinterpret_cast<PointBlock*>(scratch);
  Dealing<T> each[kBatch];
  for (int64_t e = 0; e < size; ++e) {
    each[e].begin(block_at(call.buffers[2].data, from + e),
                  block_at(call.buffers[3].data, from + e), word_at(call.buffers[4], from + e));
    for (int64_t i = 0; i < s.payloads; ++i) {
      each[e].add_payload(i, word_at(call.buffers[5 + i], from + e));
    }
  }
  uint8_t* out = call.buffers[0].data;
  T* sections = reinterpret_cast<T*>(out + 16 * s.levels * count);
  T numbers[kMostPayloads];
  const auto put = [&](int64_t row, int64_t e) {
    for (int64_t i = 0; i < s.payloads; ++i) {
      sections[(i * s.rows + row) * count + from + e] = numbers[i] & static_cast<T>(s.rings[i]);
    }
  };
  const int64_t hashes = 4 + 4 * s.blocks;
  for (int64_t level = 0; level < s.levels; ++level) {
    for (int64_t e = 0; e < size; ++e) each[e].ask(s, blocks + e * hashes);
    hash(key, blocks, size * hashes);
    for (int64_t e = 0; e < size; ++e) {
      put_block(out, level * count + from + e,
                each[e].take(s, level, blocks + e * hashes, numbers));
      put(level, e);
    }
  }
  for (int64_t point = 0; point < kPoints; ++point) {
    for (int64_t e = 0; e < size; ++e) each[e].ask_point(s, point, blocks + e * 2 * s.blocks);
    hash(key, blocks, size * 2 * s.blocks);
    for (int64_t e = 0; e < size; ++e) {
      each[e].take_point(s, point, blocks + e * 2 * s.blocks, numbers);
      put(s.levels + point, e);
    }
  }
}

// Parts

template <class T>
void read(const VeilCall& call, const Shape& s, const AesKey& key, int64_t count, int64_t from,
          int64_t size, uint8_t* scratch) {
  auto* blocks = reinterpret_cast<PointBlock*>(scratch);  // a child each, then payloads
  PointBlock* values = blocks + size;
  PointBlock nodes[kBatch];
  uint64_t points[kBatch];
  T total[kBatch][kMostPayloads] = {};
  for (int64_t e = 0; e < size; ++e) {
    nodes[e] = tagged(block_at(call.buffers[2].data, from + e), s.party);
    points[e] = word_at(call.buffers[3], from + e);
  }
  const auto add = [&](int64_t e, int64_t row, const PointBlock* hashed) {
    const T control = static_cast<T>(mask_of(nodes[e].low));
    for (int64_t i = 0; i < s.payloads; ++i) {
      const auto word = static_cast<T>(word_at(call.buffers[5 + i], row * count + from + e));
      total[e][i] += number_at<T>(hashed + e * s.blocks, i) + (word & control);
    }
  };
  for (int64_t level = 0; level < s.levels; ++level) {
    for (int64_t e = 0; e < size; ++e) {
      const uint64_t turn = points[e] >> (s.index_bits - 1 - level) & 1;
      blocks[e] = tagged(nodes[e], turn);
      for (int64_t b = 0; b < s.blocks; ++b) {
        values[e * s.blocks + b] = payload_block(nodes[e], 2 + turn, b);
      }
    }
    hash(key, blocks, size * (1 + s.blocks));
    for (int64_t e = 0; e < size; ++e) {
      add(e, level, values);
      const uint64_t turn = points[e] >> (s.index_bits - 1 - level) & 1;
      const PointBlock word = block_at(call.buffers[4].data, level * count + from + e);
      nodes[e] = child_of(blocks[e], nodes[e], tagged(word, word.low >> turn & 1));
    }
  }
  for (int64_t e = 0; e < size; ++e) {
    const uint64_t point = points[e] & (kPoints - 1);
    for (int64_t b = 0; b < s.blocks; ++b) {
      blocks[e * s.blocks + b] = payload_block(nodes[e], point, b);
    }
  }
  hash(key, blocks, size * s.blocks);
  T* out = reinterpret_cast<T*>(call.buffers[0].data);
  for (int64_t e = 0; e < size; ++e) {
    add(e, s.levels + static_cast<int64_t>(points[e] & (kPoints - 1)), blocks);
    for (int64_t i = 0; i < s.payloads; ++i) {
      out[i * count + from + e] =
          negated<T>(total[e][i], mask_of(s.party)) & static_cast<T>(s.rings[i]);
    }
  }
}

template <class T>
void run_batches(const VeilCall& call, const Shape& s) {
  const AesKey key = aes_expand(call.buffers[1].data);
  const bool makes_words = s.party == kWords;
  const int64_t count = element_count(call.buffers[makes_words ? 4 : 3]);
  parallel_grid(*call.context, 1, count, count, kGrain,
                [&](int64_t, int64_t first, int64_t end, uint8_t* scratch) {
                  for (int64_t from = first; from < end; from += kBatch) {
                    const int64_t size = end - from < kBatch ? end - from : kBatch;
                    if (makes_words) {
                      deal<T>(call, s, key, count, from, size, scratch);
                    } else {
                      read<T>(call, s, key, count, from, size, scratch);
                    }
                  }
                });
}

// Proofs

const char* check_row(const VeilCall& call, uint32_t i, int64_t count, int64_t* at) {
  const VeilBuffer& b = call.buffers[i];
  if (!is_words(b) || !is_contiguous(b)) return fault(at, i, "not words in a row");
  return element_count(b) == count ? nullptr : fault(at, i, "wrong number of words");
}

const char* check_blocks(const VeilCall& call, uint32_t i, int64_t count, int64_t* at) {
  if (call.buffers[i].kind != VEIL_WORDS64) return fault(at, i, "not blocks in a row");
  return check_row(call, i, 2 * count, at);
}

// Numbers of the width that blocks are read in.
const char* check_numbers(const VeilCall& call, uint32_t i, int64_t count, const Shape& s,
                          int64_t* at) {
  const uint32_t kind = s.lanes == 4 ? VEIL_WORDS32 : VEIL_WORDS64;
  if (call.buffers[i].kind != kind) return fault(at, i, "words of another width");
  return check_row(call, i, count, at);
}

const char* check(const VeilCall* call, int64_t* at) {
  if (const char* reason = check_params<CompareParams>(*call, at)) return reason;
  const Shape s = shape_of(params_of<CompareParams>(*call));
  if (call->buffer_count != 5 + s.payloads) return fault(at, -1, "wrong number of buffers");
  if (!call->buffers[0].writable) return fault(at, 0, "output is in read-only memory");
  const bool makes_words = s.party == kWords;
  const uint32_t known = makes_words ? 4 : 3;
  const int64_t count = element_count(call->buffers[known]);
  if (const char* reason = check_row(*call, known, count, at)) return reason;
  if (const char* reason = check_blocks(*call, 1, 1, at)) return reason;
  if (const char* reason = check_blocks(*call, 2, count, at)) return reason;
  const int64_t made = count * (makes_words ? words_of(s) : s.payloads);
  if (const char* reason = check_numbers(*call, 0, made, s, at)) return reason;
  if (makes_words) {
    if (const char* reason = check_blocks(*call, 3, count, at)) return reason;
  } else if (const char* reason = check_numbers(*call, 4, count * s.levels * s.lanes, s, at)) {
    return reason;
  }
  for (uint32_t i = 5; i < call->buffer_count; ++i) {
    const int64_t rows = makes_words ? 1 : s.rows;
    if (const char* reason = check_row(*call, i, count * rows, at)) return reason;
  }
  return nullptr;
}

int64_t scratch_bytes(const VeilCall*) { return 16 * kBatch * Dealing<uint64_t>::kHashes; }

const char* run(const VeilCall* call) {
  const Shape s = shape_of(params_of<CompareParams>(*call));
  if (s.lanes == 4) {
    run_batches<uint32_t>(*call, s);
  } else {
    run_batches<uint64_t>(*call, s);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_compare;
const VeilKernel veil_compare = {"compare", veil::check, veil::scratch_bytes, veil::run, nullptr};
