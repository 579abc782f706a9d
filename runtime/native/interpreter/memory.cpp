#include "runtime/native/interpreter/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace veil {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

size_t whole_pages(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

Addresses::Addresses(size_t bytes) : size_(std::max(kPage, whole_pages(bytes))) {
  void* all = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(all);
}

Addresses::~Addresses() { munmap(data_, size_); }

Pages::Pages(size_t bytes)
    : size_(bytes),
      all_(whole_pages(bytes) + 2 * kPage),
      data_(all_.data() + kPage),
      mapped_(all_.size() - 2 * kPage) {
  if (mapped_ > 0 && mprotect(data_, mapped_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  // Advice only, so what the system answers does not matter: shares stay out of core dumps, and
  // large arenas want fewer entries of the address cache.
#if defined(MADV_DONTDUMP)
  madvise(data_, mapped_, MADV_DONTDUMP);
#endif
#if defined(MADV_HUGEPAGE)
  if (mapped_ >= kHugePage) madvise(data_, mapped_, MADV_HUGEPAGE);
#endif
}

void Pages::wipe() {
  if (writable_) explicit_bzero(data_, size_);
}

void Pages::protect() { writable_ = mprotect(data_, mapped_, PROT_READ) != 0; }

}  // namespace veil
