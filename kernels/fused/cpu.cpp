// The fused program's interpreter: every instruction runs on one block of elements whose registers
// lie in cache, then the next block.
#include <cstdint>
#include <cstring>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/aes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/planes.h"
#include "kernels/fused/check.h"
#include "kernels/fused/program.h"
#include "kernels/fused/streams.h"
#include "kernels/fused/words.h"

namespace veil {
namespace {

// Opcodes as bits of a word: an instruction is looked for in one step.
#define VEIL_BIT(name, ...) | uint64_t{1} << name
constexpr uint64_t kBinary = 0 VEIL_FOR_EACH_BINARY(VEIL_BIT);
constexpr uint64_t kArithmetic = kBinary VEIL_FOR_EACH_WITH_CONSTANT(VEIL_BIT)
    VEIL_FOR_EACH_UNARY(VEIL_BIT) VEIL_BIT(WIDEN) VEIL_BIT(NARROW);
#undef VEIL_BIT

// One thread's view of a call while it walks over blocks.
class Interpreter {
 public:
  Interpreter(const VeilCall& call, const Program& program, const RegisterFile& file,
              const Streams& streams, uint8_t* scratch)
      : call_(call),
        program_(program),
        file_(file),
        streams_(streams),
        words_(scratch),
        bits_(reinterpret_cast<uint64_t*>(scratch + program.word_registers * file.word_bytes)) {
    for (int64_t r = 0; r < program.word_registers; ++r) places_[r] = words_ + r * file.word_bytes;
  }

  void run_block(int64_t number) {
    block_.first = number * file_.block;
    const int64_t left = program_.elements - block_.first;
    block_.count = left < file_.block ? left : file_.block;
    block_.padded = (block_.count + 63) / 64 * 64;
    vector_words_ = (block_.padded / 64 + 7) / 8 * 8;
    for (int64_t i = 0; i < program_.instructions; ++i) {
      const Instruction& ins = program_.table[i];
      if (ins.word == 64) {
        run_words<uint64_t>(ins);
      } else if (ins.word == 32) {
        run_words<uint32_t>(ins);
      } else {
        run_bits(ins);
      }
    }
  }

 private:
  // What a word register holds: in its own memory, or where it was loaded from or is stored.
  template <class T>
  T* word(int64_t r) const {
    return static_cast<T*>(__builtin_assume_aligned(places_[r], 64));
  }

  // Where an instruction's result goes: straight to the buffer that the next one stores it in, if
  // it may. Operands are looked up before.
  template <class T>
  T* result(const Instruction& ins) {
    const Instruction* next = &ins + 1;
    T* at = nullptr;
    if (next < program_.table + program_.instructions && next->op == STORE && next->b == ins.dst &&
        next->word == 8 * sizeof(T)) {
      at = in_place<T>(next->a);
    }
    if (at == nullptr) at = reinterpret_cast<T*>(words_ + ins.dst * file_.word_bytes);
    places_[ins.dst] = reinterpret_cast<uint8_t*>(at);
    return static_cast<T*>(__builtin_assume_aligned(at, 64));
  }

  // A whole block of a buffer, if a register may be it.
  template <class T>
  T* in_place(int64_t number) const {
    return block_.count == block_.padded ? streams_.in_place<T>(number, block_.first) : nullptr;
  }

  uint64_t* bit(int64_t r) const {
    return static_cast<uint64_t*>(__builtin_assume_aligned(bits_ + r * file_.bit_words, 64));
  }

  const VeilBuffer& buffer(int64_t number) const { return call_.buffers[number]; }

  uint64_t nonce(const Instruction& ins) const {
    return call_.context->run | static_cast<uint64_t>(ins.immediate) << 32;
  }

  // The expanded key; a program draws from one or two keys, so a small cache always hits.
  const AesKey& key(int32_t number) {
    CachedKey& entry = keys_[number % kCachedKeys];
    if (entry.number != number) {
      entry.expanded = aes_expand(call_.context->keys + 16 * int64_t{number});
      entry.number = number;
    }
    return entry.expanded;
  }

