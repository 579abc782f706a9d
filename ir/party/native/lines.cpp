#include "ir/party/native/lines.h"

namespace veil {

namespace {

constexpr size_t kMostName = 40;    // characters of an operation's or an attribute's name
constexpr size_t kMostDigits = 9;   // of a node's number
constexpr size_t kMostNumber = 18;  // digits of the attribute `number`
constexpr size_t kMostOperands = 1 << 24;
constexpr std::string_view kNumber = "number";

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One line under way. What fails says so by an exception: a line is read once.
class Line {
 public:
  Line(std::string_view text, size_t start, size_t end) : text_(text), start_(start), end_(end) {
    at_ = start;
  }

  [[noreturn]] void fail(const char* reason) const { throw NoNode{reason, start_, end_}; }

  bool next_is(std::string_view expected) const {
    return text_.substr(at_, end_ - at_).starts_with(expected);
  }
  bool next_is_digit() const { return at_ < end_ && is_digit(text_[at_]); }
  bool take(std::string_view expected) {
    if (!next_is(expected)) return false;
    at_ += expected.size();
    return true;
  }
  void need(std::string_view expected) {
    if (!take(expected)) fail("not a node");
  }

  std::string_view word() {
    const size_t first = at_;
    while (at_ < end_ && is_word(text_[at_])) ++at_;
    if (at_ == first || at_ - first > kMostName) fail("not a node");
    return text_.substr(first, at_ - first);
  }

  // A number without a sign, and without zeros in front of it.
  int64_t number(size_t most) {
    const size_t first = at_;
    int64_t value = 0;
    while (at_ < end_ && is_digit(text_[at_]) && at_ - first < most) {
      value = 10 * value + (text_[at_++] - '0');
    }
    const size_t length = at_ - first;
    if (length == 0 || (length > 1 && text_[first] == '0')) fail("not a node");
    if (at_ < end_ && is_digit(text_[at_])) fail("not a node");
    return value;
  }

  // What comes before the next of these characters, which is left.
  std::string_view until(char stop) {
    const size_t first = at_;
    while (at_ < end_ && text_[at_] != stop) ++at_;
    if (at_ == end_) fail("not a node");
    return text_.substr(first, at_ - first);
  }

  // Past an attribute's value: what it may be is looked at once for all nodes that have it.
  void skip_value() {
    if (take("\"")) {
      while (at_ < end_ && text_[at_] != '"') at_ += text_[at_] == '\\' && at_ + 1 < end_ ? 2 : 1;
      need("\"");
    } else if (take("[")) {
      until(']');
      need("]");
    } else {
      take("-");
      while (at_ < end_ && is_digit(text_[at_])) ++at_;
    }
  }

  size_t at() const { return at_; }
  std::string_view between(size_t first, size_t last) const {
    return text_.substr(first, last - first);
  }
  bool is_over() const { return at_ == end_; }

 private:
  std::string_view text_;
  size_t start_, end_, at_;
};

// The attributes of a line, behind " {": their text, with # for the value of `number`.
void read_attributes(Line& line, std::string& blank, Lines& lines) {
  const size_t first = line.at();
  size_t hole = 0, behind = 0;  // where the value of `number` lies, if there is one
  int64_t number = -1;
  do {
    const std::string_view name = line.word();
    line.need(" = ");
    if (name == kNumber && line.next_is("-")) line.fail("not a node");
    if (name == kNumber && behind == 0 && line.next_is_digit()) {
      hole = line.at();
      number = line.number(kMostNumber);
      behind = line.at();
    } else {
      line.skip_value();
    }
  } while (line.take(", "));
  const size_t last = line.at();
  line.need("}");
  lines.number.push_back(number);
  if (behind == 0) {
    lines.attributes.push_back(lines.described.of(line.between(first, last)));
    return;
  }
  blank.assign(line.between(first, hole));
  blank += '#';
  blank += line.between(behind, last);
  lines.attributes.push_back(lines.described.copied(blank));
}

}  // namespace

int32_t Interned::of(std::string_view text) {
  const auto [found, is_new] = ids_.try_emplace(text, static_cast<int32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  return found->second;
}

int32_t Interned::copied(std::string_view text) {
  const auto found = ids_.find(text);
  return found != ids_.end() ? found->second : of(own_.emplace_back(text));
}

size_t count_lines(std::string_view text, size_t most) {
  size_t count = 0;
  for (size_t end = text.find('\n'); end != std::string_view::npos && count <= most;
       end = text.find('\n', end + 1)) {
    ++count;
  }
  return count;
}

std::string_view lines_of_nodes(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const size_t before = text.find("\n%");
  return before == std::string_view::npos ? std::string_view() : text.substr(before + 1);
}

void read_lines(std::string_view text, const std::vector<std::string>& operations, int64_t layers,
                Lines& lines) {
  std::unordered_map<std::string_view, uint8_t> named;
  for (size_t i = 0; i < operations.size(); ++i) named[operations[i]] = static_cast<uint8_t>(i);
  std::string blank;
  size_t start = 0;
  while (start < text.size()) {
    size_t end = text.find('\n', start);
    if (end == std::string_view::npos) end = text.size();
    Line line(text, start, end);
    line.need("%");
    const int64_t number = line.number(kMostDigits);
    line.need(" = ");
    const auto op = named.find(line.word());
    if (op == named.end()) line.fail("there is no such operation");
    while (line.take(" %")) {
      lines.args.push_back(static_cast<int32_t>(line.number(kMostDigits)));
    }
    if (lines.args.size() - lines.first.back() > kMostOperands) line.fail("not a node");
    if (line.take(" {")) {
      read_attributes(line, blank, lines);
    } else {
      lines.number.push_back(-1);
      lines.attributes.push_back(lines.described.of(""));
    }
    line.need(" : ");
    const size_t type = line.at();
    line.until(']');
    line.need("]");
    lines.type.push_back(lines.types.of(line.between(type, line.at())));
    line.need(" @");
    const size_t place = line.at();
    line.until(' ');
    line.need(" ");
    line.until(' ');
    lines.place.push_back(lines.places.of(line.between(place, line.at())));
    line.need(" ");
    const int64_t layer = line.number(kMostDigits);
    if (!line.is_over()) line.fail("not a node");
    if (number != static_cast<int64_t>(lines.op.size()) || layer >= layers) {
      line.fail("a node out of order, or of no layer");
    }
    lines.layer.push_back(static_cast<int32_t>(layer));
    lines.first.push_back(static_cast<int64_t>(lines.args.size()));
    lines.op.push_back(op->second);
    start = end + 1;
  }
}

}  // namespace veil
