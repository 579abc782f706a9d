// What each party runs between two rounds, chains joined: passes/plan/fuse_local.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"
#include "passes/native/rounds.h"

namespace veil {

// Lists of rows one behind another: list i is rows[first[i] : first[i + 1]].
struct Rows {
  std::vector<int64_t> first{0};
  std::vector<int32_t> rows;
  void end() { first.push_back(static_cast<int64_t>(rows.size())); }
};

// Columns of a program, and where its nodes run.
struct Scheduled {
  std::span<const uint32_t> facts;
  std::span<const int32_t> parties, stages;
  std::span<const int64_t> elements;
  std::span<const uint8_t> live;
  std::span<const Position> at;
  const Operands& operands;
};

// Actions by party and position, each segment's in order, and the nodes that must lie in memory.
struct Fused {
  std::vector<int32_t> party;
  std::vector<Position> at;
  std::vector<uint8_t> fused;
  Rows nodes, reads;
  std::vector<int32_t> stored, as_words;
};

Fused fuse_local(const Scheduled& program);

}  // namespace veil
