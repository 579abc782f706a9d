// What native passes ask of operations; passes/facts.py makes these of ir/party/ops.py.
#pragma once

#include <cstdint>

namespace veil {

enum Fact : uint32_t {
  kRoot = 1,            // programs are there for it
  kEarly = 2,           // it is scheduled as early as it can be
  kSend = 4,            // it crosses
  kKept = 8,            // it is copied over what was there before
  kView = 16,           // it lies in its operand's memory
  kLoaded = 32,         // it is in memory before any step runs
  kRemade = 64,         // it is made again where it is read
  kElementwise = 128,   // element i of it is made of elements i
  kFusible = 256,       // it may be an instruction of a fused program
  kReshape = 512,       // it has its operand's elements, in order
  kConst = 1024,        // one public number for each element
  kDraw = 2048,         // uniform randomness
  kLookup = 4096,       // its second operand is a table
  kCast = 8192,         // words of another width
  kSomePlanes = 16384,  // some of its operand's planes
  kStack = 32768,       // its operands' planes, one after another
};

}  // namespace veil
