#include "scenarios/cli/serve/answer.hpp"

#include <algorithm>
#include <cctype>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/serve/detail/page_job.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/plan/changes/advise.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/page/memory_curve.hpp"
#include "scenarios/report/remedies.hpp"
#include "scenarios/report/step_range.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t curve_stretches = 160;

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n'; }

double seconds_of(Duration d) { return static_cast<double>(d.count()) / 1e12; }

// "20 layers do not divide into 3 chunks" has the word chunks.
bool has_word(std::string_view text, std::string_view word) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) return true;
  }
  return false;
}

// Which fields a problem is about, by the keys and options that its words name.
std::vector<std::string> fields_in(const Problem& problem) {
  const std::string text = problem.file + ' ' + problem.message + ' ' + problem.hint;
  std::vector<std::string> out;
  for (const FormField& field : form_fields()) {
    const std::size_t dot = field.key.rfind('.');
    const std::string key(dot == std::string_view::npos ? field.key : field.key.substr(dot + 1));
    const bool named =
        problem.file == field.name || (!key.empty() && has_word(problem.message, key)) ||
        text.find("--" + std::string(field.name)) != std::string::npos ||
        (!key.empty() && (text.find(key + " =") != std::string::npos || text.find('`' + key) != std::string::npos ||
                          text.find('.' + key) != std::string::npos || text.starts_with(key)));
    if (named) out.emplace_back(field.name);
  }
  return out;
}

Json problems_json(const std::vector<Problem>& problems) {
  Json list = Json::array();
  for (const Problem& p : problems)
    list.push_back({{"place", p.line > 0 ? fmt::format("line {}", p.line) : std::string()},
                    {"message", p.message},
                    {"hint", p.hint},
                    {"fields", fields_in(p)}});
  return {{"schema", "tidemark.page/1"}, {"status", bad_input}, {"problems", std::move(list)}};
}

// Answers where all goes well; else what is wrong, as JSON too.
template <class Make>
std::string answered(const Make& make) {
  try {
    read_only_in({data_root(), std::filesystem::current_path()});
    return dumped(make());
  } catch (const InputError& error) {
    return dumped(problems_json(error.problems()));
  }
}

Json composition_json(const Composition& parts) {
  Json out = Json::array();
  for (std::size_t c = 0; c < category_count; ++c)
    if (parts.bytes[c] > Bytes{0}) out.push_back({{"category", category_names[c]}, {"bytes", parts.bytes[c].count()}});
  return out;
}

Json curve_json(const Job& job, const Trace& trace, const RankGroup& group, std::int32_t step) {
  const MemoryCurve curve = memory_curve(job, trace, group, step, curve_stretches);
  Json points = Json::array();
  for (const MemoryCurve::Point& p : curve.points)
    points.push_back({seconds_of(p.time.since_start()), p.allocated.count(), p.reserved.count(), p.driver.count()});
  return points;
}

Dialect dialect_of(const std::string& runtime) {
  if (runtime == "torchtitan") return Dialect::TorchTitan;
  if (runtime == "deepspeed") return Dialect::DeepSpeed;
  if (runtime == "fsdp" || runtime == "fsdp2") return Dialect::Accelerate;
  return runtime == "pytorch" ? Dialect::TrainingArguments : Dialect::Megatron;
}

std::string text_at(const TomlTable& document, const char* table, const char* key) {
  for (const TomlKey& k : document.keys) {
    if (table == nullptr && k.name == key)
      if (const auto* text = std::get_if<std::string>(&k.value.value)) return *text;
    if (table != nullptr && k.name == table)
      if (const auto* inner = std::get_if<TomlTable>(&k.value.value)) return text_at(*inner, nullptr, key);
  }
  return {};
}

