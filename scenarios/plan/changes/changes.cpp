#include "scenarios/plan/changes/changes.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "parallel/job/job.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/plan/changes/change.hpp"
#include "scenarios/plan/changes/fine_tuning_changes.hpp"
#include "scenarios/reader/recompute_reader.hpp"
#include "scenarios/scenario/axis_order.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

std::string recompute_text(const Recomputation& r) {
  switch (r.kind) {
    case Recompute::None:
      return "none";
    case Recompute::Selective:
      return fmt::format("selective {}", fmt::join(words(recomputed_module_names, r.modules), " "));
    case Recompute::Full:
      return fmt::format("full, {} of {}", word(recompute_method_names, r.method), r.layers);
  }
  return {};
}

TomlValue modules(const Recomputation& r) {
  std::vector<TomlValue> names;
  for (const std::string_view name : words(recomputed_module_names, r.modules)) names.push_back(value(name));
  return {std::move(names), {}};
}

// Not what recomputes as little, or every layer already.
void add_recompute(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  const Recomputation& now = s.train.recompute;
  const KeyPath kind{"train", "recompute"}, method{"train", "recompute_method"}, layers{"train", "recompute_layers"},
      selected{"train", "recompute_modules"};
  Change change(document, "recompute", {kind, method, layers, selected}, recompute_text(now));
  const std::int64_t of_rank = (s.model.layers.size() + s.layout.stages() - 1) / s.layout.stages();
  const bool uniform = now.kind == Recompute::Full && now.method == RecomputeMethod::Uniform;
  const bool every = now.kind == Recompute::Full && (uniform ? now.layers == 1 : now.layers >= of_rank);
  if (!uniform && !every) {
    const auto try_selective = [&](RecomputedModules its) {
      const Recomputation it{.kind = Recompute::Selective, .modules = its};
      if (now.kind != Recompute::Selective || now.modules != its)
        change.to({recompute_text(it), {{kind, value("selective")}, {selected, modules(it)}}});
    };
    RecomputedModules all;
    const auto within_another = [](RecomputedModule module) {
      return module == RecomputedModule::ExpertActivation || module == RecomputedModule::SharedExperts;
    };
    for (const auto& [name, module] : recomputed_module_names) {
      if (!has_module(s, module)) continue;
      try_selective({module});
      if (!within_another(module)) all.add(module);
    }
    try_selective(all);
    std::set<std::int64_t> blocks{2, 4, 8};
    if (now.kind == Recompute::Full)
      for (std::int64_t more = 2 * now.layers; more < of_rank; more *= 2) blocks.insert(more);
    else
      blocks.insert({of_rank / 4, of_rank / 2, of_rank * 3 / 4});
    for (const std::int64_t block : blocks)
      if (block > (now.kind == Recompute::Full ? now.layers : 0) && block < of_rank)
        change.to({fmt::format("full, block of {}", block),
                   {{kind, value("full")}, {method, value("block")}, {layers, value(block)}}});
  }
  if (!every)
    change.to(
        {"full, uniform of 1", {{kind, value("full")}, {method, value("uniform")}, {layers, value(std::int64_t{1})}}});
  change.add_to(axes);
}

// How layers are shared out, at the pipelines that are tried too.
void add_stages(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  std::vector<std::int64_t> pipelines;
  for (std::int64_t p = s.layout.pipeline; p <= std::min<std::int64_t>(s.gpus, s.model.layers.size()); p *= 2)
    pipelines.push_back(p);
  Axis ways = stages_axis(s.model.layers.size(), pipelines);
  std::vector<KeyPath> keys = ways.keys();
  keys.push_back({"layout", "stage_layers"});
  const bool equal =
      std::none_of(keys.begin(), keys.end(), [&](const KeyPath& key) { return value_at(document, key) != nullptr; });
  Change change(document, "stages", std::move(keys), equal ? "equal" : "as they are");
  for (std::size_t way = equal ? 1 : 0; way < ways.values.size(); ++way) change.to(std::move(ways.values[way]));
  if (pipelines.back() > 1) change.add_to(axes);
}

void add_chunks(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  const KeyPath schedule{"layout", "schedule"}, chunks{"layout", "chunks"};
  Change change(document, "chunks", {schedule, chunks}, std::to_string(s.layout.chunks));
  for (std::int64_t fewer = s.layout.chunks - 1; fewer > 1; --fewer)
    change.to({std::to_string(fewer), {{schedule, value("interleaved")}, {chunks, value(fewer)}}});
  if (s.layout.chunks > 1) change.to({"1 (1f1b)", {{schedule, value("1f1b")}, {chunks, value(std::int64_t{1})}}});
  change.add_to(axes);
}

