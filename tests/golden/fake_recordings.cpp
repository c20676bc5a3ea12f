#include "tests/golden/fake_recordings.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "tests/golden/detail/recording_toml.hpp"
#include "tests/golden/root.hpp"

namespace tidemark::tests::golden {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<std::string_view, Kind>, 9> recorded_kinds{{{"parameter", Kind::Parameter},
                                                                           {"buffer", Kind::Parameter},
                                                                           {"gradient", Kind::Gradient},
                                                                           {"optimizer_state", Kind::OptimizerState},
                                                                           {"activation", Kind::Activation},
                                                                           {"input", Kind::Activation},
                                                                           {"temporary", Kind::Temporary},
                                                                           {"other", Kind::Temporary},
                                                                           {"bucket", Kind::Gradient}}};

StepPeak recorded(const Json& step) {
  StepPeak peak;
  for (const auto& [name, kind] : recorded_kinds)
    peak[kind] += Bytes{step.at("peak_by_category").value(std::string(name), std::int64_t{0})};
  if (step.contains("after")) {
    const Json& after = step["after"].at("optimizer");  // drawn recordings have the sum alone
    peak.after = Bytes{(after.is_object() ? after.at("bytes") : after).get<std::int64_t>()};
  }
  peak.where =
      step.at("peak_at").at("phase").get<std::string>() + ", " + step.at("peak_at").at("op").get<std::string>();
  return peak;
}

std::vector<StepPeak> recorded_steps(const Json& steps) {
  std::vector<StepPeak> peaks;
  for (const Json& step : steps) peaks.push_back(recorded(step));
  return peaks;
}

PlainRun plain_run(const Json& steps) {
  PlainRun run;
  for (const Json& step : steps) {
    run.allocated.emplace_back(step.at("peak").at("allocated").get<std::int64_t>());
    run.reserved = std::max(run.reserved, Bytes{step.at("peak").at("reserved").get<std::int64_t>()});
  }
  return run;
}

HostPeaks host_peaks(const Json& host) {
  HostPeaks peaks;
  const auto reach = [&](const Json& stretch) {
    const auto most = [&](const char* what) { return Bytes{stretch.at("peak").at(what).get<std::int64_t>()}; };
    peaks.pinned = std::max(peaks.pinned, most("pinned_held"));
    peaks.pageable = std::max(peaks.pageable, most("pageable"));
    peaks.both = std::max(peaks.both, most("both_held"));
  };
  reach(host.at("set_up"));
  for (const Json& step : host.at("steps")) reach(step);
  return peaks;
}

std::vector<HostPeaks> host_by_step(const Json& host) {
  std::vector<HostPeaks> parts;
  const auto add = [&](const Json& stretch) {
    const auto most = [&](const char* what) { return Bytes{stretch.at("peak").at(what).get<std::int64_t>()}; };
    parts.push_back({most("pinned"), most("pageable"), most("both")});
  };
  add(host.at("set_up"));
  for (const Json& step : host.at("steps")) add(step);
  return parts;
}

// With sync_each_batch, CPUOffload keeps the last micro-batch's gradients alone: the reader says so, and answers
// nothing.
bool refused_by_the_reader(std::string_view name) { return name == "fsdp_accumulating_4"; }

// What tests/ground_truth/record_saved.py hands the model is one tensor, ids and labels in one, and no mask: what a
// batch's two others take is added to what it recorded.
void add_batch(Recording& its) {
  const Train& train = its.scenario.train;
  const Bytes tensor = train.micro_batch * train.sequence_length * size_of(DType::INT64);
  const Bytes block{(tensor.count() + 511) / 512 * 512};
  for (Bytes& step : its.requested) step += 2 * tensor;
  for (Bytes& step : its.plain.allocated) step += 2 * block;
}

// By the scenario file that `toml` makes of it.
Recording sharded_one(const Json& json, const std::string& toml) {
  std::vector<Bytes> requested;
  for (const Json& step : json.at("steps")) requested.emplace_back(step.at("peak").at("requested").get<std::int64_t>());
  Recording found{json.at("name").get<std::string>(),
                  read_recording(json, toml),
                  {},
                  {},
                  plain_run(json.at("steps")),
                  Rank{json.at("settings").value("rank", 0)},
                  std::move(requested),
                  json.contains("host") ? host_peaks(json["host"]) : HostPeaks{},
                  json.contains("host") ? host_by_step(json["host"]) : std::vector<HostPeaks>{}};
  if (json.value("by", "") == "record_saved") add_batch(found);
  if (json.contains("live_at_peak"))
    for (const auto& [made_by, bytes] : json["live_at_peak"].items())
      found.live_at_peak[made_by] = Bytes{bytes.get<std::int64_t>()};
  return found;
}

// Of those that `by` made.
std::vector<Recording> sharded_in(const std::filesystem::path& folder, std::string (*toml)(const Json& recording),
                                  std::string_view by = "record_sharded") {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden" / folder)) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(std::ifstream(entry.path()));
    if (json.value("by", by) != by) continue;
    if (refused_by_the_reader(entry.path().stem().string())) continue;
    found.push_back(sharded_one(json, toml(json)));
  }
  std::ranges::sort(found, {}, &Recording::name);
  return found;
}

