#include "scenarios/predict/prediction.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <oneapi/tbb/global_control.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/internal_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::prediction_test {
namespace {

using namespace literals;
using nlohmann::json;

// Four layers of Llama-3.1 8B on a node: two stages of two data-parallel ranks of two tensor-parallel ones.
constexpr std::string_view small_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
sequence_parallel = true
pipeline = 2
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)";

Scenario scenario(std::string_view text = small_job) { return parse_scenario(text, "small.toml", folders); }
Scenario with_capacity(Bytes capacity) {
  Scenario s = scenario();
  s.cluster.device.capacity = capacity;
  return s;
}
json predicted(const Scenario& s) { return json::parse(prediction_json(predict(s))); }

std::vector<std::string> keys(const json& object) {
  std::vector<std::string> found;
  for (const auto& [key, value] : object.items()) found.push_back(key);
  return found;  // nlohmann::json sorts them
}

// Four layers of a model on two tensor-parallel ranks, or on one where keys and values are not to be cut.
Scenario of_model(const std::string& name, std::int32_t tensor, std::string layers = "num_hidden_layers",
                  std::string_view train = "", std::string_view runtime = "") {
  return scenario(fmt::format(R"(model = "models/{}.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
{} = 4
[layout]
tensor = {}
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 4
{}
[runtime]
name = "megatron"
{}
)",
                              name, layers, tensor, train, runtime));
}

bool says(const Prediction& prediction, std::string_view words) {
  return std::any_of(prediction.assumptions.begin(), prediction.assumptions.end(),
                     [&](const std::string& line) { return line.find(words) != std::string::npos; });
}

TEST(Families, SayWhatMegatronHasNoLayersFor) {
  const auto expect = [](const Prediction& prediction, std::vector<std::string_view> said) {
    EXPECT_TRUE(prediction.fits);
    const std::vector<std::string_view> all{"Megatron-Bridge's layers for Gemma",
                                            "EXAONE",
                                            "OLMoE",
                                            "each rank normalizes",
                                            "parallel residual",
                                            "GeGLU",
                                            "soft-capped",
                                            "window of"};
    for (const std::string_view words : all)
      EXPECT_EQ(says(prediction, words), std::find(said.begin(), said.end(), words) != said.end()) << words;
  };
  expect(predict(of_model("gemma-2-9b", 2)), {"Megatron-Bridge's layers for Gemma", "GeGLU", "soft-capped"});
  expect(predict(of_model("gemma-3-1b", 1)), {"Megatron-Bridge's layers for Gemma", "GeGLU", "window of"});
  expect(predict(of_model("olmo-2-7b", 1)), {"EXAONE", "OLMoE"});
  expect(predict(of_model("olmo-2-32b", 2)), {"EXAONE", "each rank normalizes"});
  expect(predict(of_model("pythia-6.9b", 2)), {"parallel residual"});
  expect(predict(of_model("santacoder", 1, "n_layer")), {});
}

TEST(Families, CappedScoresNeedAttentionThatStoresThem) {
  EXPECT_THROW(of_model("gemma-2-9b", 2, "num_hidden_layers", R"(attention = "flash")"), InputError);
  EXPECT_EQ(Job(of_model("gemma-2-9b", 2)).scenario.train.attention, AttentionKernel::Unfused);
  EXPECT_EQ(Job(of_model("gemma-3-1b", 1)).scenario.train.attention, AttentionKernel::Fused);
}

TEST(Families, AGateWithoutItsFusedKernelTakesMore) {
  const auto peak = [](std::string_view switches) {
    return predict(of_model("gemma-3-1b", 1, "num_hidden_layers", "", switches)).groups.front().memory.allocated.bytes;
  };
  EXPECT_GT(peak("[runtime.switches]\nno-bias-gelu-fusion = true"), peak(""));
  EXPECT_EQ(peak("[runtime.switches]\nno-bias-swiglu-fusion = true"), peak(""));
}

