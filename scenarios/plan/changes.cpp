#include "scenarios/plan/changes.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/io/names.hpp"

namespace tidemark::scenarios {
namespace {

TomlValue value(std::int64_t n) { return {n, {}}; }
TomlValue value(bool b) { return {b, {}}; }
TomlValue value(std::string_view text) { return {std::string(text), {}}; }
TomlValue value(const char* text) { return value(std::string_view(text)); }  // which would rather be a bool

// An axis whose first value leaves its keys as the document has them.
class Change {
 public:
  Change(const TomlTable& document, std::string name, std::vector<KeyPath> keys, std::string now)
      : document_(document), keys_(std::move(keys)) {
    axis_.name = std::move(name);
    AxisValue same{std::move(now), {}};
    for (const KeyPath& key : keys_)
      if (const TomlValue* its = value_at(document_, key)) same.settings.push_back({key, *its});
    axis_.values.push_back(std::move(same));
  }
  /// Another value; a key beyond those given keeps its value.
  Change& to(std::string text, std::vector<TomlValue> values) {
    AxisValue made{std::move(text), {}};
    for (std::size_t i = 0; i < values.size(); ++i) made.settings.push_back({keys_[i], values[i]});
    axis_.values.push_back(std::move(made));
    return *this;
  }
  void add_to(std::vector<Axis>& axes) {
    if (axis_.values.size() > 1) axes.push_back(std::move(axis_));
  }

