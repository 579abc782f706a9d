// Point functions: words for two parties, and all places of one party's rows.
//
// Rows are made by subtrees of a few hundred leaves, level by level in scratch memory, so that AES
// always has many blocks under way. Only the path to a subtree's top is walked node by node.
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/point/tree.h"

namespace veil {
namespace {

constexpr int64_t kWords = 2;          // the `party` that makes words
constexpr int64_t kSubtreeLevels = 9;  // 8 KiB of nodes: a quarter of the first cache
constexpr int64_t kGrain = 1 << 12;    // leaves that are worth a thread

int64_t levels_of(const PointParams& params) {
  return params.index_bits > params.lane_bits ? params.index_bits - params.lane_bits : 0;
}

const PointBlock* blocks(const VeilBuffer& b) {
  return reinterpret_cast<const PointBlock*>(b.data);
}

uint64_t word_at(const VeilBuffer& b, int64_t i) {
  return b.kind == VEIL_WORDS64 ? reinterpret_cast<const uint64_t*>(b.data)[i]
                                : reinterpret_cast<const uint32_t*>(b.data)[i];
}

AesKey key_of(const VeilBuffer& b) { return aes_expand(b.data); }

// Words

// unit - ours + theirs, negated where the mask is set; `lane` is where the unit has its 1.
template <class T>
PointBlock leaf_word(PointBlock ours, PointBlock theirs, uint64_t lane, uint64_t mask) {
  constexpr uint64_t kLanes = 16 / sizeof(T);
  T a[kLanes], b[kLanes];
  std::memcpy(a, &ours, 16);
  std::memcpy(b, &theirs, 16);
  for (uint64_t i = 0; i < kLanes; ++i) {
    const uint64_t apart = i ^ (lane & (kLanes - 1));  // 0 to 3
    const T unit = static_cast<T>(((apart - 1) >> 63) & 1);
    const T word = unit - a[i] + b[i];
    const T flip = static_cast<T>(mask);
    a[i] = (word ^ flip) - flip;
  }
  PointBlock made;
  std::memcpy(&made, a, 16);
  return made;
}

void make_words(const AesKey& key, const PointParams& params, PointBlock first, PointBlock second,
                uint64_t index, PointBlock* out) {
  const int64_t levels = levels_of(params);
  index &= (uint64_t{1} << params.index_bits) - 1;
  PointBlock nodes[2] = {marked(first, 0), marked(second, 1)};
  uint64_t right_bits = 0;
  alignas(64) PointBlock children[4];  // left and right of the first, of the second
  for (int64_t level = 0; level < levels; ++level) {
    const uint64_t turn = index >> (params.index_bits - 1 - level) & 1, mask = mask_of(turn);
    for (int i = 0; i < 4; ++i) children[i] = marked(nodes[i / 2], i % 2);
    hash(key, children, 4);
    const PointBlock left = children[0] ^ children[2], right = children[1] ^ children[3];
    const PointBlock lost = chosen(mask, left, right);
    const uint64_t bits[2] = {left.low ^ turn ^ 1, right.low ^ turn};
    out[level] = marked(lost, bits[0]);
    right_bits |= (bits[1] & 1) << level;
    const PointBlock word = marked(lost, (bits[1] & mask) | (bits[0] & ~mask));
    for (int i = 0; i < 2; ++i) {
      const PointBlock kept = chosen(mask, children[2 * i + 1], children[2 * i]);
      nodes[i] = kept ^ masked(word, mask_of(nodes[i].low));
    }
  }
  out[levels] = {right_bits, 0};
  for (int i = 0; i < 4; ++i) children[i] = marked(nodes[i % 2], 0);
  hash(key, children, 2);
  const uint64_t mask = mask_of(nodes[1].low);
  out[levels + 1] = params.lane_bits == 2
                        ? leaf_word<uint32_t>(children[0], children[1], index, mask)
                        : leaf_word<uint64_t>(children[0], children[1], index, mask);
}

void run_words(const VeilCall& call, const PointParams& params) {
  const AesKey key = key_of(call.buffers[1]);
  const VeilBuffer& indices = call.buffers[4];
  const int64_t count = element_count(indices), size = levels_of(params) + 2;
  auto* out = reinterpret_cast<PointBlock*>(call.buffers[0].data);
  parallel_grid(*call.context, 1, count, count * size, kGrain / 8,
                [&](int64_t, int64_t from, int64_t end, uint8_t*) {
                  for (int64_t i = from; i < end; ++i) {
                    make_words(key, params, blocks(call.buffers[2])[i], blocks(call.buffers[3])[i],
                               word_at(indices, i), out + i * size);
                  }
                });
}

// Rows

// Leaves of one subtree in scratch memory: nodes of its last level, hashed and corrected.
class Subtree {
 public:
  Subtree(const AesKey& key, PointWords words, uint8_t* scratch, int64_t levels)
      : key_(key),
        words_(words),
        levels_(levels),
        nodes_(reinterpret_cast<PointBlock*>(scratch)),
        controls_(reinterpret_cast<uint64_t*>(nodes_ + room(levels))) {}

