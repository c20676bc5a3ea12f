#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/plan/changes/change.hpp"
#include "scenarios/plan/space/space.hpp"

// The default space, and the axes beyond it. docs/planner.md shows them; a new axis is a line here.

namespace tidemark::scenarios {
namespace {

TomlValue list(std::initializer_list<const char*> texts) {
  std::vector<TomlValue> elements;
  for (const char* text : texts) elements.push_back(value(text));
  return {std::move(elements), {}};
}

/// An axis of one key.
template <class T>
Axis axis(const char* table, const char* key, const std::vector<T>& values) {
  Axis made{fmt::format("{}.{}", table, key), {}};
  for (const T& v : values) {
    const TomlValue its = value(v);
    const auto* words = std::get_if<std::string>(&its.value);
    made.values.push_back({words != nullptr ? *words : text(its), {{{table, key}, its}}});
  }
  return made;
}

std::vector<std::int64_t> up_to(std::int64_t most, std::initializer_list<std::int64_t> values) {
  std::vector<std::int64_t> found;
  for (const std::int64_t v : values)
    if (v <= most) found.push_back(v);
  return found;
}

Axis chunks_axis(const std::vector<std::int64_t>& chunks) {
  Axis made{"chunks", {}};
  for (const std::int64_t c : chunks) {
    const char* schedule = c == 1 ? "1f1b" : "interleaved";
    made.values.push_back({c == 1 ? schedule : fmt::format("{} x {}", schedule, c),
                           {{{"layout", "schedule"}, value(schedule)}, {{"layout", "chunks"}, value(c)}}});
  }
  return made;
}

Axis recompute_axis() {
  const KeyPath kind{"train", "recompute"}, method{"train", "recompute_method"}, layers{"train", "recompute_layers"},
      modules{"train", "recompute_modules"};
  Axis made{"recompute", {{"none", {{kind, value("none")}}}}};
  made.values.push_back({"selective core_attn", {{kind, value("selective")}, {modules, list({"core_attn"})}}});
  made.values.push_back({"selective mlp", {{kind, value("selective")}, {modules, list({"mlp"})}}});
  for (const std::int64_t n : {2, 4, 8})
    made.values.push_back(
        {fmt::format("full, block of {}", n), {{kind, value("full")}, {method, value("block")}, {layers, value(n)}}});
  made.values.push_back(
      {"full, every layer", {{kind, value("full")}, {method, value("uniform")}, {layers, value(std::int64_t{1})}}});
  return made;
}

// Ranks of one sequence: round a ring, or by heads.
Axis context_axis(std::int64_t sequence_length) {
  const KeyPath degree{"layout", "context"}, kind{"layout", "context_kind"};
  Axis made{"context", {{"1", {{degree, value(std::int64_t{1})}}}}};
  for (const std::int64_t c : context_degrees(sequence_length))
    for (const char* its : {"p2p", "a2a"})
      made.values.push_back({fmt::format("{} {}", c, its), {{degree, value(c)}, {kind, value(its)}}});
  return made;
}

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t of_too) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0 && of_too % d == 0) found.push_back(d);
  return found;
}

TomlValue to_host() { return value("cpu"); }

std::int64_t layers_of(const Space& space) {
  const TomlValue* const requested = value_at(space.base, {"model_override", "num_hidden_layers"});
  const auto* const number = requested == nullptr ? nullptr : std::get_if<std::int64_t>(&requested->value);
  return number != nullptr ? *number : space.files.models.begin()->second.layers.size();
}

// That the base names, and those that a search of all of them takes.
std::vector<RuntimeId> runtimes_of(const Space& space, Runtimes searched) {
  const TomlValue* const requested = value_at(space.base, {"runtime", "name"});
  const auto* const its = requested == nullptr ? nullptr : std::get_if<std::string>(&requested->value);
  std::vector<RuntimeId> ids;
  for (const RuntimeKind& kind : runtimes())
    if (searched == Runtimes::All || kind.name == (its != nullptr ? *its : runtimes().front().name))
      ids.push_back(kind.id);
  return ids;
}

// What any of the runtimes has; values of one name are one value.
template <class ValuesOf>
Axis axis_of_runtimes(const char* name, const char* usual, const Space& space, Runtimes searched,
                      const ValuesOf& values_of) {
  Axis made{name, {{usual, {}}}};
  for (const RuntimeId id : runtimes_of(space, searched))
    for (AxisValue& its : values_of(id))
      if (std::ranges::find(made.values, its.text, &AxisValue::text) == made.values.end())
        made.values.push_back(std::move(its));
  return made;
}

