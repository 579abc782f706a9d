// The bodies of hopper.cuh.
#include "kernels/cuda/emulator/hopper.cuh"

#include <cstddef>
#include <cstring>

namespace veil::emulator {

void make_barrier(SharedAddress address, int arrivals) {
  if (address % 8 != 0) Launch::fail("a barrier is not aligned");
  const auto count = static_cast<unsigned>(arrivals);
  Launch::now().phases[address] = {.arrivals = count, .pending = count};
}

static PhaseBarrier& barrier_at(SharedAddress address) {
  const auto found = Launch::now().phases.find(address);
  if (found == Launch::now().phases.end()) Launch::fail("a barrier that nobody has made");
  return found->second;
}

void arrive(SharedAddress address) {
  PhaseBarrier& barrier = barrier_at(address);
  if (barrier.pending == 0) Launch::fail("more arrivals than a barrier takes");
  --barrier.pending;
  if (barrier.pending == 0 && barrier.expected == 0) Launch::now().end_phase(barrier);
}

void arrive_and_expect(SharedAddress address, int bytes) {
  barrier_at(address).expected += bytes;
  arrive(address);
}

// Makes the copies that end a phase, where all have arrived and all bytes are on their way.
static void settle(PhaseBarrier& barrier) {
  int bytes = 0;
  for (const Copy& copy : barrier.copies) bytes += copy.bytes;
  if (barrier.pending > 0 || bytes < barrier.expected) return;
  if (bytes > barrier.expected) Launch::fail("more bytes than a barrier expects");
  for (const Copy& copy : barrier.copies) {
    std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  }
  Launch::now().end_phase(barrier);
}

void wait_for_phase(SharedAddress address, unsigned parity) {
  const PhaseBarrier& barrier = barrier_at(address);
  while (barrier.phase % 2 == parity) {
    settle(barrier_at(address));
    if (barrier.phase % 2 != parity) break;
    Launch::now().require_together();
    Launch::now().pause();
  }
}

static void put_copy(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
  auto* place = reinterpret_cast<uint8_t*>(to);
  std::memset(place, kJunk, static_cast<size_t>(bytes));
  barrier_at(barrier).copies.push_back({place, static_cast<const uint8_t*>(from), bytes, bytes});
}

static void require_copy(SharedAddress to, const void* from, int bytes) {
  const auto source = reinterpret_cast<uintptr_t>(from);
  const auto offset = to - reinterpret_cast<uintptr_t>(dynamic_shared());
  if (to % 16 != 0 || source % 16 != 0 || bytes % 16 != 0) {
    Launch::fail("a copy in bulk is not aligned");
  }
  if (offset + static_cast<size_t>(bytes) > Launch::now().shared_bytes()) {
    Launch::fail("a copy in bulk beside dynamic shared memory");
  }
}

void copy_in_bulk(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
  require_copy(to, from, bytes);
  put_copy(to, from, bytes, barrier);
}

void wait_for_cluster() { Launch::now().wait_for_cluster(); }

// The same place in another block's shared memory.
static SharedAddress address_in(SharedAddress address, unsigned rank) {
  Launch& launch = Launch::now();
  return address - reinterpret_cast<uintptr_t>(launch.dynamic_shared()) +
         reinterpret_cast<uintptr_t>(launch.dynamic_shared(rank));
}

void arrive_in(SharedAddress barrier, unsigned rank) { arrive(address_in(barrier, rank)); }

void copy_in_bulk_to(unsigned blocks, SharedAddress to, const void* from, int bytes,
                     SharedAddress barrier) {
  require_copy(to, from, bytes);
  for (unsigned rank = 0; rank < blocks; ++rank) {
    put_copy(address_in(to, rank), from, bytes, address_in(barrier, rank));
  }
}

void wait_for_group(int number) { Launch::now().wait_for_some(number, kGroup); }

// As the PTX ISA has it, but for addresses, which count from dynamic shared memory.
uint64_t matrix_at(SharedAddress address) {
  const auto offset = address - reinterpret_cast<uintptr_t>(dynamic_shared());
  if (offset % 16 != 0 || offset >= Launch::now().shared_bytes()) {
    Launch::fail("a matrix beside dynamic shared memory");
  }
  return offset >> 4 | uint64_t{1} << 16 | uint64_t{512 >> 4} << 32 | kSwizzle64 << 62;
}

// The dynamic shared memory of a block, as bytes that are multiplied.
struct Shared {
  const int8_t* start = reinterpret_cast<const int8_t*>(dynamic_shared());
  size_t bytes = Launch::now().shared_bytes();
};

// Where 32 bytes of a line lie in shared memory, 16 side by side.
struct Line {
  const int8_t* halves[2];
};

static inline const int8_t* half_at(const Shared& shared, size_t at) {
  if (at + 16 > shared.bytes) Launch::fail("a matrix of other memory");
  return shared.start + at;
}

// As that of factors: of columns that fill up a tile.
static inline bool are_zero(const Line& line) {
  uint64_t words[4];
  for (int half = 0; half < 2; ++half) std::memcpy(&words[2 * half], line.halves[half], 16);
  return (words[0] | words[1] | words[2] | words[3]) == 0;
}

static inline void read_factors(int16_t (&to)[32], const Line& line) {
  for (int i = 0; i < 32; ++i) to[i] = line.halves[i / 16][i % 16];
}

// A line of the matrix that a descriptor tells of.
static inline Line swizzled_line(const Shared& shared, uint64_t matrix, unsigned line) {
  const size_t start = (matrix & 0x3fff) << 4, eight_lines = (matrix >> 32 & 0x3fff) << 4;
  Line found;
  for (size_t half = 0; half < 2; ++half) {
    const size_t at = start + line / 8 * eight_lines + line % 8 * 64 + 16 * half;
    found.halves[half] = half_at(shared, at ^ (at >> 7 & 3) << 4);
  }
  return found;
}

// As matrix_at, but of core matrices of 8 lines of 16 bytes.
uint64_t core_matrices_at(SharedAddress address, int next_half, int next_lines) {
  const auto offset = address - reinterpret_cast<uintptr_t>(dynamic_shared());
  if (offset % 16 != 0 || offset >= Launch::now().shared_bytes()) {
    Launch::fail("a matrix beside dynamic shared memory");
  }
  if (next_half % 16 != 0 || next_lines % 16 != 0)
    Launch::fail("core matrices that are not aligned");
  return offset >> 4 | static_cast<uint64_t>(next_half >> 4) << 16 |
         static_cast<uint64_t>(next_lines >> 4) << 32;
}

static inline Line line_of_core_matrices(const Shared& shared, uint64_t matrix, unsigned line) {
  const size_t start = (matrix & 0x3fff) << 4, next_half = (matrix >> 16 & 0x3fff) << 4;
  const size_t eight_lines = (matrix >> 32 & 0x3fff) << 4;
  Line found;
  for (size_t half = 0; half < 2; ++half) {
    const size_t at = start + half * next_half + line / 8 * eight_lines + line % 8 * 16;
    found.halves[half] = half_at(shared, at);
  }
  return found;
}

void begin_products() { Launch::now().fiber().may_multiply = true; }

void multiply_bytes(int32_t (&c)[128], uint64_t a, uint64_t b) {
  Fiber& me = Launch::now().fiber();
  if (!me.may_multiply) Launch::fail("products that have not begun");
  if (exchange(a, 0) != a || exchange(b, 0) != b) Launch::fail("a warp of several matrices");
  if (a >> 62 != kSwizzle64) Launch::fail("a matrix of another swizzle");
  if (b >> 62 != kSwizzle64 && b >> 62 != 0) Launch::fail("a matrix of another swizzle");
  me.products.push_back({c, 128, a, b});
}

void multiply_held(int32_t* c, unsigned count, const uint32_t (&a)[4], uint64_t b) {
  Fiber& me = Launch::now().fiber();
  if (!me.may_multiply) Launch::fail("products that have not begun");
  if (exchange(b, 0) != b) Launch::fail("a warp of several matrices");
  if (b >> 62 != 0) Launch::fail("a matrix of another swizzle");
  me.products.push_back({c, count, 0, b, a});
}

void end_products() {
  Fiber& me = Launch::now().fiber();
  me.may_multiply = false;
  me.bundles.push_back(me.products.size());
}

// The two rows of a thread's sums, of a matrix that the warp holds in registers.
static void read_held(int16_t (&rows)[2][32], const uint32_t* held) {
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  const unsigned group = me.number % kWarp / 4, place = me.number % 4;
  auto& matrix = reinterpret_cast<Factors*>(launch.warp().factors[me.parity ^= 1])->a;
  for (unsigned i = 0; i < 4; ++i) {
    widen(&matrix[group + 8 * (i % 2)][4 * place + 16 * (i / 2)], held[i]);
  }
  launch.wait_for_warp();
  for (unsigned half = 0; half < 2; ++half) {
    std::memcpy(rows[half], matrix[group + 8 * half], sizeof rows[half]);
  }
}

// This thread's sums of one product.
VEIL_BY_PROCESSOR static void make_product(const LateProduct& product, unsigned thread) {
  const unsigned row = thread / kWarp * 16 + thread % kWarp / 4, column = thread % 4 * 2;
  const Shared shared;
  int16_t rows[2][32], lines[2][32];
  if (product.held) {
    read_held(rows, product.held);
  } else {
    for (unsigned half = 0; half < 2; ++half)
      read_factors(rows[half], swizzled_line(shared, product.a, row + 8 * half));
  }
  const bool is_swizzled = product.b >> 62 == kSwizzle64;
  const bool add_nothing = are_zero(rows[0]) && are_zero(rows[1]);
  for (unsigned i = 0; i < product.count / 4; ++i) {
    Line found[2];
    for (unsigned next = 0; next < 2; ++next) {
      const unsigned across = column + i * 8 + next;
      found[next] = is_swizzled ? swizzled_line(shared, product.b, across)
                                : line_of_core_matrices(shared, product.b, across);
    }
    if (add_nothing || (are_zero(found[0]) && are_zero(found[1]))) continue;
    for (unsigned next = 0; next < 2; ++next) read_factors(lines[next], found[next]);
    add_dots(&product.sums[i * 4], rows[0], rows[1], lines[0], lines[1]);
  }
}

void make_products(size_t pending) {
  Fiber& me = Launch::now().fiber();
  if (me.bundles.size() > pending) {
    const size_t ended = me.bundles.size() - pending, count = me.bundles[ended - 1];
    for (size_t i = 0; i < count; ++i) make_product(me.products[i], me.thread.x % kGroup);
    me.products.erase(me.products.begin(), me.products.begin() + static_cast<ptrdiff_t>(count));
    me.bundles.erase(me.bundles.begin(), me.bundles.begin() + static_cast<ptrdiff_t>(ended));
    for (size_t& bundle : me.bundles) bundle -= count;
  }
  Launch::now().wait_for_warp();
}

void require_sums(const int32_t* sums) {
  for (const LateProduct& product : Launch::now().fiber().products) {
    if (product.sums == sums) Launch::fail("sums that products still add to");
  }
}

}  // namespace veil::emulator