  static int64_t room(int64_t levels) { return levels < 2 ? 4 : int64_t{1} << levels; }
  static int64_t scratch_bytes(int64_t levels) { return 24 * room(levels); }

  // Subtree `number` below the node that is reached by its bits, from the root's level on.
  void grow(PointBlock root, int64_t number) {
    const int64_t above = words_.levels - levels_;
    nodes_[0] = root;
    for (int64_t level = 0; level < above; ++level) {
      const bool right = number >> (above - 1 - level) & 1;
      const uint64_t control = mask_of(nodes_[0].low);
      nodes_[0] = marked(nodes_[0], right);
      hash(key_, nodes_, 1);
      nodes_[0] = nodes_[0] ^ masked(right ? words_.right(level) : words_.left(level), control);
    }
    for (int64_t level = 0; level < levels_; ++level) deeper(above + level, int64_t{1} << level);
    const int64_t leaves = int64_t{1} << levels_;
    for (int64_t i = 0; i < leaves; ++i) {
      controls_[i] = mask_of(nodes_[i].low);
      nodes_[i] = marked(nodes_[i], 0);
    }
    hash(key_, nodes_, leaves);
  }

  const PointBlock& leaf(int64_t i) const { return nodes_[i]; }
  uint64_t control(int64_t i) const { return controls_[i]; }

 private:
  // Each of `count` nodes becomes its two children.
  void deeper(int64_t level, int64_t count) {
    for (int64_t i = count - 1; i >= 0; --i) {
      const PointBlock node = nodes_[i];
      controls_[i] = mask_of(node.low);
      nodes_[2 * i] = marked(node, 0);
      nodes_[2 * i + 1] = marked(node, 1);
    }
    hash(key_, nodes_, 2 * count);
    const PointBlock left = words_.left(level), right = words_.right(level);
    for (int64_t i = 0; i < count; ++i) {
      nodes_[2 * i] = nodes_[2 * i] ^ masked(left, controls_[i]);
      nodes_[2 * i + 1] = nodes_[2 * i + 1] ^ masked(right, controls_[i]);
    }
  }

  const AesKey& key_;
  PointWords words_;
  int64_t levels_;
  PointBlock* nodes_;
  uint64_t* controls_;  // of each node, all bits as its control bit
};

// Where the numbers of a row go: from place 0 on, or each to c - its own place.
struct Places {
  int64_t count, size;  // of the row, and of all places
  bool turned;
  uint64_t c;