TEST(PredictionJson, HasEveryKeyOfTheContract) {
  const json j = predicted(scenario());
  EXPECT_EQ(keys(j), (std::vector<std::string>{"assumptions",
                                               "bounds",
                                               "calibration",
                                               "capacity_bytes",
                                               "failure",
                                               "fits",
                                               "groups",
                                               "headroom_bytes",
                                               "hfu",
                                               "mfu",
                                               "not_judged",
                                               "not_modelled",
                                               "outcome",
                                               "scenario",
                                               "schema",
                                               "step_causes_s",
                                               "step_shares",
                                               "step_time_high_s",
                                               "step_time_low_s",
                                               "step_time_s",
                                               "tokens_per_s_per_device",
                                               "verdict",
                                               "world_size"}));
  EXPECT_EQ(j["schema"], "tidemark.prediction/1");
  EXPECT_EQ(j["world_size"], 8);
  EXPECT_EQ(j["outcome"], "completed");
  EXPECT_EQ(j["capacity_bytes"], scenario().cluster.device.capacity.count());
  EXPECT_EQ(j["headroom_bytes"], 0);
  EXPECT_TRUE(j["fits"].is_boolean());
  EXPECT_TRUE(j["failure"].is_null());
  EXPECT_EQ(j["scenario"]["name"], "small");
  EXPECT_NE(j["not_modelled"].dump().find("host memory"), std::string::npos);
  for (const json& group : j["groups"]) {
    EXPECT_EQ(keys(group), (std::vector<std::string>{"allocated_peak_at",
                                                     "at_allocated_peak",
                                                     "at_peak",
                                                     "coordinates",
                                                     "device_rows",
                                                     "filled_device_bytes",
                                                     "peak_allocated_by_step",
                                                     "peak_allocated_bytes",
                                                     "peak_allocated_range_bytes",
                                                     "peak_at",
                                                     "peak_device_bytes",
                                                     "peak_device_upper_bytes",
                                                     "peak_host_pageable_bytes",
                                                     "peak_host_pinned_bytes",
                                                     "peak_reserved_bytes",
                                                     "peak_reserved_range_bytes",
                                                     "ranks",
                                                     "required_device_bytes",
                                                     "required_device_upper_bytes",
                                                     "retries_per_step",
                                                     "static_allocated_bytes"}));
    // Nothing is known of them: null, as not_modelled says, and not 0.
    EXPECT_TRUE(group["peak_host_pinned_bytes"].is_null() && group["peak_host_pageable_bytes"].is_null());
    EXPECT_EQ(keys(group["coordinates"]), (std::vector<std::string>{"cp", "dp", "ep", "pp", "tp"}));
    for (const std::string at : {"peak_at", "allocated_peak_at"})
      EXPECT_EQ(keys(group[at]), (std::vector<std::string>{"micro_batch", "op", "phase", "step", "time_s"}));
    for (const json& row : group["device_rows"])
      EXPECT_EQ(keys(row), (std::vector<std::string>{"bytes", "high", "low", "name", "source"}));
  }
}

