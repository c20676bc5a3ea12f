#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/scenario/scenario.hpp"
#include "sim/program/program.hpp"
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

/// The most that a rank held of its host's memory.
struct HostPeaks {
  Bytes pinned;    ///< by PyTorch's allocator of it
  Bytes pageable;  ///< in tensors
  Bytes both;      ///< at once
};

struct Recording {
  std::string name;
  Scenario scenario;                   ///< as the reader has it, of a file that says what was recorded
  std::vector<StepPeak> steps;         ///< as a run without fake tensors does it: sums in place
  std::vector<StepPeak> out_of_place;  ///< as MemTracker counted it; empty where tensors were real
  PlainRun plain;
  Rank rank{0};                                    ///< that was recorded
  std::vector<Bytes> requested;                    ///< by step, the most that tensors took, not rounded; of few
  HostPeaks host = {};                             ///< of one with tensors on the host
  std::vector<HostPeaks> host_by_step = {};        ///< the same, of what tensors ask for; construction first
  std::map<std::string, Bytes> live_at_peak = {};  ///< of a sharded one: what was live when most was, by what made it
  Bytes not_made = {};                             ///< tensors of a batch that the recorder went without
};

/// Every recording under tests/golden/fake_tensor/recordings, by name.
[[nodiscard]] std::vector<Recording> fake_recordings();
/// Those under tests/golden/fake_tensor/drawn: trainings that seeds chose (tests/ground_truth/drawn.py).
[[nodiscard]] std::vector<Recording> drawn_recordings();
/// Those under tests/golden/fake_tensor/optimizers: each optimizer once or twice (tests/ground_truth/optimizers.py).
[[nodiscard]] std::vector<Recording> optimizer_recordings();
/// Those under tests/golden/fake_tensor/fused: with Liger's kernels (tests/ground_truth/fused.py).
[[nodiscard]] std::vector<Recording> fused_recordings();
/// Those under tests/golden/fake_tensor/packed: several sequences in one row (tests/ground_truth/packed.py).
[[nodiscard]] std::vector<Recording> packed_recordings();
/// Of families that transformers alone builds here (tests/ground_truth/families.py).
[[nodiscard]] std::vector<Recording> family_recordings();
/// tests/golden/gpu_recordings/plain_runs.json: plain runs of the first two on a GPU (record_gpu.py plain_runs).
[[nodiscard]] std::vector<Recording> gpu_plain_runs();
/// Those under tests/golden/fake_tensor/experts: mixtures of experts (tests/ground_truth/experts.py).
[[nodiscard]] std::vector<Recording> expert_recordings();
/// Of models that PEFT adapts.
[[nodiscard]] std::vector<Recording> adapted_recordings();

/// Those under tests/golden/sharded/recordings: plain runs of sharded trainings (tests/ground_truth/sharded.py).
[[nodiscard]] std::vector<Recording> sharded_recordings();
/// Those under tests/golden/zero/recordings: the same under DeepSpeed's ZeRO (tests/ground_truth/zero.py).
[[nodiscard]] std::vector<Recording> zero_recordings();
/// The same under FullyShardedDataParallel.
[[nodiscard]] std::vector<Recording> flat_recordings();

/// Those under tests/golden/titan/recordings: plain runs of torchtitan's trainings (tests/ground_truth/titan.py).
[[nodiscard]] std::vector<Recording> titan_recordings();
/// Those under tests/golden/megatron_core/recordings: the same of Megatron-LM (tests/ground_truth/megatron_jobs.py).
[[nodiscard]] std::vector<Recording> megatron_recordings();
/// Those under tests/golden/compiled/recordings: the same with torch.compile.
[[nodiscard]] std::vector<Recording> compiled_recordings();
/// Those under tests/golden/compiled/models: transformers' modules and LitGPT's (tests/ground_truth/compiled.py).
[[nodiscard]] std::vector<Recording> compiled_model_recordings();

/// Those under tests/golden/offload/recordings whose runtime is known here: with tensors on the host
/// (tests/ground_truth/offload.py).
[[nodiscard]] std::vector<Recording> offload_recordings();
/// The same under FullyShardedDataParallel.
[[nodiscard]] std::vector<Recording> offloaded_flat_recordings();
/// The same of plain PyTorch, which saves tensors there.
[[nodiscard]] std::vector<Recording> saved_on_cpu_recordings();
/// The same of torchtitan.
[[nodiscard]] std::vector<Recording> offloaded_titan_recordings();

/// The same of DeepSpeed's ZeRO, but for NVMe.
[[nodiscard]] std::vector<Recording> offloaded_zero_recordings();

/// Those under tests/golden/wrapped/recordings: trainings under wrappers that seeds chose
/// (tests/ground_truth/drawn_wrapped.py).
[[nodiscard]] std::vector<Recording> wrapped_recordings();

/// How far predictions of drawn recordings are off. All lists are by recording.
struct DrawnScore {
  std::vector<std::string> names;
  std::vector<Bytes> off_at_peak;  ///< tensors at the peak, each rounded up to 512: of the step where it is most
  std::vector<double> allocated;   ///< of the step where it is most; shares of what was recorded
  std::vector<double> reserved;
  [[nodiscard]] std::size_t equal() const;  ///< whose tensors at the peak are equal to the byte in every step
};
[[nodiscard]] DrawnScore score(const std::vector<Recording>& recordings);

/// What the program of that training holds, step by step.
[[nodiscard]] std::vector<StepPeak> predicted_peaks(Scenario scenario, bool sums_in_place);

/// What the rank runs in that training, with real tensors.
[[nodiscard]] Program program_of(const Scenario& scenario, Rank rank);

/// The most that tensors of the rank's program take at once, step by step, not rounded.
[[nodiscard]] std::vector<Bytes> requested_by_step(const Scenario& scenario, Rank rank);

[[nodiscard]] HostPeaks predicted_host_peaks(const Scenario& scenario, Rank rank);
/// What tensors of the rank's program ask its host for at most, step by step, construction first.
[[nodiscard]] std::vector<HostPeaks> predicted_host_by_step(const Scenario& scenario, Rank rank);

/// What `predict` says of a plain run.
[[nodiscard]] PlainRun predicted_plain_run(const Scenario& scenario, Rank rank = {0});

}  // namespace tidemark::tests::golden
