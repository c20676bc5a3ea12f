#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/predict_arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/plan/capacity.hpp"
#include "scenarios/plan/space/space_files.hpp"
#include "scenarios/report/text/advice_text.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct CapacityArguments {
  JobWords words;
  std::string largest = "train.sequence_length", json, csv;
  bool largest_given = false;
  Loudness loudness;
};

// What grows where nothing says its values: from a quarter of what the job has to 32 times it, or powers of two.
std::vector<TomlValue> usual_values(const TomlTable& document, const std::string& key) {
  constexpr std::int64_t most = 32, least = 4;
  std::vector<TomlValue> values;
  const TomlValue* const now = value_at(document, key_path(key));
  const auto* const number = now == nullptr ? nullptr : std::get_if<std::int64_t>(&now->value);
  if (key == "train.sequence_length" && number != nullptr && *number > 0 && *number < std::int64_t{1} << 40) {
    for (std::int64_t part = least; part > 1; part /= 2)
      if (*number % part == 0) values.push_back({*number / part, {}});
    for (std::int64_t times = 1; times <= most; times *= 2) values.push_back({*number * times, {}});
  } else if (key == "train.micro_batch") {
    for (std::int64_t size = 1; size <= most; size *= 2) values.push_back({size, {}});
  } else {
    refuse("--largest", fmt::format("{} has no values of its own to try", in_quotes(key)),
           fmt::format("say them: --largest {}=1,2,4", key));
  }
  return values;
}

// A job that says of no axis itself: "train.micro_batch", or "layout.tensor=1,2,4".
struct GrowingKey {
  std::string key;
  std::vector<TomlValue> values;
  bool usual = false;  ///< values that nobody named
};
GrowingKey growing_key(const TomlTable& document, const std::string& largest) {
  const std::size_t sign = largest.find('=');
  const std::string key = requested_key(largest.substr(0, sign));
  std::vector<TomlValue> values;
  if (sign == std::string::npos)
    values = usual_values(document, key);
  else
    try {
      values = std::get<std::vector<TomlValue>>(
          parse_toml("x = [" + largest.substr(sign + 1) + "]", "--largest").keys.front().value.value);
    } catch (const InputError&) {
      refuse("--largest", fmt::format("{} is not a list of values", in_quotes(largest.substr(sign + 1))),
             "such as --largest train.sequence_length=4096,8192,16384");
    }
  return {key, std::move(values), sign == std::string::npos};
}

// What bounds keep free, which may grow with the value.
std::vector<std::optional<TomlValue>> headroom_by_value(const JobWords& words, const GrowingKey& grows) {
  std::vector<std::optional<TomlValue>> found;
  for (const TomlValue& value : grows.values) {
    JobWords with = words;
    with.beside.push_back(fmt::format("{}={}", grows.key, text(value)));
    std::optional<TomlValue>& its = found.emplace_back();
    try {
      JobRequest job = requested_job(with);
      keep_room(job.document, job.bounds);
      if (const TomlValue* const kept = value_at(job.document, {"runtime", "headroom"})) its = *kept;
    } catch (const InputError&) {
      continue;  // the search counts it among those that are no job
    }
  }
  return found;
}

struct StudyRequest {
  Study study;
  std::vector<std::filesystem::path> inputs;
  std::string tried = {};  ///< the values, where nobody named them
  std::vector<NotJudged> not_judged = {};
  std::vector<MemoryBound> bounds = {};
};

StudyRequest study_of_job(const CapacityArguments& a) {
  JobRequest job = requested_job(a.words);
  const GrowingKey grows = growing_key(job.document, a.largest);
  KeyPath axis = key_path(grows.key);
  axis.insert(axis.begin(), "space");
  set_value(job.document, axis, {grows.values, {}});
  set_value(job.document, {"capacity", "largest"}, {grows.key, {}});
  StudyRequest made{study_of(std::move(job.document), job.at, job.folders),
                    std::move(job.files),
                    {},
                    std::move(job.not_judged),
                    std::move(job.bounds)};
  if (!made.bounds.empty()) made.study.headroom = headroom_by_value(a.words, grows);
  if (!grows.usual) return made;
  std::vector<std::string> values;
  for (const TomlValue& value : grows.values) values.push_back(text(value));
  made.tried = fmt::format("tried {} = {}; tidemark predict --largest {} looks between them, too\n", grows.key,
                           fmt::join(values, ", "), grows.key);
  return made;
}

