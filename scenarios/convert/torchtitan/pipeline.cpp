#include "scenarios/convert/torchtitan/pipeline.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "parallel/job/stages.hpp"
#include "scenarios/frameworks/torchtitan/titan_pipeline.hpp"

// torchtitan 0.2.2, torchtitan/config/job_config.py and distributed/pipeline_parallel.py.

namespace tidemark::scenarios {
namespace {

constexpr std::array<std::string_view, 9> keys{
    "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size",
    "pipeline_parallel_split_points",
    "pipeline_parallel_layers_per_stage",
    "pipeline_parallel_schedule_csv",
    "module_fqns_per_model_part",
    "pipeline_parallel_first_stage_less_layers",
    "pipeline_parallel_last_stage_less_layers",
    "pipeline_parallel_expert_parallel_overlap",
};

struct NamedSchedule {
  std::string_view name, here;
  ScheduleKind kind;
};
constexpr std::array schedules{
    NamedSchedule{"1F1B", "1f1b", ScheduleKind::OneFOneB},
    NamedSchedule{"GPipe", "gpipe", ScheduleKind::GPipe},
    NamedSchedule{"Interleaved1F1B", "interleaved", ScheduleKind::Interleaved},
    NamedSchedule{"LoopedBFS", "looped-bfs", ScheduleKind::LoopedBreadthFirst},
    NamedSchedule{"InterleavedZeroBubble", "interleaved-zb", ScheduleKind::InterleavedZeroBubble},
    NamedSchedule{"ZBVZeroBubble", "zb-v", ScheduleKind::ZeroBubbleV},
    NamedSchedule{"DualPipeV", "dualpipe-v", ScheduleKind::DualPipeV},
};

// A local batch goes through the pipeline in parts; a scenario's micro-batch is one of them.
void read_batches(Given& parallelism, Draft& draft) {
  constexpr std::string_view key = "pipeline_parallel_microbatch_size";
  const std::int64_t each = parallelism.integer(key).value_or(1),
                     local = draft.integer("train.micro_batch").value_or(1);
  const std::int64_t gpus = draft.integer("gpus").value_or(0);
  std::int64_t model_ranks = 1;
  for (const char* axis : {"layout.tensor", "layout.pipeline", "layout.context"})
    model_ranks = product({model_ranks, draft.integer(axis).value_or(1)});
  draft.set("train.micro_batch", each, parallelism.place(key));
  const auto global = draft.integer("train.global_batch");
  if (gpus == 0 || model_ranks < 1 || gpus % model_ranks != 0) {
    if (!global)
      draft.remark(RemarkKind::NotExpressed, "training.local_batch_size",
                   "the batch of all ranks takes the number of GPUs, which is not said", {});
    return;
  }
  const std::int64_t of_all = local * (gpus / model_ranks);
  if (global && *global != of_all)
    draft.remark(RemarkKind::NotExpressed, "training.global_batch_size",
                 not_modelled("several local batches, one after the other through the pipeline, are not modelled yet"),
                 {});
  if (!global) draft.set("train.global_batch", of_all, parallelism.place("pipeline_parallel_degree"));
}

// Names of modules of each stage: of layers, "layers.0".
void read_parts(Given& parallelism, Draft& draft) {
  constexpr std::string_view key = "module_fqns_per_model_part";
  const TomlValue* const given = parallelism.take(key);
  if (given == nullptr) return;
  std::vector<TomlValue> layers;
  const auto* const parts = std::get_if<std::vector<TomlValue>>(&given->value);
  for (std::size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
    const auto* const names = std::get_if<std::vector<TomlValue>>(&(*parts)[i].value);
    if (names == nullptr) continue;
    const auto is_layer = [](const TomlValue& name) {
      const auto* const text = std::get_if<std::string>(&name.value);
      return text != nullptr && text->starts_with("layers.");
    };
    layers.push_back({std::int64_t{std::ranges::count_if(*names, is_layer)}, given->place});
  }
  const std::int64_t stages = std::ssize(layers), ranks = draft.integer("layout.pipeline").value_or(1);
  draft.set("layout.stage_layers", layers, given->place);
  if (stages > ranks && stages % ranks == 0) draft.set("layout.chunks", stages / ranks, given->place);
}

}  // namespace

void read_titan_pipeline(Given& parallelism, Draft& draft) {
  constexpr std::string_view schedule_key = "pipeline_parallel_schedule",
                             batch_key = "pipeline_parallel_microbatch_size";
  const std::string schedule = parallelism.text(schedule_key).value_or("1F1B");
  const auto* const known = std::ranges::find(schedules, schedule, &NamedSchedule::name);
  if (const auto each = parallelism.integer(batch_key); each && *each < 1)
    parallelism.tell(RemarkKind::NotExpressed, batch_key, "is no number of sequences: 1 would do");
  if (draft.integer("layout.pipeline").value_or(1) == 1) {
    // PyTorch's _PipelineSchedule names; what is none of them is a slip, whether it is used or not.
    constexpr auto others = std::to_array<std::string_view>({"PipelineScheduleSingle", "PipelineScheduleMulti"});
    if (known == schedules.end() && std::ranges::find(others, schedule) == others.end())
      parallelism.tell(RemarkKind::NotExpressed, schedule_key, "is no schedule of PyTorch's");
    for (const std::string_view key : keys)
      if (parallelism.has(key)) parallelism.tell(RemarkKind::NoMatter, key, "there is no pipeline");
    return;
  }
  if (known != schedules.end())
    draft.set("layout.schedule", std::string(known->here), parallelism.place(schedule_key));
  else
    parallelism.tell(RemarkKind::NotExpressed, schedule_key,
                     not_modelled(fmt::format("PyTorch's schedule {} is not modelled yet", schedule)));
  read_batches(parallelism, draft);
  read_parts(parallelism, draft);
  for (const std::string_view key : {"pipeline_parallel_layers_per_stage", "pipeline_parallel_first_stage_less_layers",
                                     "pipeline_parallel_last_stage_less_layers"})
    if (const auto count = parallelism.integer(key))
      draft.set(fmt::format("runtime.switches.{}", key), *count, parallelism.place(key));
  for (const std::string_view key : {"pipeline_parallel_schedule_csv", "pipeline_parallel_split_points"})
    parallelism.refuse(key, "stages and schedules of one's own are", {"\"\"", "[]"});
  constexpr std::string_view overlap = "pipeline_parallel_expert_parallel_overlap";
  if (schedule != "DualPipeV")
    parallelism.no_matter(std::array{overlap}, "is for DualPipeV");
  else if (const Place place = parallelism.place(overlap); parallelism.flag(overlap).value_or(true))
    parallelism.tell(
        RemarkKind::NotExpressed, schedule_key,
        not_modelled(fmt::format("DualPipeV with {} runs passes in two threads, which is not modelled", overlap)));
  else
    draft.set(fmt::format("runtime.switches.{}", overlap), false, place);
}

std::vector<TomlKey> titan_pipeline_keys(const Scenario& s) {
  if (s.layout.pipeline == 1) return {};
  const TitanSettings& titan = s.runtime.eager.titan;
  const auto key = [](std::string_view name, Content content) {
    return TomlKey{std::string(name), {}, {std::move(content), {}}};
  };
  const auto* const schedule = std::ranges::find(schedules, s.layout.schedule, &NamedSchedule::kind);
  std::vector<TomlKey> made{key("pipeline_parallel_microbatch_size", s.train.micro_batch)};
  // One that torchtitan has not is told by what comes back.
  if (schedule != schedules.end()) made.push_back(key("pipeline_parallel_schedule", std::string(schedule->name)));
  const auto integer = [&](std::string_view name, std::int64_t value, std::int64_t usual) {
    if (value != usual) made.push_back(key(name, value));
  };
  integer("pipeline_parallel_first_stage_less_layers", titan.first_stage_less, 1);
  integer("pipeline_parallel_last_stage_less_layers", titan.last_stage_less, 1);
  if (s.layout.schedule == ScheduleKind::DualPipeV)
    made.push_back(key("pipeline_parallel_expert_parallel_overlap", false));
  const std::vector<Stage> stages = split_into_stages(static_cast<std::int32_t>(s.model.layers.size()), s.layout);
  std::vector<std::int32_t> layers;
  for (const Stage& stage : stages) layers.push_back(stage.layers());
  if (layers == titan_stage_layers(s.model.layers.size(), std::ssize(stages), titan) && s.layout.chunks <= 2)
    return made;
  std::vector<TomlValue> parts;
  for (const Stage& stage : stages) {
    std::vector<TomlValue> names;
    if (stage.embedding) names.push_back({std::string("tok_embeddings"), {}});
    for (std::int32_t layer = stage.first; layer < stage.last; ++layer)
      names.push_back({fmt::format("layers.{}", layer), {}});
    if (stage.head) names.push_back({std::string("norm"), {}}), names.push_back({std::string("output"), {}});
    parts.push_back({std::move(names), {}});
  }
  made.push_back(key("module_fqns_per_model_part", parts));
  return made;
}

}  // namespace tidemark::scenarios
