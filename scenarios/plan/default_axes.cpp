#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "scenarios/plan/space.hpp"

// The default space, and the axes beyond it. docs/planner.md shows them; a new axis is a line here.

namespace tidemark::scenarios {
namespace {

TomlValue value(std::int64_t n) { return {n, {}}; }
TomlValue value(bool b) { return {b, {}}; }
TomlValue value(const char* text) { return {std::string(text), {}}; }
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

Axis chunks_axis(std::int64_t layers) {
  Axis made{"chunks", {}};
  for (const std::int64_t c : up_to(layers, {1, 2, 4, 5, 8})) {
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

// Plain PyTorch computes its loss unfused, whatever Megatron is asked for.
Axis runtime_axis(const TomlTable& base) {
  const KeyPath name{"runtime", "name"}, loss{"train", "cross_entropy"};
  Axis made{"runtime", {{"megatron", {{name, value("megatron")}}}, {"pytorch", {{name, value("pytorch")}}}}};
  if (const TomlValue* its = value_at(base, loss)) made.values.front().settings.push_back({loss, *its});
  return made;
}

}  // namespace

// Equal stages; the embedding and the loss each in one layer's place; and the first and last stage lighter by as little
// as leaves the others equal shares.
Axis stages_axis(std::int64_t layers, const std::vector<std::int64_t>& pipelines) {
  Axis made{"stages", {{"equal", {}}}};
  made.values.push_back({"count_embedding, count_loss",
                         {{{"layout", "count_embedding"}, value(true)}, {{"layout", "count_loss"}, value(true)}}});
  std::vector<std::int64_t> ends;
  for (const std::int64_t p : pipelines) {
    if (p < 4) continue;
    std::int64_t end = (layers + p - 1) / p - 1;
    while (end > 0 && (layers - 2 * end) % (p - 2) != 0) --end;
    // Lighter by more than a quarter, the others are too heavy to be worth it.
    if (end >= 1 && 4 * end * p >= 3 * layers && std::find(ends.begin(), ends.end(), end) == ends.end())
      ends.push_back(end);
  }
  for (const std::int64_t end : ends)
    made.values.push_back(
        {fmt::format("{} layers at both ends", end),
         {{{"layout", "first_stage_layers"}, value(end)}, {{"layout", "last_stage_layers"}, value(end)}}});
  return made;
}

Axis order_axis() { return axis("layout", "order", std::vector<const char*>{"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}); }

Axis allocator_axis() {
  const KeyPath key{"runtime", "allocator"};
  Axis made{"runtime.allocator", {{"default", {}}}};
  for (const char* settings : {"expandable_segments:True"}) made.values.push_back({settings, {{key, value(settings)}}});
  return made;
}

std::vector<FurtherAxis> further_axes(const TomlTable& base) {
  return {{"allocator", allocator_axis()}, {"runtime", runtime_axis(base)}};
}

std::vector<Axis> default_axes(const Scenario& base) {
  std::vector<std::int64_t> pipelines;
  for (std::int64_t p = 1; p <= std::min<std::int64_t>({base.gpus, base.model.layers, 64}); ++p)
    if (base.gpus % p == 0) pipelines.push_back(p);
  return {
      axis("layout", "tensor", up_to(base.cluster.node.devices, {1, 2, 4, 8})),
      axis("layout", "sequence_parallel", std::vector<bool>{false, true}),
      axis("layout", "pipeline", pipelines),
      chunks_axis(base.model.layers),
      stages_axis(base.model.layers, pipelines),
      axis("train", "micro_batch", up_to(base.train.global_batch, {1, 2, 4, 8})),
      recompute_axis(),
      axis("layout", "sharding", std::vector<const char*>{"none", "zero1"}),
      axis("train", "gradient_dtype", std::vector<const char*>{"fp32", "bf16"}),
      order_axis(),
  };
}

}  // namespace tidemark::scenarios
