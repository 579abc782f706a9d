#include "passes/native/fused/code.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "passes/native/facts.h"
#include "passes/native/fused/assembly.h"
#include "passes/native/fused/reads.h"

namespace veil {

namespace {

// A value of the program under way, and how often it is still to be read.
struct Value {
  std::optional<Held> held;
  int64_t uses = 0;
};

int32_t field(int64_t value) {
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument("an instruction has no field for so large a number");
  }
  return static_cast<int32_t>(value);
}

uint16_t planes(size_t count) { return static_cast<uint16_t>(field(static_cast<int64_t>(count))); }

class Compiler {
 public:
  explicit Compiler(const FusedColumns& columns) : c_(columns), operands_(columns) {}

  FusedCode compile(const FusedAction& action) {
    if (action.nodes.empty()) throw std::invalid_argument("a fused program has no nodes");
    begin(action);
    for (size_t i = 0; i < action.nodes.size(); ++i) {
      emit(action.nodes[i], {reads_.data() + begins_[i], begins_[i + 1] - begins_[i]});
      out_.end_node();
    }
    const int32_t first = action.nodes[0];
    return out_.finish(c_.elements[first] * c_.type(first).per_element);
  }

 private:
  bool receives(int32_t row) const { return c_.is(row, kSend) && c_.parties[row] == action_.party; }

  void begin(const FusedAction& action) {
    action_ = action;
    reads_.clear(), values_.clear(), places_.clear();
    begins_ = {0};
    for (const int32_t row : action.nodes) {
      read_operands(row);
      begins_.push_back(reads_.size());
    }
  }

  // Operands

  void read_operands(int32_t row) {
    if (receives(row)) return;
    const auto args = c_.operands.of(row);
    const size_t count = c_.is(row, kLookup) ? 1 : args.size();
    for (size_t i = 0; i < count; ++i) {
      Read read = operands_.read(row, i, args[i]);
      if (!read.immediate) {
        read.value = place(read.key);
        ++values_[read.value].uses;
      }
      reads_.push_back(read);
    }
  }

  size_t place(const Key& key) {
    const auto [found, is_new] = places_.try_emplace(key, values_.size());
    if (is_new) values_.emplace_back();
    return found->second;
  }

  const Held& fetch(std::span<const Read> reads, size_t position, int32_t row) {
    if (position >= reads.size() || reads[position].immediate) {
      throw std::invalid_argument("a node lacks an operand");
    }
    const Read& read = reads[position];
    if (!values_[read.value].held) keep(read.value, load(read, row));
    return *values_[read.value].held;
  }

  Held load(const Read& read, int32_t user) {
    const int32_t near = read.near;
    if (c_.is(near, kConst)) return constant(near);
    if (c_.is(near, kDraw) && is_inline(near, user)) return draw(near);
    const int32_t stream = out_.stream_of(read.key.node, false);
    if (c_.type(near).is_planes) {
      Held held = out_.new_bits(c_.type(near).bits);
      Instruction& ins = out_.add(LOAD_BITS, 0, held.first());
      ins.dst_step = ins.a_step = 1;
      ins.a = stream, ins.count = planes(held.registers.size());
      return held;
    }
    Held held = out_.new_word();
    Instruction& ins = out_.add(LOAD, c_.width(near), held.first());
    ins.a = stream, ins.b = field(read.key.inner), ins.c = field(read.key.period);
    const int64_t bits = c_.type(near).stored_bits;
    held.is_clean = bits == 32 || bits == 64 || (c_.is(near, kSend) && !c_.unpacked[near]);
    return held;
  }

  // As passes/native/fusion.cpp has it: a draw of setup is made again in setup alone.
  bool is_inline(int32_t draw, int32_t user) const {
    if (!c_.is(user, kFusible) || c_.elements[draw] != c_.elements[user]) return false;
    return (c_.stages[draw] == 0) == (action_.at >> kLevelBits == 0);
  }

  Held constant(int32_t row) {
    const int64_t value = c_.attributes_of(row).value;
    if (c_.type(row).is_planes) {
      Held held = out_.new_bits(c_.type(row).bits);
      for (const int32_t each : held.registers) {
        Instruction& ins = out_.add(CONST_BITS, 0, each);
        ins.dst_step = 1, ins.count = 1, ins.immediate = value;
      }
      return held;
    }
    Held held = out_.new_word();
    out_.add(CONST, c_.width(row), held.first()).immediate = value;
    held.is_clean = true;
    return held;
  }

  Held draw(int32_t row) {
    out_.draws(row);
    const bool is_planes = c_.type(row).is_planes != 0;
    Held held = is_planes ? out_.new_bits(c_.type(row).bits) : out_.new_word();
    Instruction& ins =
        out_.add(is_planes ? DRAW_BITS : DRAW, is_planes ? 0 : c_.width(row), held.first());
    ins.a = c_.keys[row], ins.immediate = c_.numbers[row];
    if (is_planes) {
      ins.dst_step = ins.a_step = 1;
      ins.count = planes(held.registers.size());
      return held;
    }
    const int64_t bits = c_.type(row).stored_bits;
    ins.count = bits <= 8 ? 8 : bits <= 16 ? 16 : bits <= 32 ? 32 : 64;
    held.is_clean = ins.count == bits;
    return held;
  }

