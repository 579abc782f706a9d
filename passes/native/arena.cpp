#include "passes/native/arena.h"

#include <functional>
#include <iterator>
#include <queue>
#include <tuple>

namespace veil {

int64_t Arena::take(int64_t size) {
  const auto fit = by_bytes_.lower_bound({size, 0});
  if (fit == by_bytes_.end()) {
    int64_t offset = end_;
    if (!ranges_.empty()) {
      const auto last = std::prev(ranges_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        remove(last);
      }
    }
    end_ = offset + size;
    return offset;
  }
  const auto [found, offset] = *fit;
  remove(ranges_.find(offset));
  if (found > size) add(offset + size, found - size);
  return offset;
}

void Arena::free(int64_t offset, int64_t size) {
  if (size == 0) return;
  const auto next = ranges_.lower_bound(offset);
  if (next != ranges_.end() && offset + size == next->first) {
    size += next->second;
    remove(next);
  }
  const auto after = ranges_.lower_bound(offset);
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      remove(before);
    }
  }
  add(offset, size);
}

void Arena::add(int64_t offset, int64_t size) {
  ranges_[offset] = size;
  by_bytes_.insert({size, offset});
}

void Arena::remove(std::map<int64_t, int64_t>::iterator range) {
  by_bytes_.erase({range->second, range->first});
  ranges_.erase(range);
}

Allocated allocate(std::span<const int64_t> first, std::span<const int64_t> last,
                   std::span<const int64_t> bytes) {
  using End = std::tuple<int64_t, int64_t, int64_t>;  // last time, offset, bytes
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  Allocated found;
  Arena arena;
  for (size_t i = 0; i < first.size(); ++i) {
    while (!ends.empty() && std::get<0>(ends.top()) < first[i]) {
      const auto [time, offset, size] = ends.top();
      ends.pop();
      arena.free(offset, size);
    }
    found.offsets.push_back(arena.take(bytes[i]));
    ends.emplace(last[i], found.offsets.back(), bytes[i]);
  }
  found.bytes = arena.end();
  return found;
}

}  // namespace veil
