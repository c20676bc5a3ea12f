#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/predict_arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/other_names.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/plan/largest.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_keys.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

using LargestJson = nlohmann::ordered_json;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string requested_key(const std::string& word) {
  if (word.find('.') != std::string::npos || word == "gpus") return word;
  if (std::string key = key_of_flag(word); !key.empty()) return key;
  std::vector<std::string> names;
  std::vector<std::string> paths;
  for (const ScenarioKey& key : scenario_keys(data_root())) {
    names.push_back(key.name);
    if (key.name == word && key.takes == "a whole number") paths.push_back(key.path());
  }
  if (paths.size() == 1) return paths.front();
  if (paths.size() > 1)
    refuse("--largest", fmt::format("{} is a key of several tables", in_quotes(word)),
           fmt::format("say which: {}", fmt::join(paths, ", ")));
  const std::string meant = nearest(word, names);
  refuse("--largest", fmt::format("there is no key {}", in_quotes(word)),
         meant.empty() ? "such as train.micro_batch; tidemark list keys lists all"
                       : fmt::format("did you mean {}?", in_quotes(meant)));
}

namespace {

// What the job has: as its document says it, or as the scenario has it where that leaves it out.
std::int64_t value_now(const JobRequest& job, const std::string& key) {
  const KeyPath path = key_path(key);
  if (const TomlValue* const given = value_at(job.document, path)) {
    if (const auto* number = std::get_if<std::int64_t>(&given->value); number != nullptr && *number > 0) return *number;
    refuse("--largest", fmt::format("{} = {} is not a whole number that can be increased", key, text(*given)),
           "such as train.micro_batch, train.sequence_length or gpus");
  }
  const LargestJson scenario = LargestJson::parse(scenario_json(job.scenario, -1));
  const LargestJson* at = &scenario;
  for (const std::string& name : path) {
    const auto found = at->find(name == "model_override" ? "model" : name);
    if (!at->is_object() || found == at->end()) return 1;
    at = &*found;
  }
  if (at->is_number_integer()) return std::max<std::int64_t>(1, at->get<std::int64_t>());
  refuse("--largest", fmt::format("{} is not a whole number", key),
         "such as train.micro_batch or train.sequence_length");
}

// Tokens go in steps that a kernel's tiles and context parallelism share; everything else one by one.
std::int64_t step_of(const std::string& key, std::int64_t begin) {
  constexpr std::int64_t most = 1024, parts = 4;
  if (key != "train.sequence_length") return 1;
  std::int64_t step = 1;
  while (step < most && begin % (2 * step) == 0 && 2 * step * parts <= begin) step *= 2;
  return step;
}

std::string head_of(const std::string& key, const Largest& found, const std::optional<Prediction>& next) {
  const auto value = [](const std::optional<std::int64_t>& its) { return its ? std::to_string(*its) : std::string(); };
  if (!found.value)
    return fmt::format("no {} fits: {} is the smallest that was tried, and the answer is for it\n", key,
                       value(found.next));
  std::string out = fmt::format("the largest {} that fits is {}", key, value(found.value));
  if (found.next) {
    out += next->open ? fmt::format("; whether the next, {}, fits is not certain:\n", value(found.next))
                      : fmt::format("; the next, {}, does not:\n", value(found.next));
    const std::string why = verdict_text(*next);
    for (std::size_t at = 0; at < why.size();) {
      const std::size_t end = std::min(why.find('\n', at), why.size());
      out += "  " + why.substr(at, end - at) + '\n';
      at = end + 1;
    }
    return out + fmt::format("with {} = {}: ", key, value(found.value));
  }
  if (found.beyond)
    return fmt::format("{} = {} fits, and larger values may: {} was not simulated: {}\nwith {} = {}: ", key,
                       value(found.value), value(found.beyond), found.refused, key, value(found.value));
  out += found.refused.empty() ? "; larger ones were not tried\n"
                               : fmt::format("; larger values are not valid: {}\n", found.refused);
  return out + fmt::format("with {} = {}: ", key, value(found.value));
}

}  // namespace

int answer_largest(const PredictArguments& requested) {
  const std::string key = requested_key(requested.largest);
  const JobRequest base = predicted_job(requested);
  check_outputs({{"--json", requested.json}}, base.files);
  const ScenarioFiles files = files_of(base.document, base.at, base.folders);
  const LinkModel links = requested_link_model(requested.picked.link_model);
  const auto with = [&](std::int64_t value) { return predicted_job(requested, {fmt::format("{}={}", key, value)}); };
  LargestQuestion question;
  question.begin = value_now(base, key);
  question.step = step_of(key, question.begin);
  question.refusal = [&](std::int64_t value) -> std::string {
    TomlTable document = base.document;
    set_value(document, key_path(key), {value, {}});
    const auto read = scenario_or_problems(document, base.at, base.folders, files);
    const auto* const wrong = std::get_if<std::vector<Problem>>(&read);
    return wrong == nullptr ? "" : wrong->front().message;
  };
  question.fits = [&](std::int64_t value) {
    JobRequest job = with(value);
    job.not_judged.clear();  // the answer says it: here it would be the same for every value
    // Bounds come on top of the least that a device must have.
    const PredictOptions options{.links = links,
                                 .reported = job.bounds.empty() ? PredictionDetail::Figures : PredictionDetail::Whole};
    Prediction prediction =
        predict(job.scenario, progress_on_terminal(fmt::format("{} = {}", key, value), requested.loudness), options);
    job.complete(prediction);
    return prediction.fits;
  };
  if (!question.refusal(question.begin).empty()) (void)with(question.begin);  // says what is wrong, and what is meant
  const Largest found = largest_value(question);

  const auto answer_of = [&](std::int64_t value, JobRequest& job) {
    job = with(value);
    Prediction prediction =
        predict(job.scenario, progress_on_terminal("simulating ranks", requested.loudness), {.links = links});
    job.complete(prediction);
    return prediction;
  };
  std::optional<Prediction> next;
  JobRequest job = base;
  if (found.next && found.value) next = answer_of(*found.next, job);
  const Prediction prediction = answer_of(found.value.value_or(found.next.value_or(question.begin)), job);
  answer(head_of(key, found, next) +
             (requested.verbose ? prediction_text(prediction) : brief_text(prediction, job.file, nullptr)),
         requested.json, [&] {
           LargestJson its{{"key", key}, {"value", nullptr}, {"next", nullptr}, {"why_not_next", nullptr}};
           if (found.value) its["value"] = *found.value;
           if (found.next) its["next"] = *found.next;
           if (next)
             its["why_not_next"] = first_line(verdict_text(*next));
           else if (!found.refused.empty())
             its["why_not_next"] = found.refused;
           its["simulated"] = found.simulated;
           LargestJson out = LargestJson::parse(prediction_json(prediction));
           out["largest"] = std::move(its);
           return out.dump(1) + '\n';
         });
  return prediction.fits ? yes : prediction.open ? cannot_say : no;
}

}  // namespace tidemark::cli