// In the words of `offload_values`.
std::string offload_text(const Scenario& s) {
  const CpuOffload now = cpu_offload(s.runtime);
  const EagerSettings& eager = s.runtime.eager;
  const std::optional<double> part = s.runtime.optimizer.offloaded;
  if (part && *part < 1) return *part == 0.5 ? "half of the optimizer" : fmt::format("{:g} of the optimizer", *part);
  if (now.parameters || now.optimizer) {
    const bool pageable =
        eager.fully_shard.offload == MemorySpace::Pageable || eager.zero.offload_optimizer == MemorySpace::Pageable;
    return fmt::format("{}{}", now.parameters ? "parameters" : "optimizer", pageable ? ", pageable" : "");
  }
  if (s.runtime.offloaded_layers > 0) return fmt::format("activations of {} layers", s.runtime.offloaded_layers);
  if (!now.activations) return "none";
  return eager.saved_on_host == MemorySpace::Pinned ? "activations, pinned" : "activations";
}

// What hosts hold: more of it, or less where they are too full.
void add_offload(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  if (id == RuntimeId::Fsdp && s.train.adapter) return;  // not modelled together
  const std::string now = offload_text(s);
  Axis all{"offload", offload_values(id, s.model.layers.size())};
  std::vector<KeyPath> keys = all.keys();
  for (const char* key : {"optimizer", "optimizer_fraction", "parameters", "activations"})
    if (KeyPath path{"offload", key}; std::ranges::find(keys, path) == keys.end()) keys.push_back(std::move(path));
  // Megatron takes them without a pipeline and recomputation only.
  const bool takes_activations =
      id != RuntimeId::Megatron || (s.layout.pipeline == 1 && s.train.recompute.kind == Recompute::None);
  Change change(document, all.name, std::move(keys), now);
  for (AxisValue& its : all.values)
    if (its.text != now && (takes_activations || !its.text.starts_with("activations"))) change.to(std::move(its));
  if (now != "none") change.to(AxisValue{"none", {}});
  change.add_to(axes);
}

// What generation takes of devices that it shares with training.
void add_rollout(const TomlTable& document, const Scenario& s, Changes& changes) {
  if (!s.train.rollout) return;
  const Rollout& now = *s.train.rollout;
  const auto halved = [&](const char* key, std::int64_t its, std::vector<Axis>& axes) {
    Change change = one_key(document, {"rollout", key}, std::to_string(its));
    for (const std::int64_t part : {2, 4})
      if (its % part == 0) change.to(std::to_string(its / part), {value(its / part)});
    change.add_to(axes);
  };
  if (now.sleep == EngineSleep::Awake)
    one_key(document, {"rollout", "sleep"}, "0")
        .to("1", {value(std::int64_t{1})})
        .to("2", {value(std::int64_t{2})})
        .add_to(changes.of_job);
  if (now.memory_fraction > 0) {
    Change part = one_key(document, {"rollout", "memory_fraction"}, fmt::format("{:g}", now.memory_fraction));
    for (const double smaller : {0.5, 0.25}) {
      const double its = std::round(1e6 * smaller * now.memory_fraction) / 1e6;
      part.to(fmt::format("{:g}", its), {TomlValue{its, {}}});
    }
    part.add_to(changes.of_job);
    return;
  }
  halved("batch", now.batch, changes.of_job);
  halved("samples", now.samples, changes.of_training);
  halved("response_length", now.response_length, changes.of_training);
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
  const RuntimeKind& kind = runtime_kind(s.runtime.name);
  const bool sharded = kind.shards_units();
  if (kind.id == RuntimeId::Fsdp) {
    if (s.layout.sharding == Sharding::None)
      one_key(document, {"layout", "sharding"}, "none").to("zero3", {value("zero3")}).add_to(axes);
    if (!now.flat.limits_all_gathers) switched("limit_all_gathers", true);
    if (now.flat.forward_prefetch) switched("forward_prefetch", false);
    if (now.flat.backward_prefetch == BackwardPrefetch::Pre)
      one_key(document, {"runtime", "switches", "backward_prefetch"}, "backward_pre")
          .to("backward_post", {value("backward_post")})
          .to("none", {value("none")})
          .add_to(axes);
  }
  // Without no_sync, gradients of all but the last micro-batch are shards as well.
  const bool adds_up_whole =
      (kind.id == RuntimeId::Fsdp && s.layout.sharding != Sharding::None && !now.flat.reduces_each_backward) ||
      (kind.id == RuntimeId::Fsdp2 && !now.fully_shard.reduces_each_backward);
  if (adds_up_whole && micro_batches_of(s.train, s.layout) > 1) switched("sync_each_batch", true);
  if (sharded && s.layout.sharding == Sharding::Zero2)
    one_key(document, {"layout", "sharding"}, "zero2").to("zero3", {value("zero3")}).add_to(axes);
  if (kind.id == RuntimeId::DeepSpeed && s.layout.sharding != Sharding::Zero3) {
    Change sharding = one_key(document, {"layout", "sharding"}, std::string(word(sharding_names, s.layout.sharding)));
    if (s.layout.sharding == Sharding::Zero1) sharding.to("zero2", {value("zero2")});
    sharding.to("zero3", {value("zero3")}).add_to(axes);
  }
  if (kind.id == RuntimeId::PyTorch && s.layout.data > 1 && !now.gradients_view_buckets)
    switched("gradient_as_bucket_view", true);
  if (takes_liger(s)) switched("use_liger_kernel", true);
  add_offload(document, s, axes);
  if (s.runtime.allocator.empty()) axes.push_back(allocator_axis());
  return axes;
}