 private:
  const TomlTable& document_;
  std::vector<KeyPath> keys_;
  Axis axis_;
};

Change one_key(const TomlTable& document, KeyPath key, std::string now) {
  std::string name = fmt::format("{}", fmt::join(key, "."));
  return {document, std::move(name), {std::move(key)}, std::move(now)};
}

std::string recompute_text(const Recomputation& r) {
  switch (r.kind) {
    case Recompute::None:
      return "none";
    case Recompute::Selective:
      return fmt::format("selective{}{}", r.core_attention ? " core_attn" : "", r.mlp ? " mlp" : "");
    case Recompute::Full:
      return fmt::format("full, {} of {}", word(recompute_method_names, r.method), r.layers);
  }
  return {};
}

void add_recompute(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  const Recomputation& now = s.train.recompute;
  Change change(document, "recompute",
                {{"train", "recompute"},
                 {"train", "recompute_method"},
                 {"train", "recompute_layers"},
                 {"train", "recompute_modules"}},
                recompute_text(now));
  const auto whole = [&](const char* method, std::int64_t layers) {
    change.to(fmt::format("full, {} of {}", method, layers), {value("full"), value(method), value(layers)});
  };
  if (now.kind == Recompute::None) {
    change.to("selective core_attn", {value("selective")});
  }
  const std::int64_t of_rank = (s.model.layers + s.layout.stages() - 1) / s.layout.stages();
  if (now.kind != Recompute::Full) {
    for (const std::int64_t layers : {of_rank / 4, of_rank / 2, of_rank * 3 / 4})
      if (layers > 0) whole("block", layers);
    whole("uniform", 1);
  } else if (now.method == RecomputeMethod::Block && now.layers < of_rank) {
    for (std::int64_t layers = 2 * now.layers; layers < of_rank; layers *= 2) whole("block", layers);
    whole("uniform", 1);
  } else if (now.method == RecomputeMethod::Uniform && now.layers > 1) {
    whole("uniform", 1);
  }
  change.add_to(axes);
}

// What a plain training script may change: it cuts nothing, and checkpoints every layer or none.
std::vector<Axis> changes_of_script(const TomlTable& document, const Scenario& s) {
  std::vector<Axis> axes;
  const EagerSettings& now = s.runtime.eager;
  const auto switched = [&](const char* key, bool to) {
    one_key(document, {"runtime", "switches", key}, to ? "false" : "true")
        .to(to ? "true" : "false", {value(to)})
        .add_to(axes);
  };
  if (s.train.recompute.kind == Recompute::None)
    one_key(document, {"train", "recompute"}, "none").to("full", {value("full")}).add_to(axes);
  if (now.caches_keys && s.train.recompute.kind == Recompute::None) switched("use_cache", false);
  if (now.keeps_outputs) switched("keep_outputs", false);
  if (now.optimizer == OptimizerKernels::Foreach)
    Change(document, "optimizer kernels", {{"runtime", "switches", "foreach"}, {"runtime", "switches", "fused"}},
           "foreach")
        .to("fused", {value(false), value(true)})
        .to("one parameter after the other", {value(false), value(false)})
        .add_to(axes);
  if (s.layout.data > 1 && !now.gradients_view_buckets) switched("gradient_as_bucket_view", true);
  if (s.runtime.allocator.empty()) axes.push_back(allocator_axis());
  return axes;
}

// Of jobs that are cut: how, and what the framework keeps.
std::vector<Axis> changes_of_layout(const TomlTable& document, const Scenario& s) {
  std::vector<Axis> axes;
  const auto yes_no = [](bool b) { return std::string(b ? "true" : "false"); };
  add_recompute(document, s, axes);
  if (s.layout.tensor > 1 && !s.layout.sequence_parallel)
    one_key(document, {"layout", "sequence_parallel"}, yes_no(false)).to(yes_no(true), {value(true)}).add_to(axes);
  if (s.layout.sharding == Sharding::None)
    one_key(document, {"layout", "sharding"}, "none").to("zero1", {value("zero1")}).add_to(axes);
  Change tensor = one_key(document, {"layout", "tensor"}, std::to_string(s.layout.tensor));
  for (std::int64_t more = std::int64_t{2} * s.layout.tensor; more <= s.cluster.node.devices; more *= 2)
    tensor.to(std::to_string(more), {value(more)});
  tensor.add_to(axes);
  Change pipeline = one_key(document, {"layout", "pipeline"}, std::to_string(s.layout.pipeline));
  for (std::int64_t more = std::int64_t{2} * s.layout.pipeline; more <= std::min<std::int64_t>(s.gpus, s.model.layers);
       more *= 2)
    pipeline.to(std::to_string(more), {value(more)});
  pipeline.add_to(axes);
  if (s.train.gradient_dtype == DType::FP32 && s.train.precision != DType::FP32)
    one_key(document, {"train", "gradient_dtype"}, "fp32")
        .to(std::string(name(s.train.precision)), {value(name(s.train.precision))})
        .add_to(axes);
  if (s.train.cross_entropy != CrossEntropy::TransformerEngine)
    one_key(document, {"train", "cross_entropy"}, std::string(word(cross_entropy_names, s.train.cross_entropy)))
        .to("te", {value("te")})
        .add_to(axes);
  if (s.runtime.allocator.empty()) axes.push_back(allocator_axis());
  if (s.layout.chunks > 1)
    Change(document, "chunks", {{"layout", "schedule"}, {"layout", "chunks"}}, std::to_string(s.layout.chunks))
        .to("1 (1f1b)", {value("1f1b"), value(std::int64_t{1})})
        .add_to(axes);
  Change gpus(document, "gpus", {{"gpus"}}, std::to_string(s.gpus));
  for (const std::int64_t times : {2, 4}) gpus.to(std::to_string(times * s.gpus), {value(times * s.gpus)});
  gpus.add_to(axes);
  return axes;
}

}  // namespace

Changes changes_of(const TomlTable& document, const Scenario& s) {
  Changes changes;
  Change micro_batch = one_key(document, {"train", "micro_batch"}, std::to_string(s.train.micro_batch));
  for (std::int64_t smaller = s.train.micro_batch / 2; smaller >= 1; smaller /= 2)
    micro_batch.to(std::to_string(smaller), {value(smaller)});
  micro_batch.add_to(changes.of_job);
  std::vector<Axis> more =
      s.runtime.name == "pytorch" ? changes_of_script(document, s) : changes_of_layout(document, s);
  std::move(more.begin(), more.end(), std::back_inserter(changes.of_job));
  if (stores_scores(s.train.attention))
    one_key(document, {"train", "attention"}, std::string(word(attention_names, s.train.attention)))
        .to("auto", {value("auto")})
        .add_to(changes.of_job);

  Change sequence = one_key(document, {"train", "sequence_length"}, std::to_string(s.train.sequence_length));
  for (const std::int64_t part : {2, 4, 8})
    if (s.train.sequence_length % part == 0)
      sequence.to(std::to_string(s.train.sequence_length / part), {value(s.train.sequence_length / part)});
  sequence.add_to(changes.of_training);
  if (s.train.precision == DType::FP32)
    one_key(document, {"train", "precision"}, "fp32").to("bf16", {value("bf16")}).add_to(changes.of_training);
  else if (s.runtime.name == "pytorch" && s.train.master_dtype == DType::FP32)
    one_key(document, {"train", "master_dtype"}, "fp32")
        .to(std::string(name(s.train.precision)), {value(name(s.train.precision))})
        .add_to(changes.of_training);
  return changes;
}

}  // namespace tidemark::scenarios
