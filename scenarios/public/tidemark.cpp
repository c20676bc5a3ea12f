#include "scenarios/public/tidemark/tidemark.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/plan/capacity.hpp"
#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/plan/changes/advise.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space_files.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recordings/snapshot_replay.hpp"
#include "scenarios/report/measured_comparison.hpp"
#include "scenarios/report/text/advice_text.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/report/text/replay_text.hpp"

namespace tidemark {
namespace {

struct GivenUp {};

[[noreturn]] void rethrow(const scenarios::InputError& error) {
  std::vector<Problem> problems;
  for (const scenarios::Problem& p : error.problems())
    problems.push_back({p.file, p.line, p.column, p.message, p.hint});
  throw InputError(error.what(), std::move(problems));
}

// An answer, or nothing; what goes wrong, as one of the two exceptions.
template <class Work>
auto answered(const std::filesystem::path& file, Work work) -> std::optional<decltype(work())> {
  try {
    return work();
  } catch (const GivenUp&) {
    return std::nullopt;
  } catch (const scenarios::InputError& error) {
    rethrow(with_file(error, file.string()));
  } catch (const std::exception& error) {
    throw InternalError(error.what());
  }
}

void tell(const Options& options, std::int64_t done, std::int64_t all) {
  if (options.progress && !options.progress(done, all)) throw GivenUp{};
}

scenarios::Progress progress_of(const Options& options) {
  return [&options](std::size_t done, std::size_t all) {
    tell(options, static_cast<std::int64_t>(done), static_cast<std::int64_t>(all));
  };
}

scenarios::ScenarioFolders folders_of(const Scenario& scenario, const Options& options) {
  return {scenario.file.parent_path(), options.data_root};
}

scenarios::Scenario parsed(const Scenario& scenario, const Options& options) {
  return scenarios::parse_scenario(scenario.text, scenario.file, folders_of(scenario, options));
}

}  // namespace

Scenario read_scenario(const std::filesystem::path& file) {
  return *answered(file, [&] { return Scenario{scenarios::read_text(file), file}; });
}

std::optional<Prediction> predict(const Scenario& scenario, const Options& options) {
  return answered(scenario.file, [&] {
    tell(options, 0, 1);
    const scenarios::Prediction found = scenarios::predict(parsed(scenario, options), progress_of(options));
    std::optional<scenarios::AcceptedChanges> accepted;
    if (!found.completed)
      accepted.emplace(scenarios::parse_toml(scenario.text, scenario.file.string()), scenario.file,
                       folders_of(scenario, options), found.scenario);
    const scenarios::AcceptedChanges* const those = accepted ? &*accepted : nullptr;
    const sim::MemoryRecord& memory = found.highest().memory;
    return Prediction{.fits = found.fits,
                      .open = found.open,
                      .capacity_bytes = found.scenario.cluster.device.capacity.count(),
                      .allocated_bytes = memory.allocated.bytes.count(),
                      .reserved_bytes = memory.peak_reserved.count(),
                      .device_bytes = memory.device.bytes.count(),
                      .device_upper_bytes = memory.peak_device_upper.count(),
                      .required_device_upper_bytes = found.most_required().required.upper.count(),
                      .step_s = seconds(found.step.step),
                      .tokens_per_s_per_device = found.step.tokens_per_s_per_device,
                      .mfu = found.step.mfu,
                      .text = prediction_text(found, those),
                      .json = prediction_json(found, those)};
  });
}

std::optional<Plan> plan(const Scenario& scenario, const PlanOptions& options) {
  return answered(scenario.file, [&] {
    tell(options, 0, 1);
    scenarios::Space space = scenarios::space_of(scenarios::parse_toml(scenario.text, scenario.file.string()),
                                                 scenario.file, folders_of(scenario, options), options.with);
    take_default_headroom(space);
    const auto progress = [&](const std::string&, std::int64_t done, std::int64_t all) { tell(options, done, all); };
    const scenarios::Plan found = scenarios::plan(space, {.top = options.top}, progress);
    if (found.candidates == 0) refuse_no_candidates(space, scenario.file.string());
    const auto listed = [&](const std::vector<scenarios::Found>& all) {
      std::vector<Plan::Candidate> candidates;
      for (const scenarios::Found& f : all)
        candidates.push_back({f.candidate, scenario_text(space, f.candidate), f.figures.device_upper.count(),
                              seconds(f.figures.step), f.figures.throughput});
      return candidates;
    };
    return Plan{listed(found.best), listed(found.front), plan_text(space, found), plan_json(space, found)};
  });
}

std::optional<Advice> advise(const Scenario& scenario, const AdviseOptions& options) {
  return answered(scenario.file, [&] {
    tell(options, 0, 1);
    scenarios::AdviseOptions requested{.most_changes = options.most_changes, .free = {}};
    if (options.free_bytes) requested.free = sim::Bytes(*options.free_bytes);
    const auto progress = [&](const std::string&, std::int64_t done, std::int64_t all) { tell(options, done, all); };
    const scenarios::Advice found =
        scenarios::advise(scenarios::parse_toml(scenario.text, scenario.file.string()), scenario.file,
                          folders_of(scenario, options), requested, progress);
    std::vector<Advice::Remedy> remedies;
    for (const scenarios::Remedy& remedy : found.remedies)
      remedies.push_back({remedy.changes, remedy.changes_training, scenario_text(found.space, remedy.found.candidate),
                          remedy.found.figures.device_upper.count(), seconds(remedy.found.figures.step)});
    return Advice{found.fits, found.lacks.count(), std::move(remedies), advice_text(found), advice_json(found)};
  });
}

std::optional<Capacity> capacity(const Scenario& study, const Options& options) {
  return answered(study.file, [&] {
    tell(options, 0, 1);
    const scenarios::Study requested = scenarios::study_of(scenarios::parse_toml(study.text, study.file.string()),
                                                           study.file, folders_of(study, options));
    const auto progress = [&](const std::string&, std::int64_t done, std::int64_t all) { tell(options, done, all); };
    const std::vector<scenarios::Limit> found = limits(requested, progress);
    const bool says = std::ranges::any_of(found, [](const auto& limit) { return limit.largest || limit.next; });
    if (!says) refuse_no_candidates(requested.space, study.file.string());
    const bool any = std::ranges::any_of(found, [](const auto& limit) { return limit.largest.has_value(); });
    return Capacity{any, capacity_text(requested, found), capacity_json(requested, found)};
  });
}

Replay replay(const std::filesystem::path& snapshot, const ReplayOptions& options) {
  return *answered(snapshot, [&] {
    scenarios::SnapshotQuestion question{
        snapshot.string(), options.device, options.allocator_conf, {}, options.memory_fraction};
    if (options.capacity_bytes) question.capacity = sim::Bytes(*options.capacity_bytes);
    if (const auto& part = question.memory_fraction; part && !(*part >= 0 && *part <= 1))
      throw scenarios::InputError(scenarios::Problem{
          .file = "memory_fraction", .message = "is not a part of the device", .hint = "between 0 and 1"});
    const scenarios::SnapshotReplay found = replay_snapshot(question);
    return Replay{found.yes(), replay_text(found), replay_json(found)};
  });
}

Conversion convert(const std::vector<std::filesystem::path>& files, const ConvertOptions& options) {
  if (files.empty()) throw InputError("no file to convert", {{"convert", 0, 0, "no file to convert", "name one"}});
  return *answered(files.front(), [&] {
    const scenarios::Converted found =
        scenarios::convert(scenarios::ConvertRequest{.files = files,
                                                     .texts = {},
                                                     .variables = options.variables,
                                                     .model = options.model,
                                                     .cluster = options.cluster,
                                                     .gpus = options.gpus,
                                                     .sequence_length = options.sequence_length,
                                                     .micro_batch = options.micro_batch,
                                                     .global_batch = options.global_batch,
                                                     .data_root = options.data_root});
    std::filesystem::path file = files.front();
    Conversion made{{toml_text(found.document), file.replace_extension(".toml")}, {}, {}, {}};
    for (const scenarios::Remark& remark : found.remarks) {
      using enum scenarios::RemarkKind;
      const bool open = remark.kind == NotExpressed || remark.kind == NotJudged || remark.kind == Bounded;
      std::vector<std::string>& list = open                      ? made.not_expressed
                                       : remark.kind == NoMatter ? made.no_matter
                                                                 : made.assumed;
      list.push_back(remark.what + ": " + remark.why);
    }
    return made;
  });
}

std::optional<Comparison> compare(const Scenario& scenario, const std::filesystem::path& measured,
                                  const CompareOptions& options) {
  return answered(scenario.file, [&] {
    tell(options, 0, 1);
    const scenarios::Scenario requested = parsed(scenario, options);
    scenarios::Measurement measurement{measured.string(), {}, options.device, options.tolerance};
    for (const std::int32_t rank : options.ranks) {
      if (rank < 0 || rank >= requested.gpus)
        throw scenarios::InputError(
            scenarios::Problem{.file = scenario.file.string(),
                               .message = "there is no rank " + std::to_string(rank),
                               .hint = "the job has ranks 0 to " + std::to_string(requested.gpus - 1)});
      measurement.ranks.push_back({rank});
    }
    std::sort(measurement.ranks.begin(), measurement.ranks.end());
    scenarios::MeasuredComparison found = compare_with(requested, measurement, progress_of(options));
    return Comparison{found.agrees, std::move(found.text), std::move(found.json)};
  });
}

}  // namespace tidemark
