// The nodes of a program that is being made, as columns; of equal nodes one is made.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace veil {

// Where and when a node is made: a party, and a phase of an entry. Setup is of no entry: 0.
struct Place {
  int32_t party, phase, entry;
  auto operator<=>(const Place&) const = default;
};

// What nodes of one operation, of the same attributes and type, have in common: numbers as in
// ir/party/columns.py. Attributes are without `number`, which is the node's own.
struct Alike {
  uint8_t op;
  int32_t tensor, attributes;
};

// Rows to be added again and again. Operands are places in a table that is given for each addition,
// those of row i up to ends[i]; numbers count from the first of the addition.
struct RowBlock {
  std::span<const uint8_t> op;
  std::span<const int32_t> place, tensor, attributes;
  std::span<const int64_t> number;
  std::span<const int64_t> ends, args;
};

class Rows {
 public:
  size_t size() const { return op_.size(); }
  const Place& place_of(int64_t row) const { return places_[place_[at(row)]]; }

  // A new node's row. Operands may be rows that are not there: whether a program is legal is looked
  // at when it is whole.
  int32_t add(const Alike& alike, const Place& place, std::span<const int32_t> args, int64_t number,
              int32_t layer);

  // The row of the node that is equal and known, or of a new one, known from now on.
  int32_t once(const Alike& alike, const Place& place, std::span<const int32_t> args,
               int64_t number, int32_t layer);

  // Adds a block of rows, of operands `at`. The numbers of draws, which are operation `draw`, count
  // from `draws` on, others from `sends` on. Throws std::out_of_range, and adds nothing then.
  void extend(const RowBlock& block, std::span<const int64_t> at, uint8_t draw, int64_t draws,
              int64_t sends, int32_t layer);

  // Lets a row be found by `once`.
  void know(int64_t row);

  // Whether one of these rows of a block would be equal to what is known. They have no number.
  bool knows(const RowBlock& block, std::span<const int64_t> rows,
             std::span<const int64_t> at) const;

  size_t at(int64_t row) const;  // checked

  const std::vector<uint8_t>& op() const { return op_; }
  const std::vector<int32_t>& place() const { return place_; }
  const std::vector<int32_t>& tensor() const { return tensor_; }
  const std::vector<int32_t>& attributes() const { return attributes_; }
  const std::vector<int64_t>& number() const { return number_; }
  const std::vector<int32_t>& layer() const { return layer_; }
  const std::vector<int64_t>& first() const { return first_; }
  const std::vector<int32_t>& args() const { return args_; }
  const std::vector<Place>& places() const { return places_; }
  std::span<const int32_t> args_of(size_t row) const;

  // A number of rows; `has_reused` becomes true where `once` finds one of these, setup's apart.
  int64_t watched = 0;
  bool has_reused = false;

 private:
  // A node as it is looked for.
  struct Sought {
    Alike alike;
    int32_t place;
    int64_t number;
    std::span<const int32_t> args;
  };

  int32_t number_of(const Place& place);
  int32_t push(const Sought& node, int32_t layer);
  Sought of_row(size_t row) const;
  size_t slot_of(const Sought& node) const;  // where it is, or where it would be
  void put(size_t slot, int32_t row);

  std::vector<uint8_t> op_;
  std::vector<int32_t> place_, tensor_, attributes_, layer_, args_;
  std::vector<int64_t> number_, first_{0};
  std::vector<Place> places_;
  std::map<Place, int32_t> numbers_;
  // Rows by what they are, -1 where there is none; a power of two, at most half full.
  std::vector<int32_t> known_ = std::vector<int32_t>(64, -1);
  size_t count_ = 0;
};

}  // namespace veil