KeyPath switched(const char* key) { return {"runtime", "switches", key}; }

// Besides what `layout.sharding` says: for how long gathered parameters stay.
std::vector<AxisValue> reshard_values(RuntimeId runtime, std::int64_t devices_of_node) {
  switch (runtime) {
    case RuntimeId::Fsdp2:
      return {{"within nodes", {{switched("reshard_after_forward"), value(devices_of_node)}}}};
    case RuntimeId::TorchTitan: {
      const KeyPath key = switched("fsdp_reshard_after_forward");
      return {{"always", {{key, value("always")}}}, {"never", {{key, value("never")}}}};
    }
    case RuntimeId::Megatron:
    case RuntimeId::PyTorch:
    case RuntimeId::Fsdp:
    case RuntimeId::DeepSpeed:
      return {};
  }
  return {};
}

// What is gathered ahead of its use; of fully_shard's, as far as PyTorch's own example does it
// (pytorch/examples, distributed/FSDP2/example.py).
std::vector<AxisValue> prefetch_values(RuntimeId runtime) {
  switch (runtime) {
    case RuntimeId::Fsdp2:
      return {{"two layers ahead",
               {{switched("num_to_forward_prefetch"), value(std::int64_t{2})},
                {switched("num_to_backward_prefetch"), value(std::int64_t{2})}}}};
    case RuntimeId::Fsdp: {
      const KeyPath key = switched("backward_prefetch");
      return {{"backward_post", {{key, value("backward_post")}}}, {"none", {{key, value("none")}}}};
    }
    case RuntimeId::DeepSpeed:
      return {{"no bucket", {{switched("stage3_prefetch_bucket_size"), value(std::int64_t{0})}}}};
    case RuntimeId::Megatron:
    case RuntimeId::PyTorch:
    case RuntimeId::TorchTitan:
      return {};
  }
  return {};
}

// PyTorch's modules compute their loss unfused, whatever Megatron is asked for.
Axis runtime_axis(const TomlTable& base) {
  const KeyPath name{"runtime", "name"}, loss{"train", "cross_entropy"};
  Axis made{"runtime", {}};
  for (const RuntimeKind& kind : runtimes()) {
    const std::string its(kind.name);
    made.values.push_back({its, {{name, value(its.c_str())}}});
    const TomlValue* const requested = kind.eager() ? nullptr : value_at(base, loss);
    if (requested != nullptr) made.values.back().settings.push_back({loss, *requested});
  }
  return made;
}

}  // namespace

// Below 8,192 tokens a rank's products are small enough for one rank to take the whole sequence.
std::vector<std::int64_t> context_degrees(std::int64_t sequence_length) {
  constexpr std::int64_t fewest_tokens = 8192;
  std::vector<std::int64_t> degrees;
  for (std::int64_t c = 2; sequence_length / c >= fewest_tokens; c *= 2) degrees.push_back(c);
  return degrees;
}

namespace {

// Layers of the first and of the last stage that leave the others equal shares, one of each at least: equal ones, each
// lighter by as little as will do, or, where there are none of these and stages cannot be equal either, one more on the
// first than on the last, which has the loss.
std::optional<std::pair<std::int64_t, std::int64_t>> lighter_ends(std::int64_t layers, std::int64_t stages) {
  const std::int64_t share = (layers + stages - 1) / stages;
  for (std::int64_t end = share - 1; end > 0; --end)
    if ((layers - 2 * end) % (stages - 2) == 0) return std::pair(end, end);
  if (layers % stages == 0) return std::nullopt;
  for (std::int64_t first = share; first > 1; --first)
    if ((layers - 2 * first + 1) % (stages - 2) == 0) return std::pair(first, first - 1);
  return std::nullopt;
}

}  // namespace

// Equal stages; the embedding and the loss each in one layer's place; and the first and last stage lighter.
Axis stages_axis(std::int64_t layers, const std::vector<std::int64_t>& pipelines) {
  Axis made{"stages", {{"equal", {}}}};
  made.values.push_back({"count_embedding, count_loss",
                         {{{"layout", "count_embedding"}, value(true)}, {{"layout", "count_loss"}, value(true)}}});
  std::vector<std::pair<std::int64_t, std::int64_t>> known;
  for (const std::int64_t p : pipelines) {
    const auto ends = p < 4 ? std::nullopt : lighter_ends(layers, p);
    if (!ends || std::ranges::find(known, *ends) != known.end()) continue;
    const auto [first, last] = *ends;
    // Lighter by more than a quarter, the others are too heavy to be worth it; uneven ends come where nothing else
    // does, as long as the others are not.
    const std::int64_t other = (layers - first - last) / (p - 2);
    if (first == last ? 4 * first * p < 3 * layers : 4 * other * p > 5 * layers) continue;
    known.push_back(*ends);
    made.values.push_back(
        {first == last ? fmt::format("{} layers at both ends", first)
                       : fmt::format("{} layers first, {} last", first, last),
         {{{"layout", "first_stage_layers"}, value(first)}, {{"layout", "last_stage_layers"}, value(last)}}});
  }
  return made;
}

