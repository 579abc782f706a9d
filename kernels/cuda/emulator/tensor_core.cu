// The bodies of tensor_core.cuh.
#include "kernels/cuda/emulator/tensor_core.cuh"

#include <cstddef>
#include <cstring>

namespace veil::emulator {

void copy_later(SharedAddress to, const void* from, int valid, int bytes) {
  const auto source = reinterpret_cast<uintptr_t>(from);
  const uint8_t* shared = dynamic_shared();
  const auto offset = to - reinterpret_cast<uintptr_t>(shared);
  const auto size = static_cast<size_t>(bytes);
  if (to % size != 0 || source % size != 0) Launch::fail("an asynchronous copy is not aligned");
  if (valid < 0 || valid > bytes) Launch::fail("an asynchronous copy of more than its bytes");
  if (offset + size > Launch::now().shared_bytes()) {
    Launch::fail("an asynchronous copy beside dynamic shared memory");
  }
  Launch::now().fiber().copies.push_back(
      {reinterpret_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes, valid});
}

void end_copies() {
  Fiber& fiber = Launch::now().fiber();
  fiber.groups.push_back(fiber.copies.size());
}

void make_copies(size_t pending) {
  Fiber& fiber = Launch::now().fiber();
  if (fiber.groups.size() <= pending) return;
  const size_t ended = fiber.groups.size() - pending, count = fiber.groups[ended - 1];
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = fiber.copies[i];
    std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
    if (copy.valid > 0) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.valid));
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<ptrdiff_t>(count));
  fiber.groups.erase(fiber.groups.begin(), fiber.groups.begin() + static_cast<ptrdiff_t>(ended));
  for (size_t& group : fiber.groups) group -= count;
}

void load_matrices(uint32_t (&to)[4], SharedAddress line) {
  if (line % 16 != 0) Launch::fail("a line of a matrix is not aligned");
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  const unsigned lane = me.number % kWarp;
  uint64_t* lines = launch.warp().slots[me.parity ^= 1];
  lines[lane] = line;
  launch.wait_for_warp();
  for (unsigned m = 0; m < 4; ++m) {
    const auto* from = reinterpret_cast<const uint8_t*>(lines[8 * m + lane / 4]);
    std::memcpy(&to[m], from + 4 * (lane % 4), 4);
  }
}

VEIL_BY_PROCESSOR void multiply_bytes(int32_t (&c)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) {
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  const unsigned lane = me.number % kWarp, group = lane / 4, place = lane % 4;
  auto& factors = *reinterpret_cast<Factors*>(launch.warp().factors[me.parity ^= 1]);
  for (unsigned i = 0; i < 4; ++i) {
    widen(&factors.a[group + 8 * (i % 2)][4 * place + 16 * (i / 2)], a[i]);
  }
  for (unsigned i = 0; i < 2; ++i) widen(&factors.b[group][4 * place + 16 * i], b[i]);
  launch.wait_for_warp();
  if (are_zero(factors.a[group]) && are_zero(factors.a[group + 8])) return;
  if (are_zero(factors.b[2 * place]) && are_zero(factors.b[2 * place + 1])) return;
  add_dots(c, factors.a[group], factors.a[group + 8], factors.b[2 * place],
           factors.b[2 * place + 1]);
}

}  // namespace veil::emulator
