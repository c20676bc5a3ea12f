#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/execute/content.hpp"
#include "kernels/execute/expectation.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// A payload word by word; nothing where nothing is known.
using Words = std::vector<std::optional<std::uint64_t>>;

inline Words words_of(const Content& content, std::int64_t count) {
  Words words(static_cast<std::size_t>(count));
  for (const ContentRun& run : content)
    for (std::int64_t i = run.begin; i < run.end; ++i)
      if (i % run.grid == run.phase) words.at(static_cast<std::size_t>(i)) = run.at(i);
  return words;
}

/// One word that a kernel left.
inline std::uint64_t left_by(Rank rank, std::size_t op, BufferId buffer, std::int64_t word) {
  return stamped(Expectation::stamp(rank, op, buffer), word + 1).front().at(word);
}

/// Programs by rank, and one communicator of all of them.
inline Workload one_group(const std::vector<std::string>& programs) {
  Workload workload;
  for (const std::string& text : programs) {
    workload.program_of_rank.push_back(static_cast<std::int32_t>(workload.programs.size()));
    workload.programs.push_back(parse_program(text));
  }
  workload.communicators.push_back({"world", {{workload.world_size(), 1, 1}}});
  return workload;
}

}  // namespace tidemark::tests