TEST(PredictionJson, AStepsRangeIsMadeOfItsPartsErrors) {
  Scenario s = scenario();
  const auto range = [&] {
    const json j = predicted(s);
    const double step = j["step_time_s"];
    return std::pair(j["step_time_low_s"].get<double>() / step, j["step_time_high_s"].get<double>() / step);
  };
  const auto [low, high] = range();
  EXPECT_LT(low, 1);
  EXPECT_GT(high, 1);
  s.cluster.device.efficiency.kernel_error = s.cluster.device.efficiency.communication_error = {};
  s.cluster.host.launch = 1_ps;  // the device never waits for it
  s.cluster.host.code_factor = {};
  EXPECT_NEAR(range().first, 1, 1e-3);
  EXPECT_NEAR(range().second, 1, 1e-3);
  s.cluster.device.efficiency.kernel_error = s.cluster.device.efficiency.communication_error = Ratio{100'000};
  EXPECT_NEAR(range().second, 1.1, 1e-3) << "all that a step is made of is a tenth off";
}

TEST(PredictionJson, TimesAreOfOneClock) {
  const json j = predicted(scenario());
  const double step = j["step_time_s"];
  EXPECT_GT(step, 0);
  EXPECT_GT(j["tokens_per_s_per_device"], 0);
  EXPECT_GT(j["mfu"], 0);
  EXPECT_LT(j["mfu"], 1);
  double shares = 0;
  for (const char* part : {"kernels", "bubble", "copies", "idle"}) shares += j["step_shares"][part].get<double>();
  for (const json& part : j["step_shares"]["exposed_communication"]) shares += part.get<double>();
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_EQ(keys(j["step_causes_s"]),
            (std::vector<std::string>{"bubble", "compute", "context", "copies", "data", "expert", "host", "other_ranks",
                                      "pipeline", "statistics", "tensor"}));
  double causes = 0;
  for (const json& part : j["step_causes_s"]) causes += part.get<double>();
  EXPECT_NEAR(causes, step, 1e-12) << "picoseconds add up";
  EXPECT_NEAR(j["step_causes_s"]["compute"].get<double>() / step, j["step_shares"]["kernels"].get<double>(), 1e-9);
  EXPECT_GE(j["hfu"].get<double>(), j["mfu"].get<double>()) << "nothing of the model is left out";
  for (const json& group : j["groups"]) {
    EXPECT_GT(group["allocated_peak_at"]["time_s"], 0);
    EXPECT_LT(group["allocated_peak_at"]["time_s"], 10 * step);
  }
}

const std::vector<std::string> categories = {
    "adapters",          "comm_cp",          "comm_dp",           "comm_ep",    "comm_pp",      "comm_tp",
    "context",           "fragmentation",    "gradients",         "kv_cache",   "logits_loss",  "nccl",
    "offload_staging",   "optimizer_master", "optimizer_moments", "parameters", "quantization", "recompute",
    "saved_activations", "temporaries",      "workspaces"};

std::int64_t sum(const json& composition) {
  std::int64_t bytes = 0;
  for (const json& part : composition) bytes += part.get<std::int64_t>();
  return bytes;
}

TEST(PredictionJson, CompositionsHaveEveryCategoryAndSumExactly) {
  const json j = predicted(scenario());
  for (const json& group : j["groups"]) {
    EXPECT_EQ(keys(group["at_peak"]), categories);
    EXPECT_EQ(keys(group["at_allocated_peak"]), categories);
    EXPECT_EQ(sum(group["at_peak"]), group["peak_device_bytes"]);
    EXPECT_EQ(sum(group["at_allocated_peak"]), group["peak_allocated_bytes"]);
    for (const std::string none : {"nccl", "context", "fragmentation"}) EXPECT_EQ(group["at_allocated_peak"][none], 0);
    EXPECT_GT(group["at_peak"]["nccl"], 0);
    EXPECT_GT(group["at_peak"]["context"], 0);
    for (const json& part : group["at_peak"]) EXPECT_GE(part, 0);
    for (const std::string later :
         {"comm_cp", "comm_ep", "recompute", "offload_staging", "kv_cache", "adapters", "quantization"})
      EXPECT_EQ(group["at_peak"][later], 0);
  }
}

TEST(PredictionJson, FiguresOfAGroupAreInOrder) {
  const json j = predicted(scenario());
  for (const json& group : j["groups"]) {
    EXPECT_LE(group["static_allocated_bytes"], group["peak_allocated_bytes"]);
    EXPECT_LE(group["peak_allocated_bytes"], group["peak_reserved_bytes"]);
    EXPECT_LE(group["peak_reserved_bytes"], group["peak_device_bytes"]);
    EXPECT_LE(group["peak_device_bytes"], group["peak_device_upper_bytes"]);
    ASSERT_EQ(group["peak_allocated_by_step"].size(), 3u);  // construction and two steps
    std::int64_t highest = 0;
    for (const json& step : group["peak_allocated_by_step"]) highest = std::max(highest, step.get<std::int64_t>());
    EXPECT_EQ(highest, group["peak_allocated_bytes"]);
    EXPECT_GE(group["allocated_peak_at"]["step"], 0);
    EXPECT_LE(group["allocated_peak_at"]["step"], 2);
  }
}

TEST(PredictionJson, DeviceRowsNameWhatDriversHold) {
  const json j = predicted(scenario());
  for (const json& group : j["groups"]) {
    std::set<std::string> names;
    std::int64_t rows = 0;
    for (const json& row : group["device_rows"]) {
      names.insert(row["name"]);
      rows += row["bytes"].get<std::int64_t>();
      EXPECT_LE(row["low"], row["bytes"]);
      EXPECT_LE(row["bytes"], row["high"]);
      EXPECT_FALSE(row["source"].get<std::string>().empty());
    }
    for (const std::string name :
         {"context", "modules", "nccl_kernels", "communicator world", "communicator tensor", "communicator data",
          "communicator pipeline", "communicator optimizer_instance", "communicator model_parallel"})
      EXPECT_TRUE(names.contains(name)) << name;
    EXPECT_EQ(names.size(), group["device_rows"].size());
    EXPECT_EQ(rows, group["at_peak"]["context"].get<std::int64_t>() + group["at_peak"]["nccl"].get<std::int64_t>());
  }
}

TEST(PredictionJson, InstantsNameTheirPlace) {
  const std::set<std::string> phases = {"construction", "forward", "backward", "optimizer_step", "communication"};
  const json j = predicted(scenario());
  for (const json& group : j["groups"])
    for (const std::string at : {"peak_at", "allocated_peak_at"}) {
      EXPECT_TRUE(phases.contains(group[at]["phase"])) << group[at]["phase"];
      EXPECT_FALSE(group[at]["op"].get<std::string>().empty());
      EXPECT_TRUE(group[at]["micro_batch"].is_null() || group[at]["micro_batch"].is_number_integer());
    }
}

TEST(Prediction, EveryRankIsInExactlyOneGroup) {
  const json j = predicted(scenario());
  std::vector<int> seen(8);
  std::int64_t previous = -1;
  for (const json& group : j["groups"]) {
    ASSERT_FALSE(group["ranks"].empty());
    const std::int64_t lowest = group["ranks"][0];
    EXPECT_GT(lowest, previous);  // groups in order of their lowest rank
    previous = lowest;
    EXPECT_EQ(group["coordinates"]["tp"], lowest % 2);
    EXPECT_EQ(group["coordinates"]["dp"], lowest / 2 % 2);
    EXPECT_EQ(group["coordinates"]["pp"], lowest / 4);
    for (const json& rank : group["ranks"]) ++seen[rank.get<std::size_t>()];
  }
  EXPECT_EQ(seen, std::vector<int>(8, 1));
}

TEST(Prediction, FitsMeansTheUpperEndOfWhatMustBeHadWithHeadroomOnEveryRank) {
  const Prediction free = predict(scenario());
  EXPECT_TRUE(free.completed);
  EXPECT_TRUE(free.fits);
  const Bytes upper = free.most_required().required.upper;
  for (const RankGroup& group : free.groups) EXPECT_LE(group.required.upper, upper);
  const Bytes grain = upper / 500;  // it is looked for to a thousandth

  EXPECT_TRUE(predict(with_capacity(upper)).fits);
  const Prediction tight = predict(with_capacity(upper - grain));
  EXPECT_FALSE(tight.fits);
  EXPECT_TRUE(tight.completed);  // at central values it runs: not the same question

  Scenario s = with_capacity(upper + 1_GiB);
  s.runtime.headroom = 1_GiB;
  EXPECT_TRUE(predict(s).fits);
  s.runtime.headroom = 1_GiB + grain;
  EXPECT_FALSE(predict(s).fits);
  EXPECT_TRUE(predict(s).completed);
  EXPECT_EQ(predicted(s)["headroom_bytes"], (1_GiB + grain).count());
}

TEST(Prediction, OutOfMemorySaysWhereAndStillReportsTheNeed) {
  const json unlimited = predicted(scenario());
  const Bytes half{unlimited["groups"][0]["peak_device_bytes"].get<std::int64_t>() / 2};
  const json j = predicted(with_capacity(half));
  EXPECT_EQ(j["outcome"], "out_of_memory");
  EXPECT_EQ(j["fits"], false);
  const json& failure = j["failure"];
  EXPECT_EQ(keys(failure), (std::vector<std::string>{"free_bytes", "op", "phase", "rank", "requested_bytes"}));
  EXPECT_GT(failure["requested_bytes"], failure["free_bytes"]);
  EXPECT_LT(failure["free_bytes"], half.count());
  EXPECT_FALSE(failure["op"].get<std::string>().empty());
  ASSERT_EQ(j["groups"].size(), unlimited["groups"].size());
  for (std::size_t g = 0; g < j["groups"].size(); ++g) {
    json its = j["groups"][g], without_limit = unlimited["groups"][g];
    EXPECT_LE(its["filled_device_bytes"], half.count());
    for (json* group : {&its, &without_limit}) group->erase("filled_device_bytes");
    EXPECT_EQ(its, without_limit);  // what it would take
  }
  EXPECT_EQ(j["capacity_bytes"], half.count());
  EXPECT_NE(prediction_text(predict(with_capacity(half))).find("out of memory on rank 0: "), std::string::npos);
}

TEST(Prediction, AFullDeviceNeedNotBeTheEnd) {
  // The allocator gives its cache back before it gives up: less than the peak of the unlimited run can do.
  std::string text(small_job);
  text.replace(text.find("num_hidden_layers = 4"), 21, "num_hidden_layers = 8");
  Scenario job = scenario(text);
  const Bytes peak = predict(job).highest().memory.device.bytes;
  bool squeezed = false;
  for (std::int64_t less = 1; less <= 512 && !squeezed; less *= 2) {
    job.cluster.device.capacity = peak - less * 1_MiB;
    const Prediction p = predict(job);
    squeezed = p.completed;
    for (const RankGroup& group : p.groups)
      EXPECT_TRUE(group.failure || group.memory.device.bytes <= peak - less * 1_MiB);
  }
  EXPECT_TRUE(squeezed);
}

TEST(Prediction, DoesNotDependOnTheNumberOfThreads) {
  const auto bytes_with = [](std::size_t threads) {
    const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
    return prediction_json(predict(scenario()));
  };
  const std::string one = bytes_with(1);
  EXPECT_EQ(bytes_with(8), one);
  EXPECT_EQ(bytes_with(3), one);
}

TEST(Prediction, ReportsItsProgress) {
  std::vector<std::size_t> seen;
  std::size_t all = 0;
  (void)predict(scenario(), [&](std::size_t done, std::size_t of) {
    seen.push_back(done);
    all = of;
  });
  EXPECT_EQ(seen.size(), all);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 1);
}

