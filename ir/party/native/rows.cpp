#include "ir/party/native/rows.h"

#include <algorithm>
#include <stdexcept>

namespace veil {

namespace {

constexpr int32_t kNone = -1;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

[[noreturn]] void absent() { throw std::out_of_range("there is no such node"); }

}  // namespace

size_t Rows::at(int64_t row) const {
  if (row < 0 || static_cast<size_t>(row) >= size()) absent();
  return static_cast<size_t>(row);
}

std::span<const int32_t> Rows::args_of(size_t row) const {
  return std::span(args_).subspan(first_[row], first_[row + 1] - first_[row]);
}

int32_t Rows::number_of(const Place& place) {
  const auto [found, is_new] = numbers_.try_emplace(place, static_cast<int32_t>(places_.size()));
  if (is_new) places_.push_back(place);
  return found->second;
}

int32_t Rows::push(const Sought& node, int32_t layer) {
  if (size() >= INT32_MAX) throw std::length_error("a program has too many nodes");
  op_.push_back(node.alike.op);
  place_.push_back(node.place);
  tensor_.push_back(node.alike.tensor);
  attributes_.push_back(node.alike.attributes);
  number_.push_back(node.number);
  layer_.push_back(layer);
  args_.insert(args_.end(), node.args.begin(), node.args.end());
  first_.push_back(static_cast<int64_t>(args_.size()));
  return static_cast<int32_t>(size() - 1);
}

int32_t Rows::add(const Alike& alike, const Place& place, std::span<const int32_t> args,
                  int64_t number, int32_t layer) {
  return push({alike, number_of(place), number, args}, layer);
}

int32_t Rows::once(const Alike& alike, const Place& place, std::span<const int32_t> args,
                   int64_t number, int32_t layer) {
  const Sought node{alike, number_of(place), number, args};
  const size_t slot = slot_of(node);
  const int32_t found = known_[slot];
  if (found != kNone) {
    has_reused = has_reused || (found < watched && place.phase != 0);
    return found;
  }
  const int32_t row = push(node, layer);
  put(slot, row);
  return row;
}

Rows::Sought Rows::of_row(size_t row) const {
  return {{op_[row], tensor_[row], attributes_[row]}, place_[row], number_[row], args_of(row)};
}

size_t Rows::slot_of(const Sought& node) const {
  uint64_t hash = mixed(node.alike.op, static_cast<uint32_t>(node.alike.tensor));
  hash = mixed(hash, static_cast<uint32_t>(node.alike.attributes));
  hash = mixed(hash, static_cast<uint32_t>(node.place));
  hash = mixed(hash, static_cast<uint64_t>(node.number));
  for (const int32_t arg : node.args) hash = mixed(hash, static_cast<uint32_t>(arg));
  const size_t mask = known_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (known_[slot] == kNone) return slot;
    const Sought other = of_row(static_cast<size_t>(known_[slot]));
    const bool is_alike = other.alike.op == node.alike.op &&
                          other.alike.tensor == node.alike.tensor &&
                          other.alike.attributes == node.alike.attributes;
    if (is_alike && other.place == node.place && other.number == node.number &&
        std::ranges::equal(other.args, node.args)) {
      return slot;
    }
  }
}

void Rows::put(size_t slot, int32_t row) {
  known_[slot] = row;
  if (2 * ++count_ <= known_.size()) return;
  const std::vector<int32_t> before = std::move(known_);
  known_.assign(2 * before.size(), kNone);
  for (const int32_t each : before) {
    if (each != kNone) known_[slot_of(of_row(static_cast<size_t>(each)))] = each;
  }
}

void Rows::know(int64_t row) {
  const size_t slot = slot_of(of_row(at(row)));
  // The later of two equal ones is found from now on.
  if (known_[slot] != kNone) {
    known_[slot] = static_cast<int32_t>(row);
  } else {
    put(slot, static_cast<int32_t>(row));
  }
}

bool Rows::knows(const RowBlock& block, std::span<const int64_t> rows,
                 std::span<const int64_t> at) const {
  std::vector<int32_t> args;
  for (const int64_t row : rows) {
    if (row < 0 || static_cast<size_t>(row) >= block.op.size()) absent();
    args.clear();
    const int64_t begin = row ? block.ends[row - 1] : 0;
    for (const int64_t arg : block.args.subspan(begin, block.ends[row] - begin)) {
      if (static_cast<size_t>(arg) >= at.size()) absent();
      args.push_back(static_cast<int32_t>(at[arg]));
    }
    const Alike alike{block.op[row], block.tensor[row], block.attributes[row]};
    if (known_[slot_of({alike, block.place[row], kNone, args})] != kNone) return true;
  }
  return false;
}

void Rows::extend(const RowBlock& block, std::span<const int64_t> at, uint8_t draw, int64_t draws,
                  int64_t sends, int32_t layer) {
  const size_t count = block.op.size();
  const auto after = static_cast<int64_t>(size() + count);
  for (const int64_t arg : block.args) {
    if (static_cast<size_t>(arg) >= at.size() || at[arg] < 0 || at[arg] >= after) absent();
  }
  for (const int32_t place : block.place) {
    if (static_cast<size_t>(place) >= places_.size()) absent();
  }
  if (after > INT32_MAX) throw std::length_error("a program has too many nodes");
  const auto begin = static_cast<int64_t>(args_.size());
  op_.insert(op_.end(), block.op.begin(), block.op.end());
  place_.insert(place_.end(), block.place.begin(), block.place.end());
  tensor_.insert(tensor_.end(), block.tensor.begin(), block.tensor.end());
  attributes_.insert(attributes_.end(), block.attributes.begin(), block.attributes.end());
  layer_.insert(layer_.end(), count, layer);
  for (const int64_t arg : block.args) args_.push_back(static_cast<int32_t>(at[arg]));
  for (size_t i = 0; i < count; ++i) {
    const int64_t number = block.number[i];
    const int64_t from = block.op[i] == draw ? draws : sends;
    number_.push_back(number < 0 ? number : number + from);
    first_.push_back(begin + block.ends[i]);
  }
}

}  // namespace veil
