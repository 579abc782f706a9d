// The fused program as it lies in a call's parameters, and its memory. declaration.py and
// instructions.py are the contract.
#pragma once
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"

namespace veil {

enum Op : uint16_t {
#define VEIL_NUMBERED(name, number, ...) name = number,
  VEIL_FOR_EACH_INSTRUCTION(VEIL_NUMBERED)
#undef VEIL_NUMBERED
};

struct Instruction {
  uint16_t op;
  uint16_t word;
  int32_t dst, a, b, c;
  int16_t dst_step, a_step, b_step;
  uint16_t count;
  int32_t reserved;
  int64_t immediate;
};
static_assert(sizeof(Instruction) == 40);

constexpr int64_t kInstructionParams = 5;           // int64 words of one instruction
constexpr int64_t kMaxElements = int64_t{1} << 40;  // keeps every bit offset inside an int64
constexpr int64_t kMaxWordRegisters = 1024;         // keeps a thread's scratch memory under 6 MiB
constexpr int64_t kMaxBitRegisters = 16384;

struct Program : FusedParams {
  const Instruction* table;
};

inline Program program_of(const VeilCall& call) {
  return {params_of<FusedParams>(call),
          reinterpret_cast<const Instruction*>(call.params + FusedParams::kCount)};
}

// How a program's registers lie in a thread's scratch memory. A block is a multiple of 512
// elements, so that a bit register is whole 64-byte vectors and a draw whole groups of four AES
// blocks.
struct RegisterFile {
  int64_t block;  // elements
  int64_t
      word_bytes;  // of one word register: 4 bytes an element where no instruction works on 64 bits
  int64_t bit_words;  // of one bit register, in 64-bit words
  int64_t bytes;      // of all
};

inline bool uses_64_bits(const Program& p) {
  for (int64_t i = 0; i < p.instructions; ++i) {
    const Instruction& ins = p.table[i];
    if (ins.word == 64 || ins.op == NARROW) return true;
  }
  return false;
}

inline RegisterFile register_file(const Program& p) {
  constexpr int64_t kLeast = 512, kMost = VEIL_PART_ELEMENTS;
  constexpr int64_t kBudget = 32 << 10;  // of registers in the first-level cache
  const int64_t slot = uses_64_bits(p) ? 8 : 4;
  auto bytes = [&](int64_t n) { return n * (p.word_registers * slot) + n / 8 * p.bit_registers; };
  int64_t block = kLeast;
  while (block < kMost && block < p.elements && bytes(2 * block) <= kBudget) block *= 2;
  return {block, block * slot, block / 64, bytes(block)};
}

}  // namespace veil