// What starts the job, where its framework's files can say it.
Json launch_json(const JobRequest& job) {
  try {
    const std::string runtime = text_at(job.document, "runtime", "name");
    const Written out =
        written(job.scenario, dialect_of(runtime), Launcher::Torchrun, text_at(job.document, nullptr, "model"),
                text_at(job.document, nullptr, "cluster"), data_root());
    Json lost = Json::array();
    for (const Remark& remark : out.remarks)
      if (remark.kind == RemarkKind::NotExpressed) lost.push_back(fmt::format("{}: {}", remark.what, remark.why));
    return {{"text", out.text}, {"command", out.launch}, {"not_expressed", std::move(lost)}};
  } catch (const InputError& error) {
    return {{"text", ""}, {"command", ""}, {"not_expressed", Json::array({error.problems().front().message})}};
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The fullest ranks of each stage.
Json stages_json(const std::vector<RankGroup>& groups) {
  Json stages = Json::array();
  std::map<std::int32_t, const RankGroup*> by_stage;
  for (const RankGroup& group : groups) {
    const RankGroup*& most = by_stage[group.coordinates.pipeline];
    if (most == nullptr || group.required.upper > most->required.upper) most = &group;
  }
  for (const auto& [stage, group] : by_stage)
    stages.push_back({{"stage", stage},
                      {"allocated_bytes", group->memory.allocated.bytes.count()},
                      {"required_bytes", group->required.bytes.count()},
                      {"required_upper_bytes", group->required.upper.count()}});
  return stages;
}

Json not_judged_json(const std::vector<NotJudged>& names) {
  Json unjudged = Json::array();
  for (const NotJudged& name : names) unjudged.push_back({{"what", name.what}, {"why", name.why}, {"line", name.line}});
  return unjudged;
}

// Said before anything takes long: whoever ends this process tells it instead of the answer.
JobWords words_and_command(const Fields& fields, const char* verb) {
  JobWords words = words_of(fields);
  std::ofstream(command_file) << command_of(words, verb);
  return words;
}

Json prediction_of(const Fields& fields) {
  const JobWords words = words_and_command(fields, "predict");
  JobRequest source = job_of(words);
  const Job job(source.scenario, Job::Steps::All);
  const Trace trace = simulate_time(job);
  Prediction p = predict(job, trace);
  source.complete(p);
  std::optional<AcceptedChanges> accepted;
  if (std::ranges::any_of(p.groups, [](const RankGroup& group) { return group.failure.has_value(); }))
    accepted.emplace(source.document, source.at, source.folders, p.scenario);
  const AcceptedChanges* const those = accepted ? &*accepted : nullptr;
  const RankGroup& top = p.most_required();
  const Scenario& scenario = p.scenario;

  Json out = {{"schema", "tidemark.page/1"},
              {"status", p.fits   ? yes
                         : p.open ? cannot_say
                                  : no},
              {"verdict", p.verdict()},
              {"headline", first_line(verdict_text(p, those))},
              {"detail", verdict_text(p, those)},
              {"question", question_text(p)},
              {"parameters", p.parameters},
              {"capacity_bytes", scenario.cluster.device.capacity.count()},
              {"headroom_bytes", scenario.runtime.headroom.count()},
              {"required_bytes", top.required.bytes.count()},
              {"required_upper_bytes", top.required.upper.count()},
              {"filled_bytes", p.filled(top).count()},
              {"ranks", rank_list(top.ranks)},
              {"composition", composition_json(top.memory.device.composition)}};
  if (!p.deadlock) {
    const StepRange range = step_range(p.step, scenario.cluster.device.efficiency);
    out["step"] = {{"seconds", seconds_of(p.step.step)},
                   {"low_seconds", seconds_of(range.low)},
                   {"high_seconds", seconds_of(range.high)},
                   {"tokens_per_s_per_device", p.step.tokens_per_s_per_device},
                   {"mfu", p.step.mfu},
                   {"waiting", p.step.waiting()}};
    out["curve"] = curve_json(job, trace, top, scenario.train.steps);
  }
  if (p.fullest_node.bytes > Bytes{0})
    out["host"] = {{"bytes", p.fullest_node.bytes.count()},
                   {"upper_bytes", p.fullest_node.upper.count()},
                   {"capacity_bytes", scenario.cluster.host.memory.count()}};
  out["stages"] = stages_json(p.groups);
  out["helps"] = p.fits ? std::vector<std::string>{} : remedies_of(top.memory.device.at.mark.phase, scenario, those);
  out["not_judged"] = not_judged_json(p.not_judged);
  out["assumptions"] = p.assumptions;
  out["command"] = command_of(words, "predict");
  out["scenario"] = toml_text(source.document);
  out["launch"] = launch_json(source);
  return out;
}

// "train.micro_batch: 4 -> 1": the field that has this key, and its value.
void apply(Fields& fields, const std::string& change, bool& whole) {
  const std::size_t colon = change.find(": "), arrow = change.rfind(" -> ");
  if (colon == std::string::npos || arrow == std::string::npos) {
    whole = false;
    return;
  }
  const std::string key = change.substr(0, colon);
  std::string value = change.substr(arrow + 4);
  for (const FormField& field : form_fields()) {
    if (field.key.empty() || field.key != key) continue;
    const bool takes =
        field.control == Control::Number
            ? !value.empty() && value.find_first_not_of("0123456789") == std::string::npos
            : field.control == Control::Check || std::ranges::find(field.choices, value) != field.choices.end();
    if (!takes) break;
    if (field.control == Control::Check && value == "false") value.clear();
    fields[std::string(field.name)] = value;
    return;
  }
  whole = false;
}

Json advice_of(const Fields& fields) {
  const JobRequest job = job_of(words_and_command(fields, "advise"));
  const Advice advice = advise(job.document, job.at, job.folders, {.most_changes = 1, .free = {}});
  Json remedies = Json::array();
  for (const Remedy& remedy : advice.remedies) {
    Fields next = fields;
    bool whole = !fields.contains(pasted_text);
    for (const std::string& change : remedy.changes) apply(next, change, whole);
    remedies.push_back({{"changes", remedy.changes},
                        {"changes_training", remedy.changes_training},
                        {"query", whole ? query_of(checked(next)) : std::string()},
                        {"device_upper_bytes", remedy.found.figures.device_upper.count()},
                        {"step_seconds", seconds_of(remedy.found.figures.step)},
                        {"tokens_per_s_per_device", remedy.found.figures.throughput}});
  }
  return {{"schema", "tidemark.page/1"},
          {"status", yes},
          {"fits", advice.fits},
          {"tried", advice.tried},
          {"remedies", std::move(remedies)}};
}

}  // namespace

std::string page_answer(const Fields& fields) {
  return answered([&] { return prediction_of(fields); });
}

std::string page_advice(const Fields& fields) {
  return answered([&] { return advice_of(fields); });
}

}  // namespace tidemark::cli
