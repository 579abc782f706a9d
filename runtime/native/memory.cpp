#include "runtime/native/memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace veil {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Pages::Pages(size_t bytes) : size_(bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  mapped_ = (bytes + kPage - 1) / kPage * kPage;
  void* all = mmap(nullptr, mapped_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(all) + kPage;
  void* pages = data_;
  if (mapped_ > 0 && mprotect(pages, mapped_, PROT_READ | PROT_WRITE) != 0) {
    munmap(all, mapped_ + 2 * kPage);
    throw std::bad_alloc();
  }
  // Advice only, so what the system answers does not matter: shares stay out of core dumps, and
  // large arenas want fewer entries of the address cache.
#if defined(MADV_DONTDUMP)
  madvise(pages, mapped_, MADV_DONTDUMP);
#endif
#if defined(MADV_HUGEPAGE)
  if (mapped_ >= kHugePage) madvise(pages, mapped_, MADV_HUGEPAGE);
#endif
}

Pages::~Pages() { munmap(data_ - kPage, mapped_ + 2 * kPage); }

void Pages::wipe() {
  if (writable_) explicit_bzero(data_, size_);
}

void Pages::protect() { writable_ = mprotect(data_, mapped_, PROT_READ) != 0; }

}  // namespace veil
