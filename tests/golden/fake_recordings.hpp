#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/scenario.hpp"
#include "tests/namespace.hpp"

// Recordings of real PyTorch on fake tensors (tests/ground_truth): active bytes by category, and what we say of the
// same training.

namespace tidemark::tests::golden {

/// What a live byte is for, as the recorder tells: a gradient is one once it is its parameter's, a temporary is made by
/// a backward pass or the optimizer, an activation by a forward pass.
enum class Kind : std::uint8_t { Parameter, Gradient, OptimizerState, Activation, Temporary };
inline constexpr std::array<std::string_view, 5> kind_names = {"parameters and buffers", "gradients", "optimizer state",
                                                               "activations and batch", "temporaries"};

/// Bytes at the peak of one optimizer step, each tensor rounded up to 512.
struct StepPeak {
  std::array<Bytes, kind_names.size()> bytes{};
  Bytes after;  ///< the optimizer step, before gradients are given up
  std::string where;
  [[nodiscard]] Bytes total() const;
  Bytes& operator[](Kind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  Bytes operator[](Kind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
};

/// What PyTorch's own caching allocator counted in a plain run: real tensors, kernels that do nothing.
struct PlainRun {
  std::vector<Bytes> allocated;  ///< by step, highest
  Bytes reserved;                ///< highest
};

struct Recording {
  std::string name;
  Scenario scenario;                   ///< under FakeTensorMode
  std::vector<StepPeak> steps;         ///< as a run without fake tensors does it: sums in place
  std::vector<StepPeak> out_of_place;  ///< as MemTracker counted it; empty where tensors were real
  PlainRun plain;
};

/// Every recording under tests/golden/fake_tensor/recordings, by name.
[[nodiscard]] std::vector<Recording> fake_recordings();

/// What the program of that training holds, step by step.
[[nodiscard]] std::vector<StepPeak> predicted_peaks(const Scenario& scenario, bool sums_in_place);

/// What `predict` says of a plain run.
[[nodiscard]] PlainRun predicted_plain_run(Scenario scenario);

}  // namespace tidemark::tests::golden
