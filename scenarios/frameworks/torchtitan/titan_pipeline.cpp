#include "scenarios/frameworks/torchtitan/titan_pipeline.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "scenarios/scenario/names.hpp"

// torchtitan/distributed/pipeline_parallel.py, 0.2.0 to 0.2.2.

namespace tidemark::scenarios {
namespace {

constexpr std::string_view first_less = "pipeline_parallel_first_stage_less_layers",
                           last_less = "pipeline_parallel_last_stage_less_layers",
                           layers_of_each = "pipeline_parallel_layers_per_stage",
                           overlaps_experts = "pipeline_parallel_expert_parallel_overlap";
constexpr IntegerRange fewer_layers{0, 1 << 10}, some_layers{1, 1 << 16};

// pipeline_llm: how many stages a rank has.
void settle_chunks(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  const TitanSettings& titan = requested.runtime.eager.titan;
  const bool several = traits_of(layout.schedule).several_chunks;
  if (titan.layers_per_stage == 0) {
    if (several && !tables.layout.has("chunks")) layout.chunks = 2;
    return;
  }
  if (!tables.model_sound) return;
  const std::int64_t layers = requested.model.layers.size() + titan.first_stage_less + titan.last_stage_less,
                     stages = (layers + titan.layers_per_stage - 1) / titan.layers_per_stage;
  if (stages % layout.pipeline != 0) {
    tables.runtime.problem("switches",
                           fmt::format("{} = {} makes {} stages of {} layers, the ends counted, and pipeline = {} does "
                                       "not divide them",
                                       layers_of_each, titan.layers_per_stage, stages, layers, layout.pipeline),
                           fmt::format("{} would do", (layers + layout.pipeline - 1) / layout.pipeline));
    return;
  }
  const auto chunks = static_cast<std::int32_t>(stages / layout.pipeline);
  if (tables.layout.has("chunks") && chunks != layout.chunks)
    tables.layout.problem("chunks",
                          fmt::format("chunks = {}, and {} makes {} of them", layout.chunks, layers_of_each, chunks),
                          "set only one of them");
  layout.chunks = chunks;
}

void settle_stage_layers(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  const TitanSettings& titan = requested.runtime.eager.titan;
  if (!layout.stage_layers.empty() || !tables.model_sound) return;
  layout.stage_layers = titan_stage_layers(requested.model.layers.size(), layout.stages(), titan);
  if (!layout.stage_layers.empty()) return;
  tables.layout.problem(
      "pipeline",
      fmt::format("{} stages of {} layers, the ends counted as {} and {}, leave no place for an end", layout.stages(),
                  requested.model.layers.size(), titan.first_stage_less, titan.last_stage_less),
      "fewer stages, or stage_layers");
}

// ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble: rounds of as many micro-batches as there are ranks, or
// somewhat more.
void settle_rounds(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  const std::int64_t model_ranks = std::int64_t{layout.tensor} * layout.context * layout.pipeline;
  const std::int64_t data = tables.layout.has("data") ? layout.data : requested.gpus / model_ranks;
  if (data == 0 || !tables.train.sound("global_batch") || !tables.train.sound("micro_batch")) return;
  const std::int64_t micro_batches =
      tables.train.has("global_batch") ? requested.train.global_batch / (requested.train.micro_batch * data) : 1;
  if (micro_batches == 0) return;
  if (layout.schedule == ScheduleKind::OneFOneB && micro_batches < layout.pipeline)
    tables.layout.problem(
        "pipeline",
        fmt::format("PyTorch's 1F1B refuses fewer micro-batches ({}) than stages ({})", micro_batches, layout.pipeline),
        fmt::format("global_batch = {} would do", requested.train.micro_batch * data * layout.pipeline));
  if (layout.schedule == ScheduleKind::DualPipeV && micro_batches < layout.stages())
    tables.layout.problem(
        "pipeline",
        fmt::format("PyTorch's DualPipeV refuses fewer micro-batches ({}) than stages ({})", micro_batches,
                    layout.stages()),
        fmt::format("global_batch = {} would do", requested.train.micro_batch * data * layout.stages()));
  if (!traits_of(layout.schedule).in_groups) return;
  const std::int64_t rounds = std::max<std::int64_t>(1, micro_batches / layout.pipeline);
  if (micro_batches % rounds != 0)
    tables.layout.problem(
        "schedule",
        fmt::format("PyTorch's {} takes {} micro-batches in {} rounds of as many",
                    layout.schedule == ScheduleKind::Interleaved ? "Interleaved1F1B" : "InterleavedZeroBubble",
                    micro_batches, rounds),
        fmt::format("a multiple of {} micro-batches would do", layout.pipeline));
  layout.chunk_group = static_cast<std::int32_t>(micro_batches / rounds);
}

void refuse_unmodelled(Scenario& requested, ScenarioTables& tables) {
  const Layout& layout = requested.layout;
  const Versions& versions = requested.runtime.versions;
  const auto refuse = [&](std::string_view key, bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong && tables.layout.sound(key)) tables.layout.problem(key, what, std::string(hint));
  };
  refuse("pipeline", versions.torchtitan < Version{0, 2},
         not_modelled("pipelines of torchtitan before 0.2 are not modelled"), "versions = { torchtitan = \"0.2.2\" }");
  refuse("schedule", traits_of(layout.schedule).several_chunks && versions.torch < Version{2, 10},
         not_modelled("several stages on a rank, of PyTorch before 2.10, are not modelled"),
         "versions = { torch = \"2.10\" }, or \"1f1b\"");
  refuse("schedule", layout.schedule == ScheduleKind::ZeroBubbleH1, "PyTorch has no ZB-H1",
         "\"1f1b\", \"interleaved-zb\" or \"zb-v\"");
  refuse("pipeline", layout.tensor > 1 && requested.gpus == layout.tensor * layout.pipeline,
         not_modelled("a pipeline of tensors in parts without data-parallel ranks is not modelled yet"),
         "more gpus, or tensor = 1");
  refuse("pipeline", requested.runtime.eager.fully_shard.offload.has_value(),
         not_modelled("CPUOffloadPolicy in a pipeline is not modelled yet"), "1, or no [offload]");
}

// Backward passes in two parts (torch/distributed/pipelining/_backward.py): weights get their gradients later.
bool parts_backward(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::OneFOneB:
    case ScheduleKind::GPipe:
    case ScheduleKind::Interleaved:
    case ScheduleKind::LoopedBreadthFirst:
    case ScheduleKind::ZeroBubbleH1:  // refused: PyTorch has none
      return false;
    case ScheduleKind::InterleavedZeroBubble:
    case ScheduleKind::ZeroBubbleV:
    case ScheduleKind::DualPipeV:
      return true;
  }
  return false;
}

