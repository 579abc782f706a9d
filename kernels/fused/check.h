// Proof that a fused program stays inside its registers, buffers and keys.
#pragma once
#include <cstdint>

#include "kernels/fused/program.h"

namespace veil {

// What an instruction's operand names; instructions.py has the same names.
enum class Operand : uint8_t {
  kNone,
  kWord,    // a word register
  kBit,     // a bit register
  kBits,    // `count` bit registers, a step apart
  kBuffer,  // a buffer of the call
  kKey,     // a key of the context
};

struct Shape {
  bool known;
  bool word32, word64;  // works on words of 32 or 64 bits; on bits if on neither
  Operand dst, a, b, c;
};

inline Shape shape_of(uint16_t op) {
  using enum Operand;
  switch (op) {
#define VEIL_SHAPED(name, number, ...) \
  case name:                           \
    return {true, __VA_ARGS__};
    VEIL_FOR_EACH_INSTRUCTION(VEIL_SHAPED)
#undef VEIL_SHAPED
    default:
      return {};
  }
}

inline bool fits_word(const Shape& shape, uint16_t word) {
  if (word == 32) return shape.word32;
  if (word == 64) return shape.word64;
  return word == 0 && !shape.word32 && !shape.word64;
}

// Whether start, start + step, ... (`count` of them) all lie in [0, end).
inline bool in_range(int64_t start, int64_t step, int64_t count, int64_t end) {
  if (count == 0) return true;
  const int64_t last = start + (count - 1) * step;
  return start >= 0 && start < end && last >= 0 && last < end;
}

inline const char* check_operand(const VeilCall& call, const Program& p, const Instruction& ins,
                                 Operand kind, int64_t index, int64_t step) {
  switch (kind) {
    case Operand::kNone:
      return nullptr;
    case Operand::kWord:
      return in_range(index, 0, 1, p.word_registers) ? nullptr : "word register out of range";
    case Operand::kBit:
      return in_range(index, 0, 1, p.bit_registers) ? nullptr : "bit register out of range";
    case Operand::kBits:
      return in_range(index, step, ins.count, p.bit_registers) ? nullptr
                                                               : "bit registers out of range";
    case Operand::kBuffer:
      return in_range(index, 0, 1, call.buffer_count) ? nullptr : "buffer number out of range";
    case Operand::kKey:
      return in_range(index, 0, 1, call.context->key_count) ? nullptr : "key number out of range";
  }
  return "unknown operand";
}

inline const char* check_words_stream(const VeilBuffer& b, const Instruction& ins) {
  if (b.kind == VEIL_PACKED)
    return b.bits <= ins.word ? nullptr : "packed elements exceed the word";
  if (b.kind != (ins.word == 64 ? VEIL_WORDS64 : VEIL_WORDS32))
    return "buffer of another word width";
  return is_contiguous(b) ? nullptr : "buffer is not contiguous";
}

inline const char* check_load(const Program& p, const Instruction& ins, const VeilBuffer& b) {
  if (const char* reason = check_words_stream(b, ins)) return reason;
  if (ins.c < 0 || (ins.c > 0 && ins.b < 1)) return "broadcast out of range";
  if (p.elements == 0) return nullptr;
  const int64_t needed = ins.c > 0 ? ins.c : p.elements;
  return element_count(b) >= needed ? nullptr : "buffer has fewer elements than are loaded";
}

inline const char* check_store(const Program& p, const Instruction& ins, const VeilBuffer& b) {
  if (const char* reason = check_words_stream(b, ins)) return reason;
  if (!b.writable) return "store to read-only memory";
  return element_count(b) >= p.elements ? nullptr : "buffer has fewer elements than are stored";
}

inline const char* check_lookup(const Instruction& ins, const VeilBuffer& b) {
  if (b.kind == VEIL_PACKED) return "lookup in packed elements";
  if (const char* reason = check_words_stream(b, ins)) return reason;
  const int64_t entries = element_count(b);
  return entries > 0 && (entries & (entries - 1)) == 0 ? nullptr : "entries are no power of two";
}

inline const char* check_planes(const Program& p, const Instruction& ins, const VeilBuffer& b) {
  if (b.kind != VEIL_PLANES) return "buffer does not hold planes";
  if (ins.immediate < 0 || !in_range(ins.immediate, ins.a_step, ins.count, b.bits)) {
    return "plane out of range";
  }
  if (ins.op == STORE_BITS && !b.writable) return "store to read-only memory";
  return b.shape[0] >= p.elements ? nullptr : "planes have fewer elements than the program";
}

inline const char* check_draw(const Instruction& ins) {
  if (ins.immediate < 0 || ins.immediate > UINT32_MAX) return "draw number out of range";
  if (ins.op == DRAW_BITS) {
    return in_range(ins.b, ins.a_step, ins.count, INT64_MAX) ? nullptr : "negative plane of a draw";
  }
  if (ins.count != 8 && ins.count != 16 && ins.count != 32 && ins.count != 64) {
    return "lanes of a draw are 8, 16, 32 or 64 bits";
  }
  return ins.count <= ins.word ? nullptr : "lanes of a draw exceed the word";
}

// What an operation asks beyond operands that exist.
inline const char* check_details(const VeilCall& call, const Program& p, const Instruction& ins) {
  switch (ins.op) {
    case LOAD:
      return check_load(p, ins, call.buffers[ins.a]);
    case STORE:
      return check_store(p, ins, call.buffers[ins.a]);
    case LOOKUP:
      return check_lookup(ins, call.buffers[ins.a]);
    case DRAW:
    case DRAW_BITS:
      return check_draw(ins);
    case SHL:
    case SHR:
      return ins.immediate >= 0 && ins.immediate < ins.word ? nullptr : "shift out of range";
    case PACK:
    case UNPACK:
      return ins.immediate >= 0 && ins.immediate <= ins.word - ins.count ? nullptr
                                                                         : "bits exceed the word";
    case LOAD_BITS:
    case STORE_BITS:
      return check_planes(p, ins, call.buffers[ins.a]);
    case CONST_BITS:
      return ins.immediate == 0 || ins.immediate == 1 ? nullptr : "a bit is 0 or 1";
    default:
      return nullptr;
  }
}

inline const char* check_instruction(const VeilCall& call, const Program& p,
                                     const Instruction& ins) {
  const Shape shape = shape_of(ins.op);
  if (!shape.known) return "unknown operation";
  if (!fits_word(shape, ins.word)) return "wrong word width";
  const struct {
    Operand kind;
    int64_t index, step;
  } operands[] = {{shape.dst, ins.dst, ins.dst_step},
                  {shape.a, ins.a, ins.a_step},
                  {shape.b, ins.b, ins.b_step},
                  {shape.c, ins.c, 0}};
  for (const auto& o : operands) {
    if (const char* reason = check_operand(call, p, ins, o.kind, o.index, o.step)) return reason;
  }
  return check_details(call, p, ins);
}

inline const char* check_header(const VeilCall& call) {
  if (call.params_count < FusedParams::kCount) return "program has no header";
  const auto p = params_of<FusedParams>(call);
  if (p.elements < 0 || p.elements > kMaxElements) return "number of elements out of range";
  if (p.word_registers < 0 || p.word_registers > kMaxWordRegisters) {
    return "too many word registers";
  }
  if (p.bit_registers < 0 || p.bit_registers > kMaxBitRegisters) return "too many bit registers";
  const int64_t room = call.params_count - FusedParams::kCount;
  const int64_t count = p.instructions;
  if (count < 0 || count > room / kInstructionParams || count * kInstructionParams != room) {
    return "number of instructions is not that of the parameters";
  }
  return nullptr;
}

inline const char* check_program(const VeilCall& call, int64_t* at) {
  if (const char* reason = check_header(call)) return fault(at, -1, reason);
  const Program p = program_of(call);
  bool stores = false;
  for (int64_t i = 0; i < p.instructions; ++i) {
    const Instruction& ins = p.table[i];
    if (const char* reason = check_instruction(call, p, ins)) return fault(at, i, reason);
    stores = stores || ins.op == STORE || (ins.op == STORE_BITS && ins.count > 0);
  }
  // What is stored exists, so this bounds the time that a program may take.
  return stores || p.elements == 0 ? nullptr : fault(at, -1, "program stores nothing");
}

}  // namespace veil
