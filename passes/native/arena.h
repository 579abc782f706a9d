// Offsets in one arena for blocks that live a while: passes/plan/assign_buffers.py.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace veil {

// Free ranges of one address space; the smallest that fits is taken, the first of these.
class Arena {
 public:
  int64_t take(int64_t size);
  void free(int64_t offset, int64_t size);
  int64_t end() const { return end_; }

 private:
  void add(int64_t offset, int64_t size);
  void remove(std::map<int64_t, int64_t>::iterator range);

  int64_t end_ = 0;
  std::map<int64_t, int64_t> ranges_;               // bytes by offset, never adjacent
  std::set<std::pair<int64_t, int64_t>> by_bytes_;  // the same, by bytes and offset
};

struct Allocated {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

// Of blocks by their first time, each of so many bytes and there until its last time.
Allocated allocate(std::span<const int64_t> first, std::span<const int64_t> last,
                   std::span<const int64_t> bytes);

}  // namespace veil