  // Nodes

  void emit(int32_t row, std::span<const Read> reads) {
    if (c_.is(row, kSend)) {
      emit_send(row, reads);
      return;
    }
    const size_t own = place({row});
    keep(own, made_of(row, reads));
    if (c_.stored[row]) store(*values_[own].held, row, false, row);
    release(reads);
    free_if_dead(own);
  }

  Held made_of(int32_t row, std::span<const Read> reads) {
    if (c_.is(row, kDraw)) return draw(row);
    return c_.type(row).is_planes ? emit_bits(row, reads) : emit_word(row, reads);
  }

  void emit_send(int32_t row, std::span<const Read> reads) {
    if (receives(row)) {
      const Held word = out_.new_word();
      const int32_t packed = out_.stream_of(row, true);
      out_.add(LOAD, c_.width(row), word.first()).a = packed;
      store(word, row, false, row);
      return;
    }
    const Held held = fetch(reads, 0, row);
    store(held, row, true, row);
    release(reads);
  }

  void store(const Held& held, int32_t node, bool is_message, int32_t row) {
    const int32_t stream = out_.stream_of(node, is_message);
    if (held.is_word) {
      Instruction& ins = out_.add(STORE, c_.width(row), 0);
      ins.a = stream, ins.b = held.first();
      return;
    }
    const std::vector<int32_t>* lists[] = {&held.registers};
    for (const Run& run : common_runs(lists)) {
      Instruction& ins = out_.add(STORE_BITS, 0, 0);
      ins.dst_step = 1;
      ins.a = stream, ins.a_step = 1;
      ins.b = held.registers[run.start], ins.b_step = run.steps[0];
      ins.count = planes(run.count), ins.immediate = static_cast<int64_t>(run.start);
    }
  }

  Held emit_word(int32_t row, std::span<const Read> reads) {
    if (c_.is(row, kCast)) return emit_cast(row, reads);
    const auto op = opcode(c_.opcodes_of(row).on_words);
    if (op == SELECT) return emit_select(row, reads);
    if (op == UNPACK) return emit_unpack(row, reads);
    if (op == LOOKUP) return emit_lookup(row, reads);
    Held a = fetch(reads, 0, row);
    if (op == SHR) a = masked(a, c_.type(row).bits, c_.width(row));
    const bool is_constant = reads.size() > 1 && reads[1].immediate;
    const int32_t b = reads.size() > 1 && !is_constant ? fetch(reads, 1, row).first() : 0;
    Held made = out_.new_word();
    const auto chosen = is_constant ? opcode(c_.opcodes_of(row).with_constant) : op;
    Instruction& ins = out_.add(chosen, c_.width(row), made.first());
    ins.a = a.first(), ins.b = b;
    if (is_constant) ins.immediate = *reads[1].immediate;
    if (op == SHL || op == SHR) ins.immediate = c_.attributes_of(row).bits;
    made.is_clean = op == SHR;
    return made;
  }

  Held emit_select(int32_t row, std::span<const Read> reads) {
    int32_t operands[3];
    for (size_t i = 0; i < 3; ++i) operands[i] = fetch(reads, i, row).first();
    const Held made = out_.new_word();
    Instruction& ins = out_.add(SELECT, c_.width(row), made.first());
    ins.a = operands[0], ins.b = operands[1], ins.c = operands[2];
    return made;
  }

  Held emit_cast(int32_t row, std::span<const Read> reads) {
    Held a = fetch(reads, 0, row);
    const TensorType& source = c_.type(c_.operands.of(row)[0]);
    const TensorType& target = c_.type(row);
    const bool grows = target.bits > source.bits;
    if (grows) a = masked(a, source.bits, static_cast<uint16_t>(source.word_bits));
    const bool is_clean = a.is_clean && (grows || target.bits == 32 || target.bits == 64);
    if (target.word_bits == source.word_bits) return {a.registers, true, is_clean};
    Held made = out_.new_word();
    out_.add(target.word_bits == 64 ? WIDEN : NARROW, c_.width(row), made.first()).a = a.first();
    made.is_clean = is_clean;
    return made;
  }

  Held masked(const Held& a, int64_t bits, uint16_t width) {
    if (a.is_clean || bits == 32 || bits == 64) return a;
    Held made = out_.new_word();
    Instruction& ins = out_.add(AND_CONST, width, made.first());
    ins.a = a.first(),
    ins.immediate = static_cast<int64_t>(~uint64_t{0} >> (64 - std::min<int64_t>(bits, 64)));
    made.is_clean = true;
    return made;
  }

  // The table is a stream of its own; what is above an index's width doesn't matter.
  Held emit_lookup(int32_t row, std::span<const Read> reads) {
    const int32_t index = fetch(reads, 0, row).first();
    const int32_t table = out_.stream_of(c_.operands.of(row)[1], false);
    Held made = out_.new_word();
    Instruction& ins = out_.add(LOOKUP, c_.width(row), made.first());
    ins.a = table, ins.b = index;
    made.is_clean = true;
    return made;
  }