std::vector<Recording> recordings_in(const std::filesystem::path& folder) {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden/fake_tensor" / folder)) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(std::ifstream(entry.path()));
    found.push_back({entry.path().stem().string(),
                     read_recording(json, recording_toml(json)),
                     recorded_steps(json.at("steps")),
                     recorded_steps(json.value("without_in_place_accumulation", Json::array())),
                     plain_run(json.at("caching_allocator")),
                     Rank{0},
                     {}});
  }
  std::sort(found.begin(), found.end(), [](const Recording& a, const Recording& b) { return a.name < b.name; });
  return found;
}

}  // namespace

Bytes StepPeak::total() const {
  Bytes sum;
  for (const Bytes b : bytes) sum += b;
  return sum;
}

std::vector<Recording> fake_recordings() { return recordings_in("recordings"); }
std::vector<Recording> drawn_recordings() { return recordings_in("drawn"); }
std::vector<Recording> optimizer_recordings() { return recordings_in("optimizers"); }
std::vector<Recording> fused_recordings() { return recordings_in("fused"); }
std::vector<Recording> packed_recordings() { return recordings_in("packed"); }
std::vector<Recording> expert_recordings() { return recordings_in("experts"); }
std::vector<Recording> adapted_recordings() { return recordings_in("adapted"); }

std::vector<Recording> family_recordings() { return recordings_in("families"); }

std::vector<Recording> gpu_plain_runs() {
  const Json all = Json::parse(std::ifstream(root / "tests/golden/gpu_recordings/plain_runs.json"));
  const Json& versions = all.at("provenance").at("versions");
  std::vector<Recording> found;
  for (const Json& run : all.at("runs")) {
    Recording& its = found.emplace_back();
    its.name = run.at("name").get<std::string>();
    its.scenario = read_recording(run, gpu_run_toml(run, versions));
    its.plain = plain_run(run.at("steps"));
    for (const Json& step : run.at("steps"))
      its.requested.emplace_back(step.at("peak").at("requested").get<std::int64_t>());
    // Ids, labels and a mask come from a collator; where there is none, labels are the ids, and there is no mask.
    if (run.at("settings").value("batches", "") != "collated")
      its.not_made = 2 * its.scenario.train.micro_batch * its.scenario.train.sequence_length * size_of(DType::INT64);
  }
  return found;
}

std::vector<Recording> sharded_recordings() { return sharded_in("sharded/recordings", recording_toml); }
std::vector<Recording> flat_recordings() { return sharded_in("flat/recordings", recording_toml); }
std::vector<Recording> titan_recordings() { return sharded_in("titan/recordings", titan_toml); }
std::vector<Recording> megatron_recordings() {
  std::vector<Recording> found = sharded_in("megatron_core/recordings", megatron_toml);
  // pretrain() keeps when it began in a tensor; what records calls the training loop that it would call.
  constexpr Bytes start_time{8}, block{512};
  for (Recording& its : found) {
    for (Bytes& step : its.requested) step += start_time;
    for (Bytes& step : its.plain.allocated) step += block;
  }
  return found;
}
std::vector<Recording> compiled_recordings() { return sharded_in("compiled/recordings", titan_toml); }
std::vector<Recording> compiled_model_recordings() { return sharded_in("compiled/models", recording_toml); }
std::vector<Recording> offload_recordings() { return sharded_in("offload/recordings", recording_toml); }
std::vector<Recording> offloaded_flat_recordings() {
  return sharded_in("offload/recordings", recording_toml, "record_flat");
}
std::vector<Recording> saved_on_cpu_recordings() {
  return sharded_in("offload/recordings", recording_toml, "record_saved");
}
std::vector<Recording> offloaded_titan_recordings() {
  return sharded_in("offload/recordings", titan_toml, "record_titan");
}
std::vector<Recording> offloaded_zero_recordings() {
  return sharded_in("offload/recordings", recording_toml, "record_zero");
}
std::vector<Recording> wrapped_recordings() {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden/wrapped/recordings")) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(std::ifstream(entry.path()));
    found.push_back(sharded_one(json, json.at("by") == "record_titan" ? titan_toml(json) : recording_toml(json)));
  }
  std::ranges::sort(found, {}, &Recording::name);
  return found;
}
std::vector<Recording> zero_recordings() { return sharded_in("zero/recordings", recording_toml); }

}  // namespace tidemark::tests::golden
