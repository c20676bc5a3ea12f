#pragma once

#include <cstdint>
#include <vector>

#include "kernels/execute/page_scale.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// How a payload is cut into the parts of a group's members: words, place by place, one after the other.
class Cut {
 public:
  Cut() = default;
  explicit Cut(const std::vector<std::int64_t>& parts);

  [[nodiscard]] std::int64_t begin(std::int64_t place) const { return begins_[static_cast<std::size_t>(place)]; }
  [[nodiscard]] std::int64_t size(std::int64_t place) const { return begin(place + 1) - begin(place); }
  [[nodiscard]] std::int64_t end() const { return begins_.back(); }
  [[nodiscard]] std::int64_t largest() const;

 private:
  std::vector<std::int64_t> begins_{0};  // by place, and the end
};

/// What one member puts into a collective and takes out of it. An all-gather goes by what it receives, a reduce-scatter
/// by what it sends; an even one has equal cuts.
struct Parts {
  std::int64_t whole = 0;  ///< words of the larger side
  Cut sends, receives;
};
/// Words that a copy moves: of payloads of so many, where they begin in each.
struct Moved {
  std::int64_t from = 0, to = 0, words = 0;
};
[[nodiscard]] Moved moved_by(const Program& program, const Memcpy& copy, PageScale scale, std::int64_t source_words,
                             std::int64_t target_words);

[[nodiscard]] Parts even_parts(std::int64_t whole, std::int64_t members);
[[nodiscard]] Parts parts_of(const Program& program, const Collective& call, std::int64_t members, PageScale scale);

}  // namespace tidemark::execute