  int64_t of(int64_t place) const {
    return turned ? static_cast<int64_t>((c - static_cast<uint64_t>(place)) & (size - 1)) : place;
  }
};

template <class T>
void store(const Subtree& tree, PointBlock word, bool negated, int64_t leaves, int64_t from,
           const Places& places, T* row) {
  constexpr int64_t kLanes = 16 / sizeof(T);
  T last[kLanes], numbers[kLanes];
  std::memcpy(last, &word, 16);
  for (int64_t i = 0; i < leaves; ++i) {
    std::memcpy(numbers, &tree.leaf(i), 16);
    const T control = static_cast<T>(tree.control(i));
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const T number = numbers[lane] + (last[lane] & control);
      numbers[lane] = negated ? 0 - number : number;
    }
    const int64_t first = from + kLanes * i;
    if (!places.turned && first + kLanes <= places.count) {
      std::memcpy(row + first, numbers, 16);
      continue;
    }
    for (int64_t lane = 0; lane < kLanes && first + lane < places.size; ++lane) {
      const int64_t place = places.of(first + lane);
      if (place < places.count) row[place] = numbers[lane];
    }
  }
}

template <class T>
void run_rows(const VeilCall& call, const PointParams& params) {
  const VeilBuffer& out = call.buffers[0];
  const AesKey key = key_of(call.buffers[1]);
  const int64_t count = out.shape[0], width = out.shape[1], levels = levels_of(params);
  const int64_t inner = levels < kSubtreeLevels ? levels : kSubtreeLevels;
  const int64_t leaves = int64_t{1} << inner, span = leaves << params.lane_bits;
  const int64_t all = int64_t{1} << params.index_bits;
  const bool turned = call.buffer_count == 5;
  const int64_t needed = turned ? all : width;  // places from 0 on
  const int64_t subtrees = (needed + span - 1) / span;
  parallel_grid(*call.context, count, subtrees, count * subtrees * leaves, kGrain,
                [&](int64_t e, int64_t from, int64_t end, uint8_t* scratch) {
                  const PointWords words{blocks(call.buffers[3]) + e * (levels + 2), levels};
                  Subtree tree(key, words, scratch, inner);
                  const PointBlock root = marked(blocks(call.buffers[2])[e], params.party);
                  const Places places{width, all, turned, turned ? word_at(call.buffers[4], e) : 0};
                  T* row = reinterpret_cast<T*>(out.data) + e * width;
                  for (int64_t i = from; i < end; ++i) {
                    tree.grow(root, i);
                    store(tree, words.leaf(), params.party == 1, leaves, i * span, places, row);
                  }
                });
}

// Proofs

const char* check_blocks(const VeilCall& call, uint32_t i, int64_t count, int64_t* at) {
  const VeilBuffer& b = call.buffers[i];
  if (b.kind != VEIL_WORDS64 || !is_contiguous(b)) return fault(at, i, "not blocks in a row");
  return element_count(b) == 2 * count ? nullptr : fault(at, i, "wrong number of blocks");
}

const char* check_indices(const VeilCall& call, uint32_t i, int64_t count, int64_t* at) {
  const VeilBuffer& b = call.buffers[i];
  if (!is_words(b) || !is_contiguous(b)) return fault(at, i, "not words in a row");
  return element_count(b) == count ? nullptr : fault(at, i, "wrong number of words");
}

const char* check_output_rows(const VeilCall& call, const PointParams& params, int64_t* at) {
  const VeilBuffer& out = call.buffers[0];
  const uint32_t kind = params.lane_bits == 2 ? VEIL_WORDS32 : VEIL_WORDS64;
  if (out.kind != kind || out.rank != 2 || !is_contiguous(out)) {
    return fault(at, 0, "rows are no matrix of such words");
  }
  const bool fits = out.shape[1] <= int64_t{1} << params.index_bits;
  return fits ? nullptr : fault(at, 0, "more places than a tree has");
}

const char* check(const VeilCall* call, int64_t* at) {
  if (const char* reason = check_params<PointParams>(*call, at)) return reason;
  const auto params = params_of<PointParams>(*call);
  const bool makes_words = params.party == kWords;
  if (call->buffer_count != 5 && (makes_words || call->buffer_count != 4)) {
    return fault(at, -1, "wrong number of buffers");
  }
  if (!call->buffers[0].writable) return fault(at, 0, "output is in read-only memory");
  if (const char* reason = check_blocks(*call, 1, 1, at)) return reason;
  const int64_t size = levels_of(params) + 2;
  if (!makes_words) {
    if (const char* reason = check_output_rows(*call, params, at)) return reason;
  }
  const int64_t count = makes_words ? element_count(call->buffers[4]) : call->buffers[0].shape[0];
  if (const char* reason = check_blocks(*call, 2, count, at)) return reason;
  if (call->buffer_count == 5) {
    if (const char* reason = check_indices(*call, 4, count, at)) return reason;
  }
  if (const char* reason = check_blocks(*call, makes_words ? 0 : 3, count * size, at)) {
    return reason;
  }
  return makes_words ? check_blocks(*call, 3, count, at) : nullptr;
}

int64_t scratch_bytes(const VeilCall* call) {
  const int64_t levels = levels_of(params_of<PointParams>(*call));
  return Subtree::scratch_bytes(levels < kSubtreeLevels ? levels : kSubtreeLevels);
}

const char* run(const VeilCall* call) {
  const auto params = params_of<PointParams>(*call);
  if (params.party == kWords) {
    run_words(*call, params);
  } else if (params.lane_bits == 2) {
    run_rows<uint32_t>(*call, params);
  } else {
    run_rows<uint64_t>(*call, params);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_point;
const VeilKernel veil_point = {"point", veil::check, veil::scratch_bytes, veil::run, nullptr};
