// A fused program under way: its instructions, streams and registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/fused/program.h"
#include "passes/native/fused/code.h"
#include "passes/native/fused/registers.h"

namespace veil {

class Assembly {
 public:
  Assembly() : words_(kMaxWordRegisters), bits_(kMaxBitRegisters) {}

  Instruction& add(Op op, uint16_t word, int32_t dst) {
    Instruction& ins = code_.emplace_back();
    ins.op = op, ins.word = word, ins.dst = dst;
    return ins;
  }

  // The next instruction draws a node.
  void draws(int32_t node) {
    made_.draws.push_back(static_cast<int64_t>(code_.size()));
    made_.drawn.push_back(node);
  }

  int32_t stream_of(int32_t node, bool is_message) {
    const int64_t key = int64_t{node} * 2 + is_message;
    const auto next = static_cast<int32_t>(made_.streams.size());
    const auto [found, is_new] = streams_.try_emplace(key, next);
    if (is_new) {
      made_.streams.push_back(node);
      made_.messages.push_back(is_message);
    }
    return found->second;
  }

  // Registers, which others may take once nobody holds them; those that are new are held until the
  // node is over.

  Held new_word() { return new_registers({words_.take(1), true}); }
  Held new_bits(int64_t count) {
    return new_registers({bits_.take(static_cast<size_t>(count)), false});
  }

  void hold(const Held& held) { file(held).count(held.registers, 1); }
  void drop(const Held& held) { file(held).count(held.registers, -1); }

  void end_node() {
    for (const Held& held : temporary_) drop(held);
    temporary_.clear();
  }

  // The program, of so many elements; another one begins.
  FusedCode finish(int64_t elements) {
    const auto instructions = static_cast<int64_t>(code_.size());
    made_.params = {elements, words_.size(), bits_.size(), instructions};
    made_.params.resize(FusedParams::kCount + kInstructionParams * code_.size());
    std::memcpy(made_.params.data() + FusedParams::kCount, code_.data(),
                sizeof(Instruction) * code_.size());
    code_.clear(), streams_.clear(), words_.clear(), bits_.clear();
    return std::exchange(made_, {});
  }

 private:
  Registers& file(const Held& held) { return held.is_word ? words_ : bits_; }

  Held new_registers(Held held) {
    hold(held);
    temporary_.push_back(held);
    return held;
  }

  std::vector<Instruction> code_;
  std::unordered_map<int64_t, int32_t> streams_;
  std::vector<Held> temporary_;
  Registers words_, bits_;
  FusedCode made_;
};

}  // namespace veil