Axis order_axis() { return axis("layout", "order", std::vector<const char*>{"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}); }

Axis allocator_axis() {
  const KeyPath key{"runtime", "allocator"};
  Axis made{"runtime.allocator", {{"default", {}}}};
  for (const char* settings : {"expandable_segments:True"}) made.values.push_back({settings, {{key, value(settings)}}});
  return made;
}

std::vector<AxisValue> offload_values(RuntimeId runtime, std::int64_t layers) {
  const KeyPath optimizer{"offload", "optimizer"}, fraction{"offload", "optimizer_fraction"},
      parameters{"offload", "parameters"}, activations{"offload", "activations"};
  switch (runtime) {
    case RuntimeId::Megatron: {
      std::vector<AxisValue> values{
          {"half of the optimizer", {{optimizer, to_host()}, {fraction, {0.5, {}}}}},
          {"optimizer", {{optimizer, to_host()}}},
      };
      // The last layer's stay on the device.
      for (const std::int64_t n : std::set<std::int64_t>{layers / 2, layers - 1})
        if (n > 0)
          values.push_back(
              {fmt::format("activations of {} layers", n),
               {{activations, to_host()}, {{"runtime", "switches", "cpu-offloading-num-layers"}, value(n)}}});
      return values;
    }
    case RuntimeId::PyTorch:
      return {
          {"activations", {{activations, to_host()}}},
          {"activations, pinned", {{activations, to_host()}, {{"runtime", "switches", "pin_memory"}, value(true)}}}};
    // The optimizer is where the parameters are. What is pinned takes powers of two.
    case RuntimeId::Fsdp2:
      return {
          {"parameters", {{parameters, to_host()}, {optimizer, to_host()}}},
          {"parameters, pageable",
           {{parameters, to_host()}, {optimizer, to_host()}, {{"runtime", "switches", "pin_memory"}, value(false)}}}};
    case RuntimeId::Fsdp:
    case RuntimeId::TorchTitan:
      return {{"parameters", {{parameters, to_host()}, {optimizer, to_host()}}}};
    case RuntimeId::DeepSpeed: {
      const KeyPath device{"runtime", "switches", "offload_optimizer", "device"},
          pins{"runtime", "switches", "offload_optimizer", "pin_memory"};
      return {{"optimizer", {{optimizer, to_host()}}},
              {"optimizer, pageable", {{optimizer, to_host()}, {device, to_host()}, {pins, value(false)}}},
              {"parameters", {{parameters, to_host()}, {optimizer, to_host()}}},
              {"parameters, pageable",
               {{parameters, to_host()}, {optimizer, to_host()}, {device, to_host()}, {pins, value(false)}}}};
    }
  }
  return {};
}

std::vector<FurtherAxis> further_axes(const Space& space, Runtimes searched) {
  const std::int64_t layers = layers_of(space), devices = space.files.clusters.begin()->second.node.devices;
  std::vector<FurtherAxis> all{{"allocator", allocator_axis()},
                               {"runtime", runtime_axis(space.base)},
                               {"offload", axis_of_runtimes("offload", "none", space, searched,
                                                            [&](RuntimeId id) { return offload_values(id, layers); })},
                               {"reshard", axis_of_runtimes("reshard", "default", space, searched,
                                                            [&](RuntimeId id) { return reshard_values(id, devices); })},
                               {"prefetch", axis_of_runtimes("prefetch", "default", space, searched,
                                                             [&](RuntimeId id) { return prefetch_values(id); })}};
  // Runtimes without any leave nothing to choose.
  std::erase_if(all, [](const FurtherAxis& its) { return its.axis.values.size() < 2; });
  return all;
}

namespace {

std::vector<std::int64_t> pipeline_degrees(const Scenario& base, std::int64_t most) {
  std::vector<std::int64_t> degrees;
  for (std::int64_t p = 1; p <= std::min<std::int64_t>({base.gpus, base.model.layers.size(), most}); ++p)
    if (base.gpus % p == 0) degrees.push_back(p);
  return degrees;
}

// Whole layers, or by operations, or every second one.
Axis titan_recompute_axis() {
  const KeyPath kind{"train", "recompute"}, option = switched("selective_ac_option");
  return {"recompute",
          {{"none", {{kind, value("none")}}},
           {"selective op", {{kind, value("selective")}, {option, value("op")}}},
           {"selective 2", {{kind, value("selective")}, {option, value(std::int64_t{2})}}},
           {"full", {{kind, value("full")}}}}};
}

// Shards of all data-parallel ranks, or of those of a node, which replicas of nodes hold too.
Axis shard_group_axis(std::int64_t devices_of_node) {
  return {"shard_group",
          {{"all", {}}, {fmt::format("{}", devices_of_node), {{{"layout", "shard_group"}, value(devices_of_node)}}}}};
}

Axis stages_of_zero(RuntimeId runtime) {
  if (runtime == RuntimeId::DeepSpeed)
    return axis("layout", "sharding", std::vector<const char*>{"zero1", "zero2", "zero3"});
  return axis("layout", "sharding", std::vector<const char*>{"zero2", "zero3"});
}

// Of one runtime of PyTorch's, what it has of these.
std::vector<Axis> axes_of_eager(const Scenario& base, RuntimeId runtime) {
  std::vector<Axis> axes;
  const bool titan = runtime == RuntimeId::TorchTitan;
  const std::int64_t node = base.cluster.node.devices;
  if (titan) {
    axes.push_back(axis("layout", "tensor", up_to(node, {1, 2, 4, 8})));
    axes.push_back(axis("layout", "pipeline", pipeline_degrees(base, 16)));
    axes.push_back(chunks_axis({1, 2}));  // as many stages on a rank as torchtitan has by itself
    if (const auto contexts = context_degrees(base.train.sequence_length); !contexts.empty()) {
      std::vector<std::int64_t> degrees{1};
      degrees.insert(degrees.end(), contexts.begin(), contexts.end());
      axes.push_back(axis("layout", "context", degrees));
    }
    if (base.model.experts())
      axes.push_back(axis("layout", "expert", divisors(base.model.experts()->count, base.gpus)));
  }
  axes.push_back(axis("train", "micro_batch", up_to(base.train.global_batch, {1, 2, 4, 8})));
  axes.push_back(titan ? titan_recompute_axis() : axis("train", "recompute", std::vector<const char*>{"none", "full"}));
  if (runtime != RuntimeId::PyTorch && !titan) axes.push_back(stages_of_zero(runtime));
  const bool shards_in_groups = titan || runtime == RuntimeId::Fsdp2 || runtime == RuntimeId::Fsdp;
  if (shards_in_groups && base.gpus > node) axes.push_back(shard_group_axis(node));
  return axes;
}

}  // namespace

std::vector<Axis> default_axes(const Scenario& base, Runtimes searched) {
  const RuntimeKind& runtime = runtime_kind(base.runtime.name);
  if (searched == Runtimes::One && runtime.eager()) return axes_of_eager(base, runtime.id);
  const std::vector<const char*> stages = searched == Runtimes::One
                                              ? std::vector<const char*>{"none", "zero1"}
                                              : std::vector<const char*>{"none", "zero1", "zero2", "zero3"};
  const std::vector<std::int64_t> pipelines = pipeline_degrees(base, 64);
  std::vector<Axis> axes{
      axis("layout", "tensor", up_to(base.cluster.node.devices, {1, 2, 4, 8})),
      axis("layout", "sequence_parallel", std::vector<bool>{false, true}),
      axis("layout", "pipeline", pipelines),
      chunks_axis(up_to(base.model.layers.size(), {1, 2, 4, 5, 8})),
      stages_axis(base.model.layers.size(), pipelines),
      axis("train", "micro_batch", up_to(base.train.global_batch, {1, 2, 4, 8})),
      recompute_axis(),
      axis("layout", "sharding", stages),
      axis("train", "gradient_dtype", std::vector<const char*>{"fp32", "bf16"}),
      order_axis(),
  };
  if (base.model.experts()) {
    axes.push_back(axis("layout", "expert", divisors(base.model.experts()->count, base.gpus)));
    axes.push_back(axis("layout", "expert_tensor", up_to(base.cluster.node.devices, {1, 2, 4, 8})));
  }
  if (!context_degrees(base.train.sequence_length).empty()) axes.push_back(context_axis(base.train.sequence_length));
  return axes;
}

}  // namespace tidemark::scenarios