  Held emit_unpack(int32_t row, std::span<const Read> reads) {
    const Held source = fetch(reads, 0, row);
    const std::vector<int32_t>* lists[] = {&source.registers};
    std::optional<Held> total;
    for (const Run& run : common_runs(lists)) {
      Held part = out_.new_word();
      Instruction& ins = out_.add(UNPACK, c_.width(row), part.first());
      ins.a = source.registers[run.start], ins.a_step = run.steps[0];
      ins.count = planes(run.count), ins.immediate = static_cast<int64_t>(run.start);
      if (total) {
        const Held both = out_.new_word();
        Instruction& sum = out_.add(ADD, c_.width(row), both.first());
        sum.a = total->first(), sum.b = part.first();
        part = both;
      }
      total = part;
    }
    if (!total) throw std::invalid_argument("a word is made of no planes");
    total->is_clean = static_cast<int64_t>(source.registers.size()) <= c_.type(row).bits;
    return *total;
  }

  Held emit_bits(int32_t row, std::span<const Read> reads) {
    if (c_.is(row, kSomePlanes)) return some_planes(row, fetch(reads, 0, row).registers);
    if (c_.is(row, kStack)) {
      Held made{{}, false};
      for (size_t i = 0; i < reads.size(); ++i) {
        const std::vector<int32_t>& part = fetch(reads, i, row).registers;
        made.registers.insert(made.registers.end(), part.begin(), part.end());
      }
      return made;
    }
    const auto op = opcode(c_.opcodes_of(row).on_bits);
    return op == PACK ? emit_pack(row, reads) : emit_gate(op, row, reads);
  }

  Held some_planes(int32_t row, const std::vector<int32_t>& registers) const {
    Held made{{}, false};
    const int64_t start = c_.attributes_of(row).start, step = c_.attributes_of(row).step;
    for (int64_t i = 0; i < c_.type(row).bits; ++i) {
      const auto at = static_cast<size_t>(start + i * step);
      if (at >= registers.size()) throw std::invalid_argument("there is no such plane");
      made.registers.push_back(registers[at]);
    }
    return made;
  }

  Held emit_pack(int32_t row, std::span<const Read> reads) {
    const int32_t word = fetch(reads, 0, row).first();
    Held made = out_.new_bits(c_.type(row).bits);
    Instruction& ins = out_.add(PACK, c_.width(c_.operands.of(row)[0]), made.first());
    ins.dst_step = 1, ins.a = word;
    ins.count = planes(made.registers.size()), ins.immediate = c_.attributes_of(row).low;
    return made;
  }

  Held emit_gate(Op op, int32_t row, std::span<const Read> reads) {
    std::vector<Held> operands;
    for (size_t i = 0; i < reads.size(); ++i) operands.push_back(fetch(reads, i, row));
    Held made = out_.new_bits(c_.type(row).bits);
    std::vector<const std::vector<int32_t>*> lists{&made.registers};
    for (const Held& each : operands) lists.push_back(&each.registers);
    if (lists.size() != 2 && lists.size() != 3) throw std::invalid_argument("no gate is so wide");
    for (const Run& run : common_runs(lists)) {
      Instruction& ins = out_.add(op, 0, (*lists[0])[run.start]);
      ins.dst_step = run.steps[0], ins.count = planes(run.count);
      ins.a = (*lists[1])[run.start], ins.a_step = run.steps[1];
      if (lists.size() > 2) ins.b = (*lists[2])[run.start], ins.b_step = run.steps[2];
    }
    return made;
  }

  // Values that are held

  void keep(size_t value, Held held) {
    out_.hold(held);
    values_[value].held = std::move(held);
  }

  void release(std::span<const Read> reads) {
    for (const Read& read : reads) {
      if (read.immediate) continue;
      --values_[read.value].uses;
      free_if_dead(read.value);
    }
  }

  void free_if_dead(size_t value) {
    Value& dead = values_[value];
    if (dead.uses > 0 || !dead.held) return;
    out_.drop(*dead.held);
    dead.held.reset();
  }

  static Op opcode(int64_t number) {
    if (number == 0) throw std::invalid_argument("an operation that is no instruction is fused");
    return static_cast<Op>(number);
  }

  const FusedColumns& c_;
  FusedReads operands_;
  FusedAction action_{};
  std::vector<Read> reads_;     // of all nodes of the action
  std::vector<size_t> begins_;  // where those of each node begin, and the end
  std::vector<Value> values_;
  std::unordered_map<Key, size_t, KeyHash> places_;
  Assembly out_;
};

}  // namespace

std::vector<FusedCode> fused_code(const FusedColumns& columns,
                                  std::span<const FusedAction> actions) {
  Compiler compiler(columns);
  std::vector<FusedCode> found;
  found.reserve(actions.size());
  for (const FusedAction& action : actions) found.push_back(compiler.compile(action));
  return found;
}

}  // namespace veil
