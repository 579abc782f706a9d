// The fused program as it lies in a call's parameters, and its memory. declaration.py is the
// contract.
#pragma once
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/buffers.h"

namespace veil {

enum Op : uint16_t {
  LOAD = 1,
  STORE = 2,
  LOOKUP = 3,
  DRAW = 4,
  CONST = 5,
  ADD = 10,
  SUB = 11,
  MUL = 12,
  AND = 13,
  OR = 14,
  XOR = 15,
  NEG = 16,
  NOT = 17,
  ADD_CONST = 20,
  MUL_CONST = 21,
  AND_CONST = 22,
  SHL = 23,
  SHR = 24,
  WIDEN = 25,
  NARROW = 26,
  SELECT = 30,
  PACK = 31,
  UNPACK = 32,
  LOAD_BITS = 40,
  STORE_BITS = 41,
  DRAW_BITS = 42,
  CONST_BITS = 43,
  XOR_BITS = 50,
  AND_BITS = 51,
  NOT_BITS = 52,
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

constexpr int64_t kHeader = 4;                      // parameters before the instructions
constexpr int64_t kInstructionParams = 5;           // int64 words of one instruction
constexpr int64_t kMaxElements = int64_t{1} << 40;  // keeps every bit offset inside an int64
constexpr int64_t kMaxWordRegisters = 1024;         // keeps a thread's scratch memory under 6 MiB
constexpr int64_t kMaxBitRegisters = 16384;

struct Program {
  int64_t elements, word_registers, bit_registers, count;
  const Instruction* instructions;
};

inline Program program_of(const VeilCall& call) {
  const int64_t* p = call.params;
  return {p[0], p[1], p[2], p[3], reinterpret_cast<const Instruction*>(p + kHeader)};
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
  for (int64_t i = 0; i < p.count; ++i) {
    const Instruction& ins = p.instructions[i];
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
