#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/program.hpp"

// Where a program defines what it refers to by number, in terms that stay the same when more micro-batches come before:
// the micro-batch, and how many of the kind it had defined.

namespace tidemark::sim::repeating {

// What a program numbers, one after the other, as it makes it; a name as it first comes up.
enum class Numbered : std::uint8_t { Buffer, Event, Name };
inline constexpr std::size_t numbered_kinds = 3;
constexpr std::size_t index(Numbered kind) { return static_cast<std::size_t>(kind); }

// Where the host thread is, as marks tell. Micro-batches are counted over all steps.
struct Position {
  std::int32_t step = 0;
  std::int32_t first = 0;    // micro-batch of the step
  std::int32_t latest = -1;  // that has begun
  bool in_pass = false;

  /// How many micro-batches begin with the mark.
  std::int32_t enter(const Mark& mark) {
    if (mark.step != step) {
      step = mark.step;
      first = latest + 1;
    }
    in_pass = step > 0 && mark.micro_batch >= 0;
    const std::int32_t begun = in_pass ? std::max(0, first + mark.micro_batch - latest) : 0;
    latest += begun;
    return begun;
  }
};

// Where a number is defined: the latest micro-batch then, and how many of its kind had been since that began. Outside
// passes the number is its own place.
struct Definition {
  std::int32_t since = -1;
  std::int32_t place = 0;
};

// Everything numbered in a program, by where it is defined.
class Definitions {
 public:
  struct MicroBatch {
    std::size_t begin = 0;  // op
    std::int32_t step = 0;
    std::int32_t first_of_step = 0;
    std::array<std::int32_t, numbered_kinds> first{};  // number of each kind from then on
  };

  explicit Definitions(const Program& program);

  [[nodiscard]] bool in_order() const { return in_order_; }
  [[nodiscard]] Definition of(Numbered kind, std::int32_t number) const {
    return definitions_[index(kind)][static_cast<std::size_t>(number)];
  }
  [[nodiscard]] std::int32_t number(Numbered kind, Definition definition) const {
    return definition.since < 0 ? definition.place : (*this)[definition.since].first[index(kind)] + definition.place;
  }
  [[nodiscard]] const MicroBatch& operator[](std::int32_t micro_batch) const {
    return micro_batches[static_cast<std::size_t>(micro_batch)];
  }
  /// Whether a buffer is live where a micro-batch begins.
  [[nodiscard]] bool live(std::int32_t buffer, std::int32_t micro_batch) const {
    const MicroBatch& its = (*this)[micro_batch];
    return buffer < its.first[index(Numbered::Buffer)] && freed_[static_cast<std::size_t>(buffer)] >= its.begin;
  }

  std::vector<MicroBatch> micro_batches;  // over all steps
  std::vector<std::size_t> first_uses;    // by name: the op

 private:
  bool in_order_ = true;
  std::array<std::vector<Definition>, numbered_kinds> definitions_;
  std::vector<std::size_t> freed_;  // by buffer: the op, or past the last
};

// A text with one number in it that counts micro-batches, as that of a list's element.
struct CountingText {
  std::string before, after;
  std::int64_t count = 0;

  [[nodiscard]] std::string later(std::int64_t micro_batches) const {
    return before + std::to_string(count + micro_batches) + after;
  }
};

// Those of the names that come up first in the last body of a step, which begins with micro-batch `begin`, and later in
// the step; by name.
[[nodiscard]] std::optional<std::vector<std::pair<std::int32_t, CountingText>>> texts_of(const Program& program,
                                                                                         const Definitions& definitions,
                                                                                         std::int32_t begin,
                                                                                         std::int32_t period);

}  // namespace tidemark::sim::repeating