  template <class T>
  void run_words(const Instruction& ins) {
    if (kArithmetic >> ins.op & 1) return run_arithmetic<T>(ins);
    const T *b = nullptr, *c = nullptr;
    switch (ins.op) {
      case LOAD:
        return load_words<T>(ins);
      case STORE:
        b = word<T>(ins.b);
        if (b != in_place<T>(ins.a)) store(buffer(ins.a), b, block_);
        return;
      case LOOKUP:
        b = word<T>(ins.b);
        return lookup(result<T>(ins), buffer(ins.a), b, block_.padded);
      case DRAW:
        return draw(result<T>(ins), key(ins.a), nonce(ins), block_, ins.count);
      case CONST:
        return fill_words(result<T>(ins), static_cast<T>(ins.immediate), block_.padded);
      case SELECT:
        b = word<T>(ins.b), c = word<T>(ins.c);
        return select_words(result<T>(ins), bit(ins.a), b, c, block_.padded / 64);
      case PACK:
        return words_to_planes(bit(ins.dst), ins.dst_step * file_.bit_words, word<T>(ins.a),
                               block_.padded / 64, ins.immediate, ins.count);
      case UNPACK:
        return planes_to_words(result<T>(ins), bit(ins.a), ins.a_step * file_.bit_words,
                               block_.padded / 64, ins.immediate, ins.count);
    }
  }

  template <class T>
  void load_words(const Instruction& ins) {
    T* at = ins.c == 0 ? in_place<T>(ins.a) : nullptr;
    if (at == nullptr) return load(result<T>(ins), buffer(ins.a), block_, ins);
    places_[ins.dst] = reinterpret_cast<uint8_t*>(at);
  }

  template <class T>
  void run_arithmetic(const Instruction& ins) {
    if (ins.op == WIDEN) {
      const uint32_t* from = word<uint32_t>(ins.a);
      return widen(result<uint64_t>(ins), from, block_.padded);
    }
    if (ins.op == NARROW) {
      const uint64_t* from = word<uint64_t>(ins.a);
      return narrow(result<uint32_t>(ins), from, block_.padded);
    }
    const int64_t n = block_.padded;
    const T* a = word<T>(ins.a);
    const T* b = kBinary >> ins.op & 1 ? word<T>(ins.b) : nullptr;
    T* out = result<T>(ins);
    const T c = static_cast<T>(ins.immediate);
    switch (ins.op) {
#define VEIL_RUN(name, sign) \
  case name:                 \
    return each(n, out, a, b, [](T x, T y) { return T(x sign y); });
      VEIL_FOR_EACH_BINARY(VEIL_RUN)
#undef VEIL_RUN
#define VEIL_RUN(name, sign) \
  case name:                 \
    return each(n, out, a, [c](T x) { return T(x sign c); });
      VEIL_FOR_EACH_WITH_CONSTANT(VEIL_RUN)
#undef VEIL_RUN
#define VEIL_RUN(name, sign) \
  case name:                 \
    return each(n, out, a, [](T x) { return T(sign x); });
      VEIL_FOR_EACH_UNARY(VEIL_RUN)
#undef VEIL_RUN
    }
  }

  void run_bits(const Instruction& ins) {
    switch (ins.op) {
      case LOAD_BITS:
        return load_bits(ins);
      case STORE_BITS:
        return store_bits(ins);
      case DRAW_BITS:
        return draw_bits(ins);
      default:
        break;
    }
    for (int64_t j = 0; j < ins.count; ++j) {
      uint64_t* out = bit(ins.dst + j * ins.dst_step);
      if (ins.op == CONST_BITS) {
        fill_words(out, -static_cast<uint64_t>(ins.immediate), vector_words_);
        continue;
      }
      const uint64_t* a = bit(ins.a + j * ins.a_step);
      const uint64_t* b = ins.op == NOT_BITS ? a : bit(ins.b + j * ins.b_step);
      switch (ins.op) {
#define VEIL_RUN(name, sign)                                                 \
  case name:                                                                 \
    each_vector(out, a, b, [](uint64_t x, uint64_t y) { return x sign y; }); \
    break;
        VEIL_FOR_EACH_GATE(VEIL_RUN)
#undef VEIL_RUN
        case NOT_BITS:
          each_vector(out, a, b, [](uint64_t x, uint64_t) { return ~x; });
          break;
      }
    }
  }