// More ranks along each axis of a layout.
void add_degrees(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  Change tensor = one_key(document, {"layout", "tensor"}, std::to_string(s.layout.tensor));
  for (std::int64_t more = std::int64_t{2} * s.layout.tensor; more <= s.cluster.node.devices; more *= 2)
    tensor.to(std::to_string(more), {value(more)});
  tensor.add_to(axes);
  Change pipeline = one_key(document, {"layout", "pipeline"}, std::to_string(s.layout.pipeline));
  for (std::int64_t more = std::int64_t{2} * s.layout.pipeline;
       more <= std::min<std::int64_t>(s.gpus, s.model.layers.size()); more *= 2)
    pipeline.to(std::to_string(more), {value(more)});
  pipeline.add_to(axes);
  if (s.model.experts()) {
    Change expert = one_key(document, {"layout", "expert"}, std::to_string(s.layout.expert));
    for (std::int64_t more = std::int64_t{2} * s.layout.expert; more <= s.model.experts()->count; more *= 2)
      expert.to(std::to_string(more), {value(more)});
    expert.add_to(axes);
  }
  Change context = one_key(document, {"layout", "context"}, std::to_string(s.layout.context));
  for (const std::int64_t degree : context_degrees(s.train.sequence_length))
    if (degree > s.layout.context) context.to(std::to_string(degree), {value(degree)});
  context.add_to(axes);
}

