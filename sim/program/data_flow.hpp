#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/workload.hpp"

// What flows through a program's memory, read off the program: nothing runs. A program that computes something reads
// only what was written, writes only what is read, and keeps only what is still to be read. Bytes are followed one by
// one, through the views of kernels and the parts of collectives.

namespace tidemark::sim {

enum class FlowKind : std::uint8_t {
  Unwritten,  ///< read, though nobody has written it since it was allocated
  Unread,     ///< written, and overwritten or freed before anybody has read it
  Kept,       ///< held while memory was asked for, though nobody uses it any more
  Early,      ///< read by a stream that has waited for the one that writes it neither itself nor by the host
};

constexpr std::string_view name(FlowKind kind) {
  switch (kind) {
    case FlowKind::Unwritten:
      return "unwritten";
    case FlowKind::Unread:
      return "unread";
    case FlowKind::Kept:
      return "kept";
    case FlowKind::Early:
      return "early";
  }
  return "?";
}

/// Where in a step: a phase and the label of a mark, whose layer is a star.
struct FlowPlace {
  Phase phase = Phase::Construction;
  std::string label;
  bool operator==(const FlowPlace&) const = default;
};

/// Something odd about how data flows. What happens alike in every layer and micro-batch is one finding.
struct FlowFinding {
  FlowKind kind = FlowKind::Unwritten;
  std::string tensor;  ///< its label, the layer's number a star
  /// Unwritten, Early: what reads it. Unread: what wrote it. Kept: what used it last. A kernel's operation and the
  /// operand's name, or a collective's kind.
  std::string by;
  FlowPlace at;
  /// Unread: where it is overwritten or freed. Kept: where it is freed.
  FlowPlace until;
  std::string keeper;  ///< Kept: the variable that held it, where it has a name of its own
  Category category = Category::Temporaries;
  std::int64_t times = 0;  ///< in the whole program
  Bytes largest = {};      ///< of one time
  std::size_t op = 0;      ///< of the first: the place of `at` in the program
  std::int32_t step = 0;   ///< of the first
  std::string first;       ///< of the first: its label
};

/// What there is to say about a program of a workload, in order of its ops. The program holds its frees. What still
/// lives at its end is what it was run for. What no kernel ever touches, but collectives in place do, are numbers of
/// the host: nothing is said of them.
[[nodiscard]] std::vector<FlowFinding> data_flow(const Workload& workload, std::size_t program);

}  // namespace tidemark::sim
