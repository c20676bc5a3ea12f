// What `plan` and `advise` make of memory of hosts.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/plan/changes/advise.hpp"
#include "scenarios/plan/changes/changes.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/report/text/advice_text.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "tests/scenarios/small_space.hpp"

namespace tidemark::tests::offload_search_test {
namespace {

using namespace literals;

// Eight A100 of 40 GB, whose host has so much.
std::string cluster_with(const std::string& memory) {
  std::ifstream file(source / "scenarios/clusters/a100-sxm-40g.toml");
  std::ostringstream text;
  text << file.rdbuf();
  std::string cluster = text.str();
  const std::size_t at = cluster.find("\nmemory = \"1024 GiB\"");
  EXPECT_NE(at, std::string::npos);
  cluster.replace(at, cluster.find('\n', at + 1) - at, fmt::format("\nmemory = \"{}\"", memory));
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / fmt::format("host-{}.toml", memory);
  std::ofstream(path) << cluster;
  return path.string();
}

// Four layers of Llama-3.1 8B; by runtime, what its axis of hosts is.
SmallSpace small_space(const std::string& runtime, const std::string& memory, const std::string& sharding) {
  SmallSpace space;
  space.top = fmt::format(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"{}\"\ngpus = 4\nmodel_override.num_hidden_layers = 4\n"
      "runtime.name = \"{}\"\nlayout.sharding = \"{}\"\n",
      cluster_with(memory), runtime, sharding);
  space.train =
      "sequence_length = 4096\nglobal_batch = 8\nhidden_dropout = 0.0\nattention_dropout = 0.0\nmicro_batch = 1\n";
  return space;
}

struct Searched {
  const char* runtime;
  const char* sharding;
  const char* memory;  // of the host: some of what is offloaded has no room
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;
};

void PrintTo(const Searched& searched, std::ostream* out) { *out << searched.runtime; }

class Offloaded : public testing::TestWithParam<Searched> {};

TEST_P(Offloaded, SearchFindsWhatBruteForceFinds) {
  const auto& [runtime, sharding, memory, axes] = GetParam();
  SmallSpace small = small_space(runtime, memory, sharding);
  small.axes = axes;
  const std::vector<Fitting> all = brute_force(small);
  const Space space = space_of(small);
  const Plan found = plan(space, {.top = 40});
  expect_as_by_brute_force(found, all);
  EXPECT_FALSE(all.empty());
  EXPECT_TRUE(std::ranges::any_of(found.best, [](const Found& f) { return f.figures.host_upper > Bytes{}; }));
  EXPECT_TRUE(std::ranges::any_of(found.near_misses,
                                  [](const Miss& m) { return m.lacks <= Bytes{} && m.host_lacks > Bytes{}; }));
  EXPECT_NE(plan_text(space, found).find("host lacks"), std::string::npos);
  const std::string said = plan_json(space, found) + plan_csv(space, found);
  const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, 1);
  const Plan again = plan(space, {.top = 40});
  EXPECT_EQ(plan_json(space, again) + plan_csv(space, again), said);
}

const std::vector<std::string> none_or_cpu{"\"none\"", "\"cpu\""};

INSTANTIATE_TEST_SUITE_P(
    Runtimes, Offloaded,
    testing::Values(Searched{"megatron",
                             "zero1",
                             "40 GiB",
                             {{"offload.optimizer", {"\"cpu\""}}, {"offload.optimizer_fraction", {"0.5", "1.0"}}}},
                    Searched{"fsdp2",
                             "zero3",
                             "33 GiB",
                             {{"offload.parameters", none_or_cpu}, {"runtime.switches.pin_memory", {"true", "false"}}}},
                    Searched{"deepspeed",
                             "zero3",
                             "40 GiB",
                             {{"offload.optimizer", none_or_cpu}, {"offload.parameters", none_or_cpu}}}),
    [](const testing::TestParamInfo<Searched>& param) { return param.param.runtime; });

TEST(OffloadAxis, SaysInWordsWhatKeysSay) {
  const auto candidates_of = [](SmallSpace small, const char* key, std::vector<std::string> values) {
    small.axes = {{key, std::move(values)}};
    const Space space = space_of(small);
    std::vector<Scenario> made;
    for (std::int64_t i = 0; i < space.size(); ++i) made.push_back(std::get<Scenario>(candidate(space, i)));
    return made;
  };
  const SmallSpace fsdp2 = small_space("fsdp2", "1024 GiB", "zero3");
  EXPECT_EQ(candidates_of(fsdp2, "offload", {"\"none\"", "\"parameters\""}),
            candidates_of(fsdp2, "offload.parameters", none_or_cpu));
  const SmallSpace megatron = small_space("megatron", "1024 GiB", "zero1");
  EXPECT_EQ(candidates_of(megatron, "offload", {"\"none\"", "\"optimizer\""}),
            candidates_of(megatron, "offload.optimizer", none_or_cpu));
  // All layers but the last, where the base does not say how many.
  EXPECT_EQ(candidates_of(megatron, "offload", {"\"none\"", "\"activations\""}).back().runtime.offloaded_layers, 3);
  SmallSpace two = megatron;
  two.top += "runtime.switches.cpu-offloading-num-layers = 2\n";
  const std::vector<Scenario> made = candidates_of(two, "offload", {"\"none\"", "\"activations\""});
  EXPECT_EQ(made.front().runtime.offloaded_layers, 0);
  EXPECT_EQ(made.back().runtime.offloaded_layers, 2);
}

TEST(OffloadAxis, TakesNothingElse) {
  SmallSpace small = small_space("fsdp2", "1024 GiB", "zero3");
  small.axes = {{"offload", {"\"none\"", "\"gradients\""}}};
  try {
    (void)space_of(small);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()),
              "small:14:20: error: offload: \"gradients\" is not a choice of what is on hosts\n"
              "  hint: none, optimizer, parameters or activations would do");
  }
}

