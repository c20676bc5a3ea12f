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
#include "scenarios/scenario/named_files.hpp"

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

// What the model's config.json has, which a scenario's own names differ from.
std::int64_t of_config(const JobRequest& job, const KeyPath& path) {
  const TomlValue* const model = value_at(job.document, {std::string(model_key)});
  const auto* const name = model == nullptr ? nullptr : std::get_if<std::string>(&model->value);
  if (name == nullptr || path.size() != 2 || path.front() != "model_override") return 1;
  const std::optional<ScenarioFiles::File> file = read_named(model_key, *name, job.folders);
  if (!file) return 1;
  const LargestJson config = LargestJson::parse(file->text, nullptr, false);
  const auto found = config.is_object() ? config.find(path.back()) : config.end();
  return config.is_object() && found != config.end() && found->is_number_integer()
             ? std::max<std::int64_t>(1, found->get<std::int64_t>())
             : 1;
}

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
    if (!at->is_object() || found == at->end()) return of_config(job, path);
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

namespace {

// One key of a job that grows; what a launch file leaves open says the answer, not each of its jobs.
class GrowingJob {
 public:
  GrowingJob(const PredictArguments& requested, const JobRequest& base, std::string key)
      : requested_(requested),
        base_(base),
        key_(std::move(key)),
        files_(files_of(base.document, base.at, base.folders)),
        links_(requested_link_model(requested.picked.link_model)) {}

  Largest search(std::int64_t begin, std::int64_t step) {
    LargestQuestion question;
    question.begin = begin;
    question.step = step;
    question.refusal = [this](std::int64_t value) { return refusal(value); };
    question.fits = [this](std::int64_t value) { return fits(value); };
    if (!refusal(begin).empty()) (void)with(begin);  // says what is wrong, and what is meant
    return largest_value(question);
  }

  bool fits(std::int64_t value) {
    JobRequest job = with(value);
    job.not_judged.clear();
    // Bounds come on top of the least that a device must have.
    const PredictOptions options{.links = links_,
                                 .reported = job.bounds.empty() ? PredictionDetail::Figures : PredictionDetail::Whole};
    Prediction prediction =
        predict(job.scenario, progress_on_terminal(fmt::format("{} = {}", key_, value), requested_.loudness), options);
    job.complete(prediction);
    return prediction.fits;
  }

  JobRequest with(std::int64_t value) const { return predicted_job(requested_, {fmt::format("{}={}", key_, value)}); }

  Prediction answer(const JobRequest& job) const {
    Prediction prediction =
        predict(job.scenario, progress_on_terminal("simulating ranks", requested_.loudness), {.links = links_});
    job.complete(prediction);
    return prediction;
  }

 private:
  std::string refusal(std::int64_t value) const {
    TomlTable document = base_.document;
    set_value(document, key_path(key_), {value, {}});
    const auto read = scenario_or_problems(document, base_.at, base_.folders, files_);
    const auto* const wrong = std::get_if<std::vector<Problem>>(&read);
    return wrong == nullptr ? "" : wrong->front().message;
  }

  const PredictArguments& requested_;
  const JobRequest& base_;
  std::string key_;
  ScenarioFiles files_;
  LinkModel links_;
};

// What was found, above the answer with that value.
std::string largest_json(const Prediction& prediction, const std::string& key, const Largest& found,
                         const std::optional<Prediction>& next) {
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
}

}  // namespace

int answer_largest(const PredictArguments& requested) {
  const std::string key = requested_key(requested.largest);
  const JobRequest base = predicted_job(requested);
  check_outputs({{"--json", requested.json}}, base.files);
  GrowingJob growing(requested, base, key);
  const std::int64_t begin = value_now(base, key);
  const Largest found = growing.search(begin, step_of(key, begin));
  std::optional<Prediction> next;
  if (found.next && found.value) next = growing.answer(growing.with(*found.next));
  const JobRequest job = growing.with(found.value.value_or(found.next.value_or(begin)));
  const Prediction prediction = growing.answer(job);
  answer(head_of(key, found, next) +
             (requested.verbose ? prediction_text(prediction) : brief_text(prediction, job.file, nullptr)),
         requested.json, [&] { return largest_json(prediction, key, found, next); });
  return prediction.fits ? yes : prediction.open ? cannot_say : no;
}

namespace {

constexpr std::string_view length_key = "train.sequence_length";

// Whether a file that leaves it to the data how long rows are fits.
std::string head_of_lengths(const NotJudged& unsaid, const Largest& found, const std::optional<Prediction>& next,
                            int code, std::int64_t shown) {
  std::string out;
  if (!found.value)
    out = code == no ? fmt::format("no, it does not fit, not even with rows of {} tokens\n", shown)
                     : fmt::format("cannot say whether it fits: rows of {} tokens are too long\n", *found.next);
  else
    out = fmt::format("{} with rows of up to {} tokens{}\n",
                      code == yes ? "yes, it fits" : "cannot say whether it fits: it does", *found.value,
                      !found.next  ? ", the longest that were tried"
                      : next->open ? fmt::format("; whether with {} is not certain", *found.next)
                                   : fmt::format(", and not with {}", *found.next));
  return out + fmt::format(
                   "  {} is not said, so that rows are as long as the data's; --sequence says how many tokens "
                   "there are at most\nwith {} = {}: ",
                   unsaid.what, length_key, shown);
}

}  // namespace

int answer_lengths(const PredictArguments& requested, const JobRequest& base) {
  constexpr std::int64_t step = 128, shortest = 16;
  const std::string key(length_key);
  check_outputs({{"--json", requested.json}}, base.files);
  GrowingJob growing(requested, base, key);
  const std::int64_t begin = value_now(base, key);
  const Largest found = growing.search(begin, step);
  const std::int64_t shown = found.value.value_or(shortest);
  std::optional<Prediction> next;
  if (found.next && found.value) {
    JobRequest longer = growing.with(*found.next);
    longer.not_judged.clear();
    next = growing.answer(longer);
  }
  JobRequest job = growing.with(shown);
  job.not_judged.clear();
  const Prediction prediction = growing.answer(job);
  // Rows that a file's figures are of, where nothing is said, are longer than most.
  const int code = found.value && *found.value >= begin ? yes : prediction.fits || prediction.open ? cannot_say : no;
  answer(head_of_lengths(base.not_judged.front(), found, next, code, shown) +
             (requested.verbose ? prediction_text(prediction) : brief_text(prediction, job.file, nullptr)),
         requested.json, [&] { return largest_json(prediction, key, found, next); });
  return code;
}

}  // namespace tidemark::cli
