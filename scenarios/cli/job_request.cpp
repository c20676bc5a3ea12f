#include "scenarios/cli/detail/job_request.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/scenario/memory_bounds_below.hpp"

namespace tidemark::cli {
namespace {

void refuse_what_devices_lack(const Converted& converted, const Device& device) {
  std::vector<Problem> problems;
  for (const Remark& remark : converted.remarks)
    if (std::string lacks = lacking_on(remark.bound, device); remark.kind == RemarkKind::Bounded && !lacks.empty())
      problems.push_back({remark.file, remark.place.line, remark.place.column,
                          fmt::format("{}: {}", remark.what, lacks), "another cluster, or train without it"});
  if (!problems.empty()) throw InputError(std::move(problems));
}

JobRequest of_launch_files(const JobWords& words) {
  std::vector<std::filesystem::path> files{words.file}, read = files_behind(words.file);
  for (const std::string& word : words.beside)
    if (!is_override(word)) {
      files.emplace_back(word);
      read.emplace_back(word);
    }
  ConvertRequest requested = words.launch.requested(files);
  requested.overrides = words.overrides();
  Converted converted = convert(requested);
  JobRequest made{{},
                  scenario_of(converted, data_root()),
                  converted.file,
                  {converted.file.parent_path(), data_root()},
                  std::move(read),
                  {}};
  made.document = std::move(converted.document);
  refuse_what_devices_lack(converted, made.scenario.cluster.device);
  for (const Remark& remark : converted.remarks) {
    if (remark.kind == RemarkKind::Assumed)
      made.assumed.push_back(remark.place.line > 0
                                 ? fmt::format("{}:{}: {}: {}", remark.file, remark.place.line, remark.what, remark.why)
                                 : fmt::format("{}: {}", remark.what, remark.why));
    if (remark.kind == RemarkKind::NotJudged)
      made.not_judged.push_back({remark.file, remark.place.line, remark.what, remark.why, remark.is_length});
    if (remark.kind != RemarkKind::Bounded) continue;
    const Bytes more = most_more(remark.bound, made.scenario), less = most_less(remark.bound, made.scenario);
    made.less += less;
    if (more == Bytes{} && less == Bytes{})
      made.assumed.push_back(fmt::format("{}: takes nothing here: {}", remark.what, remark.why));
    else
      made.bounds.push_back({remark.file, remark.place.line, remark.what, remark.why, more, less > Bytes{},
                             more_by_stage(remark.bound, made.scenario)});
  }
  return made;
}

JobRequest of_options(const JobWords& words) {
  const ScenarioFolders folders{std::filesystem::current_path(), data_root()};
  JobRequest made{document_of(words.launch, words.layout, words.verb), {}, "tidemark " + words.verb, folders, {}, {}};
  const std::vector<std::string> keys = words.overrides();
  set_overrides(made.document, keys);
  made.scenario = with_overrides(keys, [&] { return scenario_of(made.document, made.at, folders); });
  made.files = files_named(made.document, folders);
  made.scenario.name = fmt::format("{} on {} devices", made.scenario.model.name, made.scenario.gpus);
  return made;
}

[[noreturn]] void refuse_repeated(const std::string& file, const char* what) {
  throw InputError(Problem{.file = file,
                           .message = fmt::format("{}, and options that repeat its keys", what),
                           .hint = "change them in the file, or set keys as in layout.tensor=4; --model, --cluster "
                                   "and others are for launch files and for jobs without a file"});
}

}  // namespace

std::vector<std::string> JobWords::overrides() const {
  std::vector<std::string> found;
  std::ranges::copy_if(beside, std::back_inserter(found), is_override);
  return found;
}

JobWords JobWords::with_first_key() const {
  JobWords its = *this;
  if (is_override(file) && !std::filesystem::exists(file)) {
    its.beside.insert(its.beside.begin(), file);
    its.file.clear();
  }
  return its;
}

void add_job(CLI::App& verb, JobWords& words, JobSource source) {
  const bool needs_a_file = source == JobSource::File;
  add_scenario(verb, words.file, "scenario file (TOML), or a file that convert takes")->required(needs_a_file);
  add_beside(verb, words, source);
  if (!needs_a_file) add_layout_options(verb, words.layout);
}

void add_beside(CLI::App& verb, JobWords& words, JobSource source) {
  words.verb = verb.get_name();
  verb.add_option("BESIDE", words.beside,
                  "scenario keys to set, such as layout.tensor=4, and more launch files of the same job")
      ->type_name("KEY=VALUE");
  add_launch_options(verb, words.launch, source);
}

JobRequest requested_job(const JobWords& given) {
  const JobWords words = given.with_first_key();
  if (words.file.empty()) return of_options(words);
  const std::filesystem::path file = words.file;
  if (words.layout.any()) refuse_repeated(words.file, is_foreign(file) ? "a training" : "a scenario");
  if (is_foreign(file)) return of_launch_files(words);
  for (const std::string& word : words.beside)
    if (!is_override(word))
      throw InputError(
          Problem{.file = word,
                  .message = fmt::format("was given with {}, which is a scenario", words.file),
                  .hint = "with a scenario, set keys as in layout.tensor=4; only launch files can be combined"});
  if (words.launch.any()) refuse_repeated(words.file, "a scenario");
  const ScenarioFolders folders{file.parent_path(), data_root()};
  JobRequest made{parse_toml(read_text(file), file.string()), {}, file, folders, files_behind(words.file), words.file};
  const std::vector<std::string> overrides = words.overrides();
  set_overrides(made.document, overrides);
  made.scenario = with_overrides(overrides, [&] { return scenario_of(made.document, file, folders); });
  made.file = as_typed(words.file);
  for (const std::string& word : overrides) made.file += " " + word;
  return made;
}

std::string JobRequest::lead() const { return not_judged_text(not_judged) + bounds_text(bounds); }

void keep_room(TomlTable& document, const std::vector<MemoryBound>& bounds) {
  const Bytes more = most_more(bounds);
  if (more == Bytes{}) return;
  const KeyPath key{"runtime", "headroom"};
  const TomlValue* const requested = value_at(document, key);
  const auto* const text = requested == nullptr ? nullptr : std::get_if<std::string>(&requested->value);
  const Bytes before = text == nullptr ? Bytes{} : requested_size("headroom", *text);
  set_value(document, key, {fmt::format("{} B", (before + more).count()), {}});
}

void JobRequest::complete(Prediction& prediction) const {
  prediction.assumptions.insert(prediction.assumptions.end(), assumed.begin(), assumed.end());
  // Of a job that does not fit, what is bounded leaves no room where even so much less would not.
  const Bytes room = prediction.scenario.cluster.device.capacity - prediction.scenario.runtime.headroom;
  const bool may_fit = !prediction.exceeds_host() &&
                       std::ranges::all_of(prediction.groups,
                                           [&](const RankGroup& group) { return group.required.bytes - less <= room; });
  std::vector<MemoryBound> those = bounds;
  for (MemoryBound& its : those) its.may_be_less = its.may_be_less && may_fit;
  add_bounds(prediction, std::move(those));
  leave_open(prediction, not_judged);
}

}  // namespace tidemark::cli