// dual_pipe_v.py overlap_callback, from 0.2.1 on.
bool overlaps(const Scenario& requested, ScenarioTables& tables) {
  if (requested.layout.schedule != ScheduleKind::DualPipeV || requested.runtime.versions.torchtitan < Version{0, 2, 1})
    return false;
  const TomlValue* const given = tables.runtime.table("switches").raw(overlaps_experts);
  const bool* const said = given == nullptr ? nullptr : std::get_if<bool>(&given->value);
  return said == nullptr || *said;
}

void check_parts(const Scenario& requested, ScenarioTables& tables) {
  if (!parts_backward(requested.layout.schedule)) return;
  const TitanSettings& titan = requested.runtime.eager.titan;
  const Recompute recompute = requested.train.recompute.kind;
  const auto refuse = [&](bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong)
      tables.layout.problem(
          "schedule",
          {fmt::format("schedule = \"{}\": {}", word(schedule_names, requested.layout.schedule), what.text), what.kind},
          std::string(hint));
  };
  refuse(overlaps(requested, tables),
         "torchtitan runs overlapped passes in two threads, which wait for each other at experts only",
         fmt::format("{} = false in [runtime.switches]", overlaps_experts));
  refuse(requested.runtime.versions.torch < Version{2, 15},
         not_modelled("backward passes in two parts, of PyTorch before 2.15, are not modelled"),
         "versions = { torch = \"2.15\" }");
  refuse(titan.compile_layers, "PyTorch does not split the backward passes of compiled layers",
         "compile = \"loss\", or \"interleaved\"");
  refuse(recompute == Recompute::Selective && titan.checkpointed_layers == 0,
         "operation-level checkpointing allows one backward pass, and PyTorch stops at the second part",
         "recompute = \"none\", or \"interleaved\"");
  refuse(recompute == Recompute::Full || titan.checkpointed_layers > 0,
         not_modelled("layers that run again for each of their weights are not modelled yet"),
         "recompute = \"none\", or \"interleaved\"");
  refuse(tables.model_sound && requested.model.experts() != nullptr,
         not_modelled("weight gradients of experts that come later are not modelled yet"), "\"interleaved\"");
  refuse(titan.reshard == ReshardPolicy::Always,
         "PyTorch finds no weights where parameters are gathered again, and computes no gradients for them",
         "leave fsdp_reshard_after_forward out");
}

}  // namespace

