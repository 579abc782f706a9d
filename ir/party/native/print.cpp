#include "ir/party/native/print.h"

#include <charconv>
#include <string_view>

namespace veil {

namespace {

constexpr size_t kLongest = 20;  // characters of a number of 64 bits

// Counts the characters that are written.
struct Counting {
  size_t size = 0;
  void text(std::string_view x) { size += x.size(); }
  void integer(int64_t x) {
    char digits[kLongest];
    size += static_cast<size_t>(std::to_chars(digits, digits + kLongest, x).ptr - digits);
  }
};

struct Writing {
  char *to, *end;
  void text(std::string_view x) { to += x.copy(to, x.size()); }
  void integer(int64_t x) { to = std::to_chars(to, end, x).ptr; }
};

template <typename Out>
void line(const Printed& nodes, size_t row, Out& out) {
  out.text("%");
  out.integer(static_cast<int64_t>(row));
  out.text(" = ");
  out.text(nodes.operations[nodes.op[row]]);
  for (const int32_t read : nodes.operands.of(row)) {
    out.text(" %");
    out.integer(read);
  }
  const auto& [before, behind] = nodes.described[static_cast<size_t>(nodes.attributes[row])];
  out.text(before);
  if (nodes.number[row] >= 0) out.integer(nodes.number[row]);
  out.text(behind);
  out.text(nodes.tensors[static_cast<size_t>(nodes.tensor[row])]);
  out.text(nodes.places[static_cast<size_t>(nodes.place[row])]);
  out.integer(nodes.layer[row]);
  out.text("\n");
}

template <typename Out>
void lines(const Printed& nodes, Out& out) {
  for (size_t row = 0; row < nodes.op.size(); ++row) line(nodes, row, out);
}

}  // namespace

size_t printed_size(const Printed& nodes) {
  Counting counting;
  lines(nodes, counting);
  return counting.size;
}

void print_lines(const Printed& nodes, std::span<char> to) {
  Writing writing{to.data(), to.data() + to.size()};
  lines(nodes, writing);
}

}  // namespace veil
