// Proof that a fused program stays inside its registers, buffers and keys.
#pragma once
#include <cstdint>

#include "kernels/fused/program.h"

namespace veil {

// What an instruction's operand names.
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
  bool words;  // works on words of 32 or 64 bits; else on bits
  Operand dst, a, b, c;
};

inline Shape shape_of(uint16_t op) {
  using enum Operand;
  switch (op) {
    case LOAD:
      return {true, true, kWord, kBuffer, kNone, kNone};
    case STORE:
      return {true, true, kNone, kBuffer, kWord, kNone};
    case LOOKUP:
      return {true, true, kWord, kBuffer, kWord, kNone};
    case DRAW:
      return {true, true, kWord, kKey, kNone, kNone};
    case CONST:
      return {true, true, kWord, kNone, kNone, kNone};
    case ADD:
    case SUB:
    case MUL:
    case AND:
    case OR:
    case XOR:
      return {true, true, kWord, kWord, kWord, kNone};
    case NEG:
    case NOT:
    case ADD_CONST:
    case MUL_CONST:
    case AND_CONST:
    case SHL:
    case SHR:
    case WIDEN:
    case NARROW:
      return {true, true, kWord, kWord, kNone, kNone};
    case SELECT:
      return {true, true, kWord, kBit, kWord, kWord};
    case PACK:
      return {true, true, kBits, kWord, kNone, kNone};
    case UNPACK:
      return {true, true, kWord, kBits, kNone, kNone};
    case LOAD_BITS:
      return {true, false, kBits, kBuffer, kNone, kNone};
    case STORE_BITS:
      return {true, false, kNone, kBuffer, kBits, kNone};
    case DRAW_BITS:
      return {true, false, kBits, kKey, kNone, kNone};
    case CONST_BITS:
      return {true, false, kBits, kNone, kNone, kNone};
    case XOR_BITS:
    case AND_BITS:
      return {true, false, kBits, kBits, kBits, kNone};
    case NOT_BITS:
      return {true, false, kBits, kBits, kNone, kNone};
    default:
      return {};
  }
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
    case WIDEN:
      return ins.word == 64 ? nullptr : "widens to other than 64 bits";
    case NARROW:
      return ins.word == 32 ? nullptr : "narrows to other than 32 bits";
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
  if (shape.words ? ins.word != 32 && ins.word != 64 : ins.word != 0) return "wrong word width";
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
  if (call.params_count < kHeader) return "program has no header";
  const int64_t* p = call.params;
  if (p[0] < 0 || p[0] > kMaxElements) return "number of elements out of range";
  if (p[1] < 0 || p[1] > kMaxWordRegisters) return "too many word registers";
  if (p[2] < 0 || p[2] > kMaxBitRegisters) return "too many bit registers";
  const int64_t room = call.params_count - kHeader;
  if (p[3] < 0 || p[3] > room / kInstructionParams || p[3] * kInstructionParams != room) {
    return "number of instructions is not that of the parameters";
  }
  return nullptr;
}

inline const char* check_program(const VeilCall& call, int64_t* at) {
  if (const char* reason = check_header(call)) return fault(at, -1, reason);
  const Program p = program_of(call);
  bool stores = false;
  for (int64_t i = 0; i < p.count; ++i) {
    const Instruction& ins = p.instructions[i];
    if (const char* reason = check_instruction(call, p, ins)) return fault(at, i, reason);
    stores = stores || ins.op == STORE || (ins.op == STORE_BITS && ins.count > 0);
  }
  // What is stored exists, so this bounds the time that a program may take.
  return stores || p.elements == 0 ? nullptr : fault(at, -1, "program stores nothing");
}

}  // namespace veil