TEST(Prediction, ATextLeadsWithTheAnswer) {
  const Prediction fits = predict(scenario());
  const std::string yes = prediction_text(fits);
  EXPECT_TRUE(yes.starts_with("yes, it fits: ")) << yes;
  for (const std::string part :
       {"peak on rank", "made of", "saved_activations", "by pipeline stage", "a step takes", "assumed", "not modelled"})
    EXPECT_NE(yes.find(part), std::string::npos) << part;
  EXPECT_TRUE(prediction_text(predict(with_capacity(4_GiB))).starts_with("no, it does not fit: "));
}

TEST(Prediction, AnswersForOneDevice) {
  Scenario s = scenario();
  s.gpus = 1;
  s.layout = {};
  const json j = predicted(s);
  EXPECT_EQ(j["world_size"], 1);
  ASSERT_EQ(j["groups"].size(), 1u);
  // Nobody to talk to, but Megatron calls collectives in groups of one, which NCCL sets up.
  std::set<std::string> names;
  for (const json& row : j["groups"][0]["device_rows"]) names.insert(row["name"]);
  EXPECT_EQ(names, (std::set<std::string>{"context", "modules", "nccl_kernels", "blas_handle", "blas_handle 2",
                                          "communicator world", "communicator tensor", "communicator data",
                                          "communicator model_parallel"}));
}