StudyRequest requested_study(const CapacityArguments& a) {
  const std::filesystem::path file = a.words.file;
  if (is_foreign(file)) return study_of_job(a);
  TomlTable document = parse_toml(read_text(file), file.string());
  const auto has = [&](std::string_view table) {
    return std::ranges::any_of(document.keys, [&](const TomlKey& key) { return key.name == table; });
  };
  if (!has("space") && !has("capacity")) return study_of_job(a);
  if (a.largest_given)
    throw InputError(Problem{.file = a.words.file,
                             .message = "names the key that grows in [capacity], and so does --largest",
                             .hint = "change it in the file, or leave --largest out"});
  if (a.words.launch.any())
    throw InputError(Problem{.file = a.words.file,
                             .message = "a study, and options that repeat its keys",
                             .hint = "change them in the file, or set keys as in layout.tensor=4"});
  set_overrides(document, a.words.beside);
  StudyRequest made{with_overrides(a.words.beside,
                                   [&] {
                                     return study_of(std::move(document), file, {file.parent_path(), data_root()});
                                   }),
                    {}};
  made.inputs.emplace_back(file);
  return made;
}

int run(const CapacityArguments& a) {
  StudyRequest requested = requested_study(a);
  const Study& study = requested.study;
  std::vector<std::filesystem::path> inputs = files_read(study.space);
  inputs.insert(inputs.end(), requested.inputs.begin(), requested.inputs.end());
  check_outputs({{"--json", a.json}, {"--csv", a.csv}}, inputs);
  const std::vector<Limit> found = limits(study, plan_progress_on_terminal(a.loudness));
  const auto says_something = [](const Limit& limit) { return limit.largest || limit.next; };
  if (std::none_of(found.begin(), found.end(), says_something)) refuse_no_candidates(study.space, a.words.file);
  if (!a.csv.empty()) write_file(a.csv, [&](std::ostream& file) { file << capacity_csv(study, found); });
  answer(not_judged_text(requested.not_judged) + bounds_text(requested.bounds) + capacity_text(study, found) +
             requested.tried,
         a.json, [&] { return with_not_judged(capacity_json(study, found), requested.not_judged); });
  if (!requested.not_judged.empty()) return cannot_say;
  for (const Limit& limit : found)
    if (limit.largest) return yes;
  return no;
}

}  // namespace

Verb capacity_verb(CLI::App& app) {
  const auto requested = std::make_shared<CapacityArguments>();
  CLI::App* verb =
      app.add_subcommand("capacity", "find the largest value of an axis that fits, such as the sequence length");
  takes_shipped(
      *verb,
      verb->add_option("STUDY", requested->words.file,
                       "scenario file (TOML), perhaps with tables [space] and [capacity], the name of one that is "
                       "shipped (tidemark list studies, examples), or a file that convert takes"),
      studies_shipped)
      ->transform([](const std::string& text) { return shipped_file(text, examples_shipped); })
      ->required();
  add_beside(*verb, requested->words);
  CLI::Option* largest =
      verb->add_option("--largest", requested->largest,
                       "for a launch file or a scenario without [capacity]: the key to increase, such as "
                       "train.micro_batch or layout.tensor=1,2,4 (default: train.sequence_length)")
          ->type_name("KEY");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  verb->add_option("--csv", requested->csv, "write the frontier to FILE")->type_name("FILE");
  add_examples(*verb,
               {{"capacity longest-sequence-8xh100", "a study; copy its file from scenarios/studies to change it"},
                {"capacity longest-sequence-8xh100 --csv frontier.csv", "also writes the frontier as a table"}});
  return {verb,
          [requested, largest] {
            requested->largest_given = largest->count() > 0;
            return run(*requested);
          },
          nullptr};
}

}  // namespace tidemark::cli
