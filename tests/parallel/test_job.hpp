#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/lowering/lower.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "sim/base/ensure.hpp"
#include "sim/memory/flat.hpp"
#include "sim/memory/replay.hpp"
#include "tests/namespace.hpp"
#include "tests/parallel/layers.hpp"
#include "tests/parallel/model_graph.hpp"

namespace tidemark::tests {

/// A small job with every input of the lowering in one place. Sizes are no multiples of each other where they need not
/// be, so that a wrong formula cannot be right by chance.
struct TestJob {
  Model model{.name = "tiny",
              .architecture = "llama",
              .hidden = 768,
              .heads = 16,
              .kv_heads = 8,
              .head_dim = 32,
              .ffn = 1024,
              .vocabulary = 1000,
              .max_positions = 4096,
              .layers = LayerList(4)};
  Layout layout;
  Train train{.sequence_length = 128,
              .micro_batch = 1,
              .global_batch = 4,
              .attention = AttentionKernel::Fused,
              .cross_entropy = CrossEntropy::TransformerEngine};
  std::string framework = "megatron";
  Versions versions;
  RuntimeSettings settings{.cublas_workspace_config = {}, .attention_mask = false};
  RotaryKernel rotary = RotaryKernel::Fused;
  bool fused_gate = true;
  SoftmaxPrecision softmax_precision = SoftmaxPrecision::Compute;
  Target target{.compute_capability = 90, .devices_per_node = 8, .capacity = {}};
};

/// What tensor-parallel ranks share.
struct Cut {
  std::int32_t tensor;
  bool sequence_parallel;
};

inline TestJob job_cut(Cut cut, std::int64_t micro_batch = 1, AttentionKernel attention = AttentionKernel::Fused) {
  TestJob job;
  job.layout.tensor = cut.tensor;
  job.layout.sequence_parallel = cut.sequence_parallel;
  job.train.micro_batch = micro_batch;
  job.train.attention = attention;
  return job;
}

/// A model in the style of GPT-2 and GPT-3.
inline TestJob gpt_job() {
  TestJob job;
  job.model.kv_heads = job.model.heads = 24;
  job.model.ffn = 4 * job.model.hidden;
  job.model.tied_embeddings = job.model.qkv_bias = job.model.output_bias = job.model.mlp_bias = true;
  job.model.normalization = Normalization::Layer;
  job.model.activation = Activation::Gelu;
  job.model.positions = Positions::Learned;
  job.train.hidden_dropout = job.train.attention_dropout = 0.1;
  job.train.micro_batch = 2;
  return job;
}

/// Its values down to programs, which refer to each other: made in place, not moved.
struct Lowered {
  explicit Lowered(const TestJob& wanted)
      : job(wanted),
        runtime(runtime_named(job.framework, job.versions, job.settings, job.target)),
        built(build_model(job.model, options(job))),
        graph(model_graph(job.model, job.train.attention)),
        input{built, job.layout, job.train, runtime},
        roles(parallel::roles(input)) {}
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;

  static ModelOptions options(const TestJob& job) {
    return {.attention = job.train.attention,
            .rotary = job.rotary,
            .fused_gate = job.fused_gate,
            .softmax_precision = job.softmax_precision};
  }

  /// The program of the first role of a stage.
  [[nodiscard]] Program stage(std::int32_t pipeline) const {
    return lower_role(input, *std::find_if(roles.begin(), roles.end(),
                                           [&](const Role& role) { return role.first.pipeline == pipeline; }));
  }

  const TestJob job;
  const Runtime runtime;
  const BuiltModel built;
  const ModelGraph graph;  ///< that its programs are held to
  const LoweringInput input;
  const std::vector<Role> roles;
};

/// Prices of nothing: drivers and communicators take no memory.
inline DriverCosts no_driver_memory() {
  DriverCosts costs;
  costs.communicators.resize(32);
  return costs;
}

struct LiveTensor {
  std::string label;
  Category category = Category::Temporaries;
  std::int64_t bytes = 0;  ///< asked for
};

/// What is live after the op of that index.
inline std::vector<LiveTensor> live(const Program& program, std::size_t op) {
  std::vector<LiveTensor> tensors;
  for (const LiveBuffer& b : live_buffers(program, no_driver_memory(), op))
    tensors.push_back({program[b.label], b.category, b.requested.count()});
  return tensors;
}
inline std::vector<LiveTensor> live_at_end(const Program& program) { return live(program, program.ops.size() - 1); }

/// Bytes asked for by the live tensors that `counts` accepts.
template <std::predicate<const LiveTensor&> Counts>
std::int64_t sum(const std::vector<LiveTensor>& tensors, Counts&& counts) {
  std::int64_t bytes = 0;
  for (const LiveTensor& t : tensors)
    if (counts(t)) bytes += t.bytes;
  return bytes;
}
inline std::int64_t sum(const std::vector<LiveTensor>& tensors, Category category) {
  return sum(tensors, [&](const LiveTensor& t) { return t.category == category; });
}
inline std::int64_t sum(const std::vector<LiveTensor>& tensors, const std::string& label) {
  return sum(tensors, [&](const LiveTensor& t) { return t.label == label; });
}

/// The op of the first mark with that phase, label and step.
inline std::size_t first_mark(const Program& program, Phase phase, const std::string& label, std::int32_t step = 1) {
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (const Mark* mark = std::get_if<Mark>(&program.ops[i]))
      if (mark->phase == phase && mark->step == step && program[mark->label] == label) return i;
  ensure(false, "the program passes there");
  return 0;
}

/// The highest sum of live bytes asked for, over all moments, of the tensors that `counts(label, category)` accepts.
template <class Counts>
std::int64_t highest(const Program& program, Counts&& counts) {
  std::vector<std::int64_t> size(static_cast<std::size_t>(program.buffers));
  std::int64_t level = 0, top = 0;
  for (const Op& op : program.ops) {
    if (const Alloc* o = std::get_if<Alloc>(&op)) {
      size[o->buffer.index()] = counts(program[o->label], o->category) ? o->size.count() : 0;
      level += size[o->buffer.index()];
      top = std::max(top, level);
    } else if (const Free* freed = std::get_if<Free>(&op)) {
      level -= size[freed->buffer.index()];
    }
  }
  return top;
}

/// The highest number of live bytes in each step, requests rounded as the allocator does, without its slack.
inline std::vector<Bytes> flat_peaks_by_step(const Program& program) {
  const std::vector<std::int64_t> changes = flat_changes(program);
  std::vector<Bytes> peaks{Bytes{0}};
  std::int64_t level = 0;
  std::int32_t step = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (const Mark* mark = std::get_if<Mark>(&program.ops[i]); mark != nullptr && mark->step != step) {
      step = mark->step;
      peaks.push_back(Bytes{level});
    }
    level += changes[i];
    peaks.back() = std::max(peaks.back(), Bytes{level});
  }
  return peaks;
}

/// The highest number of tensors of that label that are live at once.
inline int most_at_once(const Program& program, const std::string& label) {
  std::vector<bool> counted(static_cast<std::size_t>(program.buffers));
  int level = 0, top = 0;
  for (const Op& op : program.ops) {
    if (const Alloc* o = std::get_if<Alloc>(&op)) {
      counted[o->buffer.index()] = program[o->label] == label;
      top = std::max(top, level += counted[o->buffer.index()] ? 1 : 0);
    } else if (const Free* freed = std::get_if<Free>(&op)) {
      level -= counted[freed->buffer.index()] ? 1 : 0;
    }
  }
  return top;
}

}  // namespace tidemark::tests