TEST(Prediction, VariablesOfNcclReachTheDeviceRows) {
  Scenario limited = scenario();
  limited.runtime.nccl.channels.max_ctas = 2;
  EXPECT_LT(predict(limited).highest().memory.peak_device_upper,
            predict(scenario()).highest().memory.peak_device_upper);
}

// Four stages of four ranks each: every second one hands on to the other half of the next node.
TEST(Prediction, WithoutPxnMessagesCrossTheSpines) {
  Scenario halves = scenario();
  halves.gpus = 16;
  halves.layout.tensor = 4;
  halves.layout.pipeline = 4;
  halves.layout.data = 1;
  Scenario own_nic = halves;
  own_nic.runtime.nccl.pxn = Pxn::Never;
  // On the way there and back each micro-batch gains two hops of the network and loses one over NVLink.
  EXPECT_GT(predict(own_nic).step.step, predict(halves).step.step);
}

TEST(Prediction, SocketsGoThroughTheHostAndSaySo) {
  Scenario two_nodes = scenario();
  two_nodes.gpus = 16;
  two_nodes.layout.data = 4;
  const auto with = [&](const std::string& variable) {
    return parse_scenario(std::string(small_job).replace(std::string(small_job).find("gpus = 8"), 8, "gpus = 16") +
                              "environment." + variable,
                          "small.toml", folders);
  };
  const auto says_so = [](const Prediction& p) {
    return std::ranges::any_of(p.assumptions, [](const std::string& a) { return a.starts_with("NCCL's sockets"); });
  };
  const Prediction direct = predict(two_nodes), by_host = predict(with("NCCL_NET_GDR_LEVEL = \"LOC\"")),
                   sockets = predict(with("NCCL_IB_DISABLE = 1"));
  EXPECT_GT(by_host.step.step, direct.step.step);
  EXPECT_EQ(sockets.step.step, by_host.step.step);
  EXPECT_TRUE(says_so(sockets));
  EXPECT_FALSE(says_so(by_host));
}

