#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Where what a loop does comes to be the same again, the rest of its bodies need not be written out to know what they
// do. A short program leaves them out; who reads it sees whether they were the same, and says where things are in the
// whole one.

namespace tidemark::sim {

/// Bodies of a loop that a short program leaves out.
struct LeftOut {
  std::int32_t step = 0;
  std::size_t copies = 0;   ///< op of the short program: where the body comes again for the first time
  std::size_t first = 0;    ///< … from where on bodies refer to nothing but what came since `copies`, or never comes
  std::size_t body = 0;     ///< ops of one
  std::int64_t bodies = 0;  ///< from `first` on
  std::int64_t left_out = 0;  ///< right after those
  std::int32_t period = 1;    ///< micro-batches of a body
  bool operator==(const LeftOut&) const = default;

  [[nodiscard]] std::size_t end() const { return first + static_cast<std::size_t>(bodies) * body; }
  [[nodiscard]] std::size_t ops() const { return static_cast<std::size_t>(left_out) * body; }
};

/// Where an op of the short program is in the whole one.
[[nodiscard]] inline std::size_t op_of_whole(std::span<const LeftOut> all, std::size_t op) {
  std::size_t more = 0;
  for (const LeftOut& its : all) {
    if (op < its.end()) break;
    more += its.ops();
  }
  return op + more;
}
/// The other way round. One that was left out: its fellow in the last body before, and how many bodies of which loop
/// later it came.
struct OpOfShort {
  std::size_t op = 0;
  const LeftOut* loop = nullptr;
  std::size_t bodies_later = 0;
};
[[nodiscard]] inline OpOfShort op_of_short(std::span<const LeftOut> all, std::size_t op) {
  for (const LeftOut& its : all) {
    if (op < its.end()) break;
    if (op < its.end() + its.ops()) {
      const std::size_t since = op - (its.end() - its.body);
      return {its.end() - its.body + since % its.body, &its, since / its.body};
    }
    op -= its.ops();
  }
  return {op, nullptr, 0};
}

}  // namespace tidemark::sim
