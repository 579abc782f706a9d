// The nodes of a party-level program as columns, read from its text.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace veil {

// Texts that repeat, each once, by the order in which they were met.
class Interned {
 public:
  int32_t of(std::string_view text);      // `text` outlives this
  int32_t copied(std::string_view text);  // kept here if it is new
  const std::vector<std::string_view>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<std::string_view> texts_;
  std::deque<std::string> own_;
};

// A row a node; ir/party/columns.py says what each column holds.
struct Lines {
  std::vector<uint8_t> op;
  std::vector<int32_t> place, type, attributes, layer, args;
  std::vector<int64_t> number, first{0};
  Interned places, types, described;
};

// A line that says no node: what is wrong with it, and where it lies in the text.
struct NoNode {
  const char* reason;
  size_t start, end;
};

// How many lines a text ends, as far as they are counted: one more than `most` at the furthest.
size_t count_lines(std::string_view text, size_t most);

// Of a program's text the lines of nodes, without what ends the last of them. They are many times
// as long as all else, and are not copied.
std::string_view lines_of_nodes(std::string_view text);

// Reads lines of nodes, the last of them ended too, numbered from 0 without gaps.
// Throws NoNode.
void read_lines(std::string_view text, const std::vector<std::string>& operations, int64_t layers,
                Lines& lines);

}  // namespace veil