// Without a pipeline both switches save time. In one, stages that gather as they come to it wait for one another: a
// chunk of each asked for when the step begins does not.
TEST(Prediction, BucketsBesideThePassesSaveTimeWhereStagesDoNotWaitForThem) {
  const auto step = [](Layout layout, DataOverlap overlap) {
    Scenario s = scenario();
    s.layout = std::move(layout);
    s.runtime.overlap = overlap;
    return predict(s);
  };
  const DataOverlap none, gradients{.gradients = true}, both{.gradients = true, .parameters = true};
  Layout replicas = scenario().layout;
  replicas.pipeline = 1, replicas.data = 4;
  EXPECT_LT(step(replicas, gradients).step.step, step(replicas, none).step.step);
  EXPECT_LT(step(replicas, both).step.step, step(replicas, gradients).step.step);

  const Layout stages = scenario().layout;
  const Prediction one_after_another = step(stages, both);
  EXPECT_TRUE(says(one_after_another, "stages gather one after another"));
  EXPECT_GT(one_after_another.step.step, step(stages, gradients).step.step);

  Layout chunks = stages;
  chunks.schedule = ScheduleKind::Interleaved, chunks.chunks = 2;
  const Prediction together = step(chunks, both);
  EXPECT_FALSE(says(together, "stages gather one after another"));
  EXPECT_LT(together.step.step, step(chunks, none).step.step);
  EXPECT_GT(step(chunks, {.gradients = true, .parameters = true, .parameters_aligned = false}).step.step,
            together.step.step);
}