  template <class F>
  void each_vector(uint64_t* out, const uint64_t* a, const uint64_t* b, F f) const {
    for (int64_t i = 0; i < vector_words_; i += 8) {
#pragma GCC ivdep
      for (int64_t k = i; k < i + 8; ++k) out[k] = f(a[k], b[k]);
    }
  }

  uint64_t* plane(const Instruction& ins, int64_t j) const {
    const VeilBuffer& b = buffer(ins.a);
    const int64_t number = ins.immediate + j * ins.a_step;
    return reinterpret_cast<uint64_t*>(b.data) + number * plane_words(b) + block_.first / 64;
  }

  void load_bits(const Instruction& ins) const {
    for (int64_t j = 0; j < ins.count; ++j) {
      std::memcpy(bit(ins.dst + j * ins.dst_step), plane(ins, j), block_.padded / 8);
    }
  }

  void store_bits(const Instruction& ins) const {
    const int64_t tail = block_.count % 64;
    for (int64_t j = 0; j < ins.count; ++j) {
      uint64_t* to = plane(ins, j);
      std::memcpy(to, bit(ins.b + j * ins.b_step), block_.padded / 8);
      if (tail != 0) to[block_.count / 64] &= (uint64_t{1} << tail) - 1;
    }
  }

  // Plane p of a draw of n elements begins at keystream block p * ceil(n / 128).
  void draw_bits(const Instruction& ins) {
    const uint64_t plane_blocks = (program_.elements + 127) / 128;
    CounterRows rows;
    rows.nonce = nonce(ins);
    rows.first = ins.b * plane_blocks + block_.first / 128;
    rows.row_step = static_cast<int64_t>(ins.a_step) * plane_blocks;
    rows.rows = ins.count;
    rows.blocks = (block_.padded + 127) / 128;
    rows.out = reinterpret_cast<uint8_t*>(bit(ins.dst));
    rows.out_step = ins.dst_step * file_.bit_words * 8;
    aes_counter(key(ins.a), rows);
  }

  static constexpr int kCachedKeys = 4;
  struct CachedKey {
    int32_t number = -1;
    AesKey expanded;
  };

  const VeilCall& call_;
  const Program& program_;
  const RegisterFile& file_;
  const Streams& streams_;
  uint8_t* words_;
  uint64_t* bits_;
  Block block_{};
  int64_t vector_words_ =
      0;  // 64-bit words of a bit register that this block fills, in whole vectors
  CachedKey keys_[kCachedKeys];
  uint8_t* places_[kMaxWordRegisters];
};

int64_t scratch_bytes(const VeilCall* call) { return register_file(program_of(*call)).bytes; }

const char* run_part(const VeilCall* call, int64_t first_element, int64_t last_element) {
  const Program program = program_of(*call);
  const RegisterFile file = register_file(program);
  const int64_t end = last_element < program.elements ? last_element : program.elements;
  if (first_element >= end) return nullptr;
  const int64_t before = first_element / file.block;
  const int64_t blocks = (end + file.block - 1) / file.block - before;
  // A thread is worth waking for some 50 microseconds of work.
  constexpr int64_t kGrain = int64_t{1} << 17;
  const Streams streams(*call, program);
  const int64_t work = saturating_product(end - first_element, program.instructions);
  auto part = [&](int64_t, int64_t first, int64_t last, uint8_t* scratch) {
    Interpreter interpreter(*call, program, file, streams, scratch);
    for (int64_t b = first; b < last; ++b) interpreter.run_block(before + b);
  };
  parallel_grid(*call->context, 1, blocks, work, kGrain, part);
  return nullptr;
}

const char* run(const VeilCall* call) { return run_part(call, 0, kMaxElements); }

const char* check(const VeilCall* call, int64_t* at) { return check_program(*call, at); }

}  // namespace
}  // namespace veil

extern const VeilKernel veil_fused;
const VeilKernel veil_fused = {"fused", veil::check, veil::scratch_bytes, veil::run,
                               veil::run_part};