// What torchtitan's configuration may change.
std::vector<Axis> changes_of_titan(const TomlTable& document, const Scenario& s) {
  std::vector<Axis> axes;
  Change recompute =
      one_key(document, {"train", "recompute"}, std::string(word(recompute_names, s.train.recompute.kind)));
  if (s.train.recompute.kind == Recompute::None) recompute.to("selective", {value("selective")});
  const TitanSettings& titan = s.runtime.eager.titan;
  if (s.train.recompute.kind != Recompute::Full) recompute.to("full", {value("full")});
  if (titan.memory_budget == 1) recompute.add_to(axes);
  if (titan.compile_layers && s.train.recompute.kind == Recompute::None) {
    Change budget =
        one_key(document, {"runtime", "switches", "memory_budget"}, fmt::format("{:g}", titan.memory_budget));
    for (const double less : {0.5, 0.2})
      if (less < titan.memory_budget) budget.to(fmt::format("{:g}", less), {TomlValue{less, {}}});
    budget.add_to(axes);
  }
  const ReshardPolicy now = titan.reshard;
  if (now != ReshardPolicy::Always)
    Change(document, "fsdp_reshard_after_forward",
           {{"runtime", "switches", "fsdp_reshard_after_forward"}, {"layout", "sharding"}},
           std::string(word(reshard_policy_names, now)))
        .to("always", {value("always"), value("zero3")})
        .add_to(axes);
  add_degrees(document, s, axes);
  add_offload(document, s, axes);
  if (s.runtime.allocator.empty()) axes.push_back(allocator_axis());
  add_chunks(document, s, axes);
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
  add_degrees(document, s, axes);
  add_stages(document, s, axes);
  add_offload(document, s, axes);
  if (s.train.gradient_dtype == DType::FP32 && s.train.precision != DType::FP32)
    one_key(document, {"train", "gradient_dtype"}, "fp32")
        .to(std::string(name(s.train.precision)), {value(name(s.train.precision))})
        .add_to(axes);
  if (s.train.cross_entropy != CrossEntropy::TransformerEngine)
    one_key(document, {"train", "cross_entropy"}, std::string(word(cross_entropy_names, s.train.cross_entropy)))
        .to("te", {value("te")})
        .add_to(axes);
  if (loads_large_mask(s))
    one_key(document, {"runtime", "switches", "no-create-attention-mask-in-dataloader"}, "false")
        .to("true", {value(true)})
        .add_to(axes);
  if (s.runtime.allocator.empty()) axes.push_back(allocator_axis());
  add_chunks(document, s, axes);
  Change order = one_key(document, {"layout", "order"}, text(s.layout.order));
  for (AxisValue& other : order_axis().values)
    if (parse_axis_order(other.text) != s.layout.order) order.to(std::move(other));
  order.add_to(axes);
  Change gpus(document, "gpus", {{"gpus"}}, std::to_string(s.gpus));
  for (const std::int64_t times : {2, 4}) gpus.to(std::to_string(times * s.gpus), {value(times * s.gpus)});
  gpus.add_to(axes);
  return axes;
}

}  // namespace

bool loads_large_mask(const Scenario& s) {
  constexpr std::int64_t large = std::int64_t{1} << 30;  // elements, a byte each
  return runtime_kind(s.runtime.name).id == RuntimeId::Megatron && s.runtime.attention_mask &&
         !stores_scores(s.train.attention) &&
         s.train.micro_batch * s.train.sequence_length * s.train.sequence_length >= large;
}

Changes changes_of(const TomlTable& document, const Scenario& s) {
  Changes changes;
  Change micro_batch = one_key(document, {"train", "micro_batch"}, std::to_string(s.train.micro_batch));
  for (std::int64_t smaller = s.train.micro_batch / 2; smaller >= 1; smaller /= 2)
    micro_batch.to(std::to_string(smaller), {value(smaller)});
  micro_batch.add_to(changes.of_job);
  const RuntimeKind& kind = runtime_kind(s.runtime.name);
  std::vector<Axis> more = kind.id == RuntimeId::TorchTitan ? changes_of_titan(document, s)
                           : kind.eager()                   ? changes_of_script(document, s)
                                                            : changes_of_layout(document, s);
  std::move(more.begin(), more.end(), std::back_inserter(changes.of_job));
  if (stores_scores(s.train.attention))
    one_key(document, {"train", "attention"}, std::string(word(attention_names, s.train.attention)))
        .to("auto", {value("auto")})
        .add_to(changes.of_job);

  add_rollout(document, s, changes);
  // Where optimizers that keep less are modelled.
  const bool small = kind.id == RuntimeId::PyTorch || kind.id == RuntimeId::Fsdp;
  if (small && s.train.optimizer == Optimizer::AdamW) {
    Change optimizer = one_key(document, {"train", "optimizer"}, "adamw");
    for (const char* smaller : {"adamw_8bit", "paged_adamw_8bit", "adafactor"}) optimizer.to(smaller, {value(smaller)});
    optimizer.add_to(changes.of_training);
  }
  add_adapters(document, s, changes.of_training);
  Change sequence = one_key(document, {"train", "sequence_length"}, std::to_string(s.train.sequence_length));
  for (const std::int64_t part : {2, 4, 8})
    if (s.train.sequence_length % part == 0)
      sequence.to(std::to_string(s.train.sequence_length / part), {value(s.train.sequence_length / part)});
  sequence.add_to(changes.of_training);
  if (s.train.precision == DType::FP32)
    one_key(document, {"train", "precision"}, "fp32").to("bf16", {value("bf16")}).add_to(changes.of_training);
  else if (kind.eager() && s.train.master_dtype == DType::FP32)
    one_key(document, {"train", "master_dtype"}, "fp32")
        .to(std::string(name(s.train.precision)), {value(name(s.train.precision))})
        .add_to(changes.of_training);
  return changes;
}

}  // namespace tidemark::scenarios