TEST(Job, ItsValuesAgree) {
  const Job job(scenario());
  EXPECT_EQ(job.scenario.train.attention, AttentionKernel::Fused);  // settled by the device
  EXPECT_EQ(job.costs.entry_of_rank.size(), 8u);
  EXPECT_EQ(job.communicators().size(), 6u);
  EXPECT_TRUE(verify(lower(job.lowering())).empty());
}

// The first stage asks for a gradient before it has handed on what that would be the gradient of. Its ranks all run the
// program that is changed: nothing of the optimizer is sharded.
Job deadlocked() {
  Scenario one_role = scenario();
  one_role.layout.sharding = Sharding::None;
  Job job(one_role);
  RepeatingProgram changed = *job.outline.programs.front().get();
  Program& first = changed.rolled;
  const auto next = [&](Direction direction) {
    return std::find_if(first.transfers.begin(), first.transfers.end(),
                        [&](const Transfer& t) { return t.direction == direction; });
  };
  std::swap(next(Direction::Send)->direction, next(Direction::Receive)->direction);
  job.outline.programs.front() = std::move(changed);
  return job;
}

TEST(Deadlock, IsAnAnswerThatSaysWhoWaitsForWhom) {
  const Job job = deadlocked();
  const Prediction p = predict(job, simulate_time(job));
  ASSERT_TRUE(p.deadlock);
  EXPECT_FALSE(p.completed);
  EXPECT_FALSE(p.fits);
  const auto stall_of = [&](Rank rank) {
    return *std::find_if(p.deadlock->stalls.begin(), p.deadlock->stalls.end(),
                         [&](const StalledRank& s) { return s.rank == rank; });
  };
  EXPECT_EQ(stall_of(Rank{0}).waits_for, Rank{4});
  EXPECT_EQ(stall_of(Rank{4}).waits_for, Rank{0});
  EXPECT_EQ(stall_of(Rank{0}).waiting_for, "a message to be sent in communicator pipeline");
  EXPECT_EQ(stall_of(Rank{0}).phase, "communication");
  EXPECT_EQ(p.deadlock->cycle, (std::vector<Rank>{Rank{0}, Rank{4}}));
  EXPECT_EQ(prediction_text(p).find("no, it deadlocks"), 0u);
  EXPECT_NE(prediction_text(p).find("in a circle: rank 0 -> 4 -> 0\n"), std::string::npos);

  const json j = json::parse(prediction_json(p));
  EXPECT_EQ(j["outcome"], "deadlock");
  EXPECT_EQ(j["failure"]["cycle"], json::parse("[0, 4]"));
  EXPECT_EQ(j["failure"]["stalls"].size(), p.deadlock->stalls.size());
  EXPECT_TRUE(j["step_time_s"].is_null());
  EXPECT_TRUE(j["groups"][0]["peak_at"]["time_s"].is_null());
}

TEST(InternalError, NamesTheScenarioAndTheOps) {
  const Program broken = parse_program("alloc b0 512 temporaries s0 x\nfree b0\nfree b0\n");
  try {
    require_sound("job.toml", verify(broken));
    FAIL() << "freed twice";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.scenario(), "job.toml");
    EXPECT_EQ(error.findings(), verify(broken));
    EXPECT_EQ(std::string(error.what()),
              "job.toml: internal error: its programs are not sound\n"
              "  op 2: free b0: b0 is already freed\n"
              "  this is a bug in Tidemark, not in the scenario: please report it with the scenario");
  }
  EXPECT_NO_THROW(require_sound("job.toml", {}));
}

TEST(Examples, TheFirstOneFits) {
  const Prediction p =
      predict(read_scenario(source / "scenarios/examples/llama-3.1-70b-64xh100.toml", source / "scenarios"));
  EXPECT_TRUE(p.fits);
  EXPECT_EQ(p.parameters, 70'553'706'496);
  std::size_t ranks = 0;
  for (const RankGroup& group : p.groups) ranks += group.ranks.size();
  EXPECT_EQ(ranks, 64u);
}

}  // namespace
}  // namespace tidemark::tests::prediction_test
