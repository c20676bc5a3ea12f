#include "scenarios/convert/settle.hpp"

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace tidemark::scenarios {
namespace {

// Of a number that is no multiple of `unit`, the next one, in place of `path`; not judged, unless it is what a script
// has in place of a variable.
void round_up(Draft& draft, const std::string& path, const std::string& what, std::int64_t unit, std::int64_t times,
              const std::string& of, const std::string& variable = {}) {
  const TomlValue* const found = draft.find(path);
  const std::optional<std::int64_t> asks = draft.integer(path);
  constexpr std::int64_t most = std::int64_t{1} << 32;
  if (!asks || unit < 1 || *asks < 1 || *asks > most || unit > most || *asks % unit == 0) return;
  const std::int64_t next = product({*asks / unit + 1, unit, times});
  const Place place = found->place;
  draft.set(path, next, place);
  if (!variable.empty())
    return draft.remark(RemarkKind::Assumed, fmt::format("{} = {}", what, *asks),
                        fmt::format("of one node, in place of ${}, which whoever starts the script sets; it is not a "
                                    "multiple of {} = {}: the answer is of {}, the least; --gpus N says another number",
                                    variable, of, unit, next),
                        place);
  draft.remark(RemarkKind::NotJudged, fmt::format("{} = {}", what, *asks),
               fmt::format("is not a multiple of {} = {}: the figures are of {}", of, unit, next), place);
}

bool is_count(std::int64_t number) {
  constexpr std::int64_t most = std::int64_t{1} << 24;
  return number >= 1 && number <= most;
}

std::optional<std::int64_t> layers_of(const Draft& draft, const Converted& converted,
                                      const std::filesystem::path& data_root) {
  for (const char* key : {"num_hidden_layers", "n_layer"})
    if (const auto said = draft.integer(std::string("model_override.") + key)) return said;
  const std::string name = draft.text("model").value_or("");
  try {
    const ScenarioFiles files = files_of(converted.document, converted.file, {converted.file.parent_path(), data_root});
    const auto found = files.models.find(name);
    return found == files.models.end() ? std::nullopt : std::optional<std::int64_t>(found->second.layers.size());
  } catch (const InputError&) {  // told where the scenario is read
    return std::nullopt;
  }
}

}  // namespace

void settle_stages(Converted& converted, const std::filesystem::path& data_root) {
  if (converted.from != Dialect::Megatron) return;
  Draft draft;
  draft.file = converted.file.string();
  draft.document = converted.document;
  const std::int64_t stages = draft.integer("layout.pipeline").value_or(1);
  for (const char* key : {"stage_layers", "first_stage_layers", "last_stage_layers", "count_embedding", "count_loss",
                          "layers_per_chunk", "chunks"})
    if (draft.find(std::string("layout.") + key) != nullptr) return;
  if (stages < 2) return;
  const std::optional<std::int64_t> layers = layers_of(draft, converted, data_root);
  if (!layers || *layers % stages == 0) return;
  const std::int64_t each = *layers / stages + 1, last = *layers - each * (stages - 1);
  if (last < 1) return;
  const Place place = draft.find("layout.pipeline")->place;
  draft.set("layout.last_stage_layers", last, place);
  draft.remark(RemarkKind::NotJudged, fmt::format("num-layers = {}", *layers),
               fmt::format("is not a multiple of pipeline-model-parallel-size = {}, at which Megatron-LM stops: the "
                           "figures are of {} layers in each stage and {} in the last",
                           stages, each, last),
               place);
  converted.document = std::move(draft.document);
  converted.remarks.insert(converted.remarks.end(), draft.remarks.begin(), draft.remarks.end());
}

// Where a launch file contradicts itself, the answer is of the least that holds, without yes or no: devices that its
// layout fills, and sequences for all of them. Where nothing of that holds, it is refused as it is.
void settle_devices(Converted& converted, const ConvertRequest& requested, const std::filesystem::path& data_root) {
  if (converted.from != Dialect::Megatron) return;
  constexpr std::int64_t most_times = 1024;  // experts may take more than the least
  for (std::int64_t times = 1; times <= most_times; times *= 2) {
    Draft draft;
    draft.file = converted.file.string();
    draft.document = converted.document;
    const auto number = [&](std::string_view path) { return draft.integer(path).value_or(1); };
    const std::int64_t model = product({number("layout.tensor"), number("layout.context"), number("layout.pipeline")});
    // Expert parallelism may need more data-parallel ranks than one.
    const std::int64_t experts =
        product({number("layout.expert"), number("layout.expert_tensor"), number("layout.pipeline")});
    const std::int64_t each = is_count(model) && is_count(experts) ? std::lcm(model, experts) : model;
    if (draft.find("gpus") == nullptr && each > 1) {
      draft.set("gpus", product({each, times}));
      draft.remark(RemarkKind::Assumed, "gpus",
                   fmt::format("nothing says on how many devices: the answer is of {}, the least that the layout "
                               "fills; --gpus N says another number",
                               product({each, times})));
    } else if (!requested.gpus) {
      round_up(draft, "gpus", "gpus", each, times,
               each == model ? "tensor x context x pipeline" : "what tensor, context, pipeline and expert ranks fill",
               converted.nodes_from);
    }
    const bool of_devices = !draft.remarks.empty();
    if (const std::optional<std::int64_t> gpus = draft.integer("gpus");
        gpus && !requested.global_batch && model > 0 && *gpus % model == 0)
      round_up(draft, "train.global_batch", "global-batch-size", product({number("train.micro_batch"), *gpus / model}),
               1, "the micro-batches of all data-parallel ranks");
    if (draft.remarks.empty()) return;
    const auto read =
        scenario_or_problems(draft.document, converted.file, {converted.file.parent_path(), data_root}, {});
    if (std::holds_alternative<Scenario>(read)) {
      converted.document = std::move(draft.document);
      converted.remarks.insert(converted.remarks.end(), draft.remarks.begin(), draft.remarks.end());
      return;
    }
    if (!of_devices) return;
  }
}

}  // namespace tidemark::scenarios