std::vector<std::int32_t> titan_stage_layers(std::int64_t layers, std::int64_t stages, const TitanSettings& titan) {
  const std::int64_t places = layers + titan.first_stage_less + titan.last_stage_less, each = places / stages,
                     longer = places % stages;
  if (each == 0 || titan.first_stage_less > each || titan.last_stage_less > each) return {};
  std::vector<std::int32_t> found;
  for (std::int64_t s = 0; s < stages; ++s)
    found.push_back(static_cast<std::int32_t>(each + (s < longer ? 1 : 0) - (s == 0 ? titan.first_stage_less : 0) -
                                              (s == stages - 1 ? titan.last_stage_less : 0)));
  return found;
}

void read_titan_pipeline(TomlReader& switches, TitanSettings& titan) {
  const auto integer = [&](std::string_view key, const IntegerRange& range, std::int32_t usual) {
    return static_cast<std::int32_t>(switches.integer(key, range).value_or(usual));
  };
  titan.first_stage_less = integer(first_less, fewer_layers, 1);
  titan.last_stage_less = integer(last_less, fewer_layers, 1);
  titan.layers_per_stage = integer(layers_of_each, some_layers, 0);
  (void)switches.boolean(overlaps_experts);  // of one schedule, which is not run with it
}

void settle_titan_pipeline(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  requested.runtime.eager.titan.pipelined = layout.pipeline > 1;
  for (const std::string_view key : {"count_embedding", "count_loss", "first_stage_layers", "last_stage_layers"})
    if (tables.layout.has(key) && tables.layout.sound(key))
      tables.layout.problem(
          key, fmt::format("{}: torchtitan takes the number of layers that its ends have less than other stages", key),
          fmt::format("{} and {} in [runtime.switches], or stage_layers", first_less, last_less));
  if (layout.pipeline == 1) {
    for (const std::string_view key : {"stage_layers", "schedule"})
      if (tables.layout.has(key) && tables.layout.sound(key) &&
          (key != "schedule" || layout.schedule != ScheduleKind::OneFOneB))
        tables.layout.problem(key, fmt::format("{} without a pipeline", key),
                              "set pipeline to 2 or more, or leave it out");
    return;
  }
  if (!tables.layout.sound("pipeline") || !tables.layout.sound("schedule") || !tables.layout.sound("chunks")) return;
  refuse_unmodelled(requested, tables);
  check_parts(requested, tables);
  settle_chunks(requested, tables);
  settle_stage_layers(requested, tables);
  if (tables.top.sound("gpus")) settle_rounds(requested, tables);
}

}  // namespace tidemark::scenarios