TEST(OffloadAxis, HasWhatRuntimesCan) {
  for (const RuntimeKind& kind : runtimes()) {
    if (kind.id == RuntimeId::TorchTitan) continue;
    const bool megatron = kind.id == RuntimeId::Megatron;
    SmallSpace small = small_space(std::string(kind.name), "1024 GiB", megatron ? "zero1" : "zero3");
    if (kind.id == RuntimeId::PyTorch) small = small_space("pytorch", "1024 GiB", "none");
    small.axes = {{"train.precision", {"\"bf16\""}}};
    const Space space = space_of(small, {"offload"});
    EXPECT_GT(space.size(), 1) << kind.name;
    for (std::int64_t i = 0; i < space.size(); ++i) {
      const auto made = candidate(space, i);
      const auto* dropped = std::get_if<NoCandidate>(&made);
      EXPECT_EQ(dropped, nullptr) << kind.name << ' ' << i << ' ' << (dropped != nullptr ? dropped->reason : "");
    }
  }
}

// Layers that lack some ten gigabytes with their optimizer on the device.
std::string too_much(const std::string& memory, const std::string& more = "") {
  return fmt::format(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"{}\"\ngpus = 4\nmodel_override.num_hidden_layers = 44\n"
      "[train]\nsequence_length = 1024\nmicro_batch = 1\n[runtime]\nname = \"fsdp2\"\n{}",
      cluster_with(memory), more);
}
Advice advice_on(const std::string& document) {
  return advise(parse_toml(document, "much"), "much.toml", folders, {.most_changes = 1, .free = {}});
}
bool proposes(const Advice& advice, const std::string& change) {
  return std::ranges::any_of(advice.remedies,
                             [&](const Remedy& r) { return r.changes == std::vector<std::string>{change}; });
}

TEST(AdviseOffload, ProposesItWithWhatItCosts) {
  const Advice advice = advice_on(too_much("1024 GiB"));
  EXPECT_GT(advice.lacks, Bytes{});
  ASSERT_TRUE(proposes(advice, "offload: none -> parameters")) << advice_text(advice);
  EXPECT_TRUE(advice.for_hosts.empty());
  for (const Remedy& r : advice.remedies)
    if (r.changes.front().starts_with("offload")) {
      EXPECT_LT(r.found.figures.throughput, advice.now.throughput);
      EXPECT_GT(r.found.figures.host_upper, Bytes{});
    }
}

TEST(AdviseOffload, SaysWhereHostsHaveNoRoomForIt) {
  const Advice advice = advice_on(too_much("64 GiB"));
  EXPECT_FALSE(proposes(advice, "offload: none -> parameters"));
  ASSERT_FALSE(advice.for_hosts.empty());
  EXPECT_EQ(advice.for_hosts.front().changes, std::vector<std::string>{"offload: none -> parameters"});
  EXPECT_GT(advice.for_hosts.front().lacks, Bytes{});
  EXPECT_NE(advice_text(advice).find("enough for devices, but too much for the fullest host"), std::string::npos);
}

TEST(AdviseOffload, TakesLessToHostsThatAreTooFull) {
  const Advice pinned = advice_on(too_much("1024 GiB", "[offload]\nparameters = \"cpu\"\n"));
  ASSERT_TRUE(pinned.fits);
  const std::string memory = fmt::format("{} GiB", (pinned.now.host_upper.count() >> 30) - 1);
  const Advice advice = advice_on(too_much(memory, "[offload]\nparameters = \"cpu\"\n"));
  EXPECT_FALSE(advice.fits);
  EXPECT_GT(advice.host_lacks, Bytes{});
  EXPECT_TRUE(proposes(advice, "offload: parameters -> parameters, pageable")) << advice_text(advice);
  EXPECT_NE(advice_text(advice).find("on its fullest host"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::offload_search_test
