// The one calling convention of all kernels, CPU and CUDA alike: a function over a list of buffers
// and a parameter blob. Framework-free: no Python, no allocation by a kernel, no knowledge of
// parties.
#pragma once
#include <cstdint>

#include "kernels/declared.h"

extern "C" {

enum VeilBufferKind : uint32_t {
  VEIL_WORDS32 = 0,  // ring elements of at most 32 bits, one in each 32-bit word
  VEIL_WORDS64 = 1,  // ring elements of at most 64 bits, one in each 64-bit word
  VEIL_PACKED = 2,   // as on the wire: element i is bits [i*bits, (i+1)*bits), padded to 8 bytes
  VEIL_PLANES = 3,   // bit-sliced: plane p is ceil(elements / 64) words; bit e of it is element e
};

constexpr int VEIL_MAX_RANK = 6;

// Words above a ring's width (bits < 32 or < 64) are junk unless a kernel says otherwise: ring
// maths modulo 2^32 or 2^64 is ring maths modulo 2^bits, and what is sent is packed to `bits`
// first.
//
// The caller has proven that every element of a buffer lies inside its memory and is aligned (4
// bytes for WORDS32, 8 for the others), that no extent is negative, that the product of the extents
// and all byte offsets fit an int64 with room to spare (2^56), and that `bits` is 1 to 32
// (WORDS32), 1 to 64 (WORDS64, PACKED) or at least 1 (PLANES).
struct VeilBuffer {
  uint8_t* data;
  uint32_t kind;
  uint32_t bits;                   // width of the ring; for planes: the number of planes
  uint32_t rank;                   // words: of shape and strides; packed, planes: 1
  uint32_t writable;               // 0: a kernel's `check` refuses to write here (public constants)
  int64_t shape[VEIL_MAX_RANK];    // in elements
  int64_t strides[VEIL_MAX_RANK];  // in elements; 0 repeats; words only
};

struct VeilContext {
  const uint8_t* keys;  // key_count AES-128 keys of 16 bytes
  uint32_t key_count;
  uint32_t run;  // the inference's number, part of every draw's counter block
  uint32_t threads;
  uint32_t reserved;
  uint8_t* scratch;  // `scratch_bytes` for each thread, aligned to 64 bytes, contents junk
  int64_t scratch_bytes;
  // Calls body(state, i, thread) for i in [0, count), on up to `threads` threads, `thread` being
  // the number of the one that runs it; returns when all are done.
  void (*parallel_for)(void* pool, int64_t count,
                       void (*body)(void* state, int64_t index, uint32_t thread), void* state);
  void* pool;
};

struct VeilCall {
  const VeilBuffer* buffers;
  uint32_t buffer_count;
  uint32_t params_count;
  const int64_t* params;
  const VeilContext* context;
};

struct VeilKernel {
  const char* name;
  // Proves that `run` stays inside its buffers and its tables, whatever the plan says (plans are
  // untrusted); called once a step, when a plan is opened. Returns null, or what is wrong in a few
  // words, with *at the number of the buffer, parameter or instruction it is about (-1: none).
  const char* (*check)(const VeilCall* call, int64_t* at);
  // Bytes of scratch memory that `run` wants for each thread; called after a `check` that passed.
  int64_t (*scratch_bytes)(const VeilCall* call);
  // Returns null, or what failed in a few words. On a CPU, nothing fails that `check` let pass.
  const char* (*run)(const VeilCall* call);
  // Null where a call can't be cut, else `run` for elements [first, last) alone, as far as there
  // are so many: both multiples of VEIL_PART_ELEMENTS, or `last` beyond the end.
  const char* (*run_part)(const VeilCall* call, int64_t first, int64_t last);
};

// Exported by each kernel library, one library an instruction set: the kernels in the order of
// kernels/__init__.py.
const VeilKernel* veil_kernels(uint32_t* count);
}
