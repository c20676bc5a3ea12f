#include "scenarios/scenario/schedule_reader.hpp"

#include <string>

#include <fmt/format.h>

#include "parallel/job/stages.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange chunk_count{1, 1 << 10};
constexpr IntegerRange layer_count{1, 1 << 16};
constexpr IntegerRange group_size{1, 1 << 20};

void read_stage_layers(TomlReader& table, Layout& layout) {
  const TomlValue* given = table.raw("stage_layers");
  if (given == nullptr) return;
  const auto* list = std::get_if<std::vector<TomlValue>>(&given->value);
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto* count = std::get_if<std::int64_t>(&(*list)[i].value);
    if (count == nullptr || *count < 0 || *count > layer_count.high) {
      list = nullptr;
      break;
    }
    layout.stage_layers.push_back(static_cast<std::int32_t>(*count));
  }
  if (list == nullptr || list->empty())
    table.problem("stage_layers", fmt::format("stage_layers takes a list of layers by stage, not {}", text(*given)),
                  "such as [9, 10, 10, 9]");
}

}  // namespace

void read_schedule(TomlReader& table, Layout& layout) {
  layout.chunks = static_cast<std::int32_t>(table.integer("chunks", chunk_count).value_or(1));
  const std::optional<ScheduleKind> kind = read_name(table, "schedule", schedule_names);
  layout.schedule = kind.value_or(layout.chunks > 1 ? ScheduleKind::Interleaved : ScheduleKind::OneFOneB);
  read_stage_layers(table, layout);
  layout.first_layers = static_cast<std::int32_t>(table.integer("first_stage_layers", layer_count).value_or(0));
  layout.last_layers = static_cast<std::int32_t>(table.integer("last_stage_layers", layer_count).value_or(0));
}

void check_schedule(TomlReader& table, const Layout& layout) {
  if (!table.sound("schedule") || !table.sound("chunks")) return;
  const bool several = traits_of(layout.schedule).several_chunks;
  if (several && layout.chunks == 1)
    table.problem("schedule",
                  fmt::format("schedule = \"{}\" with one chunk on each rank", word(schedule_names, layout.schedule)),
                  "set chunks to 2 or more, or schedule = \"1f1b\"");
  if (!several && layout.chunks > 1)
    table.problem("schedule",
                  fmt::format("schedule = \"{}\" runs one chunk on each rank, and chunks = {}",
                              word(schedule_names, layout.schedule), layout.chunks),
                  "set schedule = \"interleaved\", or leave chunks out");
  if (traits_of(layout.schedule).placement == PlacementShape::V && layout.chunks > 2)
    table.problem("chunks",
                  fmt::format("schedule = \"{}\" runs two chunks on each rank, and chunks = {}",
                              word(schedule_names, layout.schedule), layout.chunks),
                  "2 would do");
  if (layout.chunks > 1 && layout.pipeline == 1)
    table.problem("chunks", fmt::format("chunks = {} without a pipeline", layout.chunks),
                  "set pipeline to 2 or more, or leave chunks out");
}

std::int32_t read_chunk_group(TomlReader& switches) {
  return static_cast<std::int32_t>(switches.integer(chunk_group_switch, group_size).value_or(0));
}

void check_stages(TomlReader& table, std::int32_t layers, const Layout& layout) {
  const std::string wrong = wrong_with_stages(layers, layout);
  if (wrong.empty()) return;
  const std::string_view key = !layout.stage_layers.empty() ? "stage_layers"
                               : layout.first_layers > 0    ? "first_stage_layers"
                               : layout.last_layers > 0     ? "last_stage_layers"
                               : layout.chunks > 1          ? "chunks"
                                                            : "pipeline";
  table.problem(key, wrong, key == "chunks" ? "a divisor of a rank's layers would do" : "");
}

// Megatron-LM core 0.14, schedules.py: what its interleaved schedule takes.
void check_interleaving(TomlReader& table, const Layout& layout, std::int64_t micro_batches) {
  if (!traits_of(layout.schedule).in_groups) return;
  const std::int64_t group = layout.group(), stages = layout.pipeline;
  if (group < stages || group > micro_batches) {
    const bool too_few = micro_batches < stages;
    table.problem("chunks",
                  too_few ? fmt::format("the interleaved schedule takes groups of {} micro-batches, and there {} {}",
                                        stages, micro_batches == 1 ? "is" : "are", micro_batches)
                          : fmt::format("the interleaved schedule takes groups of {} to {} micro-batches, not {}",
                                        stages, micro_batches, group),
                  too_few ? fmt::format("at least {} micro-batches would do: a larger global_batch", stages)
                          : fmt::format("leave {} out", chunk_group_switch));
  } else if (const std::int64_t rest = micro_batches % group; rest > 0 && rest < stages) {
    table.problem("chunks",
                  fmt::format("{} micro-batches in groups of {} leave {}, fewer than {} stages", micro_batches, group,
                              rest, stages),
                  "a global_batch that leaves none would do");
  }
}

}  // namespace tidemark::scenarios
