#include "scenarios/plan/changes/advise.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/capacity.hpp"
#include "scenarios/plan/changes/changes.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/same_job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/text/advice_text.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::advise_test {
namespace {

using namespace literals;

// Eight layers of Llama-3.1 8B, replicated on four 40 GB devices, in long micro-batches: too much.
constexpr const char* too_much = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/a100-sxm-40g.toml"
gpus = 4
[model_override]
num_hidden_layers = 8
[train]
sequence_length = 8192
micro_batch = 2
global_batch = 16
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
)";

TEST(Advise, EveryRemedyFitsAndNoneOfItsChangesCanBeLeftOut) {
  const Advice advice = advise(parse_toml(too_much, "much"), "much.toml", folders, {.most_changes = 2, .free = {}});
  EXPECT_FALSE(advice.fits);
  EXPECT_GT(advice.lacks, 0_B);
  ASSERT_FALSE(advice.remedies.empty());
  const auto fits_with = [&](const std::vector<std::size_t>& values) {
    std::int64_t index = 0;
    for (std::size_t a = 0; a < values.size(); ++a)
      index =
          index * static_cast<std::int64_t>(advice.space.axes[a].values.size()) + static_cast<std::int64_t>(values[a]);
    const auto made = candidate(advice.space, index);
    const auto* scenario = std::get_if<Scenario>(&made);
    return scenario != nullptr && predict(*scenario).fits;
  };
  for (std::size_t r = 0; r < std::min<std::size_t>(advice.remedies.size(), 6); ++r) {
    std::vector<std::size_t> values = advice.space.values_of(advice.remedies[r].found.candidate);
    EXPECT_TRUE(fits_with(values));
    for (std::size_t& value : values) {
      if (value == 0) continue;
      const std::size_t kept = std::exchange(value, 0);
      EXPECT_FALSE(fits_with(values)) << advice.remedies[r].changes.front();
      value = kept;
    }
  }
  for (std::size_t r = 1; r < advice.remedies.size(); ++r) {
    const Remedy &before = advice.remedies[r - 1], &its = advice.remedies[r];
    EXPECT_LE(before.changes_training, its.changes_training);
    if (before.changes_training != its.changes_training) continue;
    EXPECT_LE(before.changes.size(), its.changes.size());
    if (before.changes.size() != its.changes.size()) continue;
    EXPECT_GE(before.found.figures.throughput, its.found.figures.throughput);
  }
  // One job in other words (all layers of a stage recomputed as a block of them) is there once.
  std::vector<Scenario> jobs;
  for (const Remedy& r : advice.remedies) {
    const Scenario job = same_job(std::get<Scenario>(candidate(advice.space, r.found.candidate)));
    EXPECT_EQ(std::count(jobs.begin(), jobs.end(), job), 0) << r.changes.front();
    jobs.push_back(job);
  }
}

// A small job that two of its axes cut.
constexpr const char* cut = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/a100-sxm-40g.toml"
gpus = 16
[model_override]
num_hidden_layers = 16
[layout]
tensor = 2
pipeline = 4
[train]
sequence_length = 4096
micro_batch = 2
global_batch = 32
hidden_dropout = 0.0
attention_dropout = 0.0
)";

TEST(Advise, TriesAllThatPlanSearchesAndThatTakesLess) {
  const TomlTable document = parse_toml(cut, "cut");
  const Scenario scenario = resolved_scenario(scenario_of(document, "cut.toml", folders));
  Space space{"cut", document, folders, files_of(document, "cut.toml", folders), {}};
  const auto jobs_of = [&](const Axis& axis) {
    space.axes = {axis};
    std::vector<std::pair<std::string, Scenario>> jobs;
    for (std::int64_t i = 0; i < space.size(); ++i) {
      const auto made = candidate(space, i);
      if (const auto* its = std::get_if<Scenario>(&made))
        jobs.emplace_back(axis.name + ": " + axis.values[static_cast<std::size_t>(i)].text, same_job(*its));
    }
    return jobs;
  };
  std::vector<Scenario> tried;
  for (const Axis& axis : changes_of(document, scenario).of_job)
    for (const auto& [text, job] : jobs_of(axis)) tried.push_back(job);
  SharedModels models;
  const Bytes now = exact_memory(scenario, models).device_upper;
  std::vector<std::string> less;
  for (const Axis& axis : default_axes(scenario))
    for (const auto& [text, job] : jobs_of(axis)) {
      if (exact_memory(job, models).device_upper >= now) continue;
      less.push_back(text);
      EXPECT_NE(std::count(tried.begin(), tried.end(), job), 0) << text;
    }
  EXPECT_GE(less.size(), 10) << fmt::format("{}", fmt::join(less, "\n"));
}

TEST(Advise, EnoughOfItselfIsNoPartOfASetInOtherWords) {
  // Stages of two layers: a block of two is every layer, which is enough as the stages are.
  const Advice now = advise(parse_toml(cut, "cut"), "cut.toml", folders, {.most_changes = 0, .free = 1_MiB});
  const Bytes free = 5632_MiB - (now.now.device_upper - now.required);
  const Advice advice = advise(parse_toml(cut, "cut"), "cut.toml", folders, {.most_changes = 2, .free = free});
  const auto has = [](const Remedy& r, const std::string& change) {
    return std::any_of(r.changes.begin(), r.changes.end(), [&](const std::string& c) { return c.starts_with(change); });
  };
  bool alone = false;
  for (const Remedy& r : advice.remedies) {
    alone |= r.changes == std::vector<std::string>{"recompute: none -> full, uniform of 1"};
    EXPECT_FALSE(has(r, "layout.pipeline: 4 -> 8") && has(r, "recompute: none -> full, block of 2"));
  }
  EXPECT_TRUE(alone);
}

struct Requested {
  std::string document;
  std::vector<std::string> of_job, of_training;  // axes
};

class Changing : public testing::TestWithParam<Requested> {};

TEST_P(Changing, WhatItMayChangeIsWhatReadersTake) {
  const TomlTable document = parse_toml(GetParam().document, "much");
  const Scenario scenario = resolved_scenario(scenario_of(document, "much.toml", folders));
  const Changes changes = changes_of(document, scenario);
  Space space{"much", document, folders, files_of(document, "much.toml", folders), {}};
  const auto names_of = [&](const std::vector<Axis>& axes) {
    std::vector<std::string> names;
    for (const Axis& axis : axes) {
      names.push_back(axis.name);
      space.axes = {axis};
      // The scenario itself, and of the others nothing that only a typing mistake would make no candidate.
      EXPECT_TRUE(std::holds_alternative<Scenario>(candidate(space, 0))) << axis.name;
      for (std::int64_t i = 1; i < space.size(); ++i) {
        const auto made = candidate(space, i);
        const auto* dropped = std::get_if<NoCandidate>(&made);
        const std::string reason = dropped == nullptr ? "" : dropped->reason;
        EXPECT_TRUE(reason.empty() || reason.find("divide") != std::string::npos ||
                    reason.find("multiple") != std::string::npos ||
                    (axis.name == "offload" && reason.ends_with("with the distributed optimizer only")) ||
                    (axis.name == "layout.order" && reason == "the same job as a combination before it"))
            << axis.name << ": " << reason;
      }
    }
    return names;
  };
  EXPECT_EQ(names_of(changes.of_job), GetParam().of_job);
  EXPECT_EQ(names_of(changes.of_training), GetParam().of_training);
}

constexpr std::array changing_names{"megatron", "pytorch", "fsdp_adapters", "fsdp2", "fsdp_many_batches"};

INSTANTIATE_TEST_SUITE_P(
    Runtimes, Changing,
    testing::Values(
        Requested{std::string(too_much) + "attention = \"unfused\"\n",
                  {"train.micro_batch", "recompute", "layout.sharding", "layout.tensor", "layout.pipeline", "stages",
                   "offload", "train.gradient_dtype", "runtime.allocator", "layout.order", "gpus", "train.attention"},
                  {"train.sequence_length"}},
        Requested{"model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 2\n[train]\n"
                  "sequence_length = 2048\nmicro_batch = 2\nattention = \"unfused\"\n[runtime]\nname = \"pytorch\"\n"
                  "switches.keep_outputs = true\n",
                  {"train.micro_batch", "train.recompute", "runtime.switches.use_cache",
                   "runtime.switches.keep_outputs", "optimizer kernels", "runtime.switches.gradient_as_bucket_view",
                   "runtime.switches.use_liger_kernel", "offload", "runtime.allocator", "train.attention"},
                  {"train.optimizer", "trained", "train.sequence_length", "train.master_dtype"}},
        Requested{"model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 2\n[adapter]\n"
                  "rank = 64\n[train]\nsequence_length = 2048\nmicro_batch = 1\nmaster_dtype = \"bf16\"\nrecompute = "
                  "\"full\"\n[runtime]\n"
                  "name = \"fsdp\"\nswitches.use_liger_kernel = true\n",
                  {"optimizer kernels", "runtime.switches.backward_prefetch", "runtime.allocator"},
                  {"train.optimizer", "quantization", "adapter.rank", "train.sequence_length"}},
        Requested{
            "model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 2\n[train]\n"
            "sequence_length = 2048\nmicro_batch = 1\nmaster_dtype = \"bf16\"\nrecompute = \"full\"\n[runtime]\nname "
            "= \"fsdp2\"\n",
            {"optimizer kernels", "runtime.switches.use_liger_kernel", "offload", "runtime.allocator"},
            {"trained", "train.sequence_length"}},
        Requested{"model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 2\n[train]\n"
                  "sequence_length = 2048\nmicro_batch = 1\nglobal_batch = 8\nmaster_dtype = \"bf16\"\nrecompute = "
                  "\"full\"\n[runtime]\nname = \"fsdp\"\nswitches.backward_prefetch = \"none\"\n",
                  {"optimizer kernels", "runtime.switches.sync_each_batch", "runtime.switches.use_liger_kernel",
                   "offload", "runtime.allocator"},
                  {"train.optimizer", "trained", "train.sequence_length"}}),
    [](const testing::TestParamInfo<Requested>& param) { return changing_names[param.index]; });

// 7B on a card of 24 GB: nothing that trains all of it does, adapters over few bits do.
TEST(Advise, AdaptersOverFewBitsFitWhereAllParametersDoNot) {
  constexpr const char* consumer = R"(model = "models/llama-2-7b.json"
cluster = "clusters/rtx-4090-24g.toml"
gpus = 1
[train]
sequence_length = 2048
micro_batch = 1
master_dtype = "bf16"
recompute = "full"
[runtime]
name = "pytorch"
)";
  const Advice advice = advise(parse_toml(consumer, "card"), "card.toml", folders, {.most_changes = 1, .free = {}});
  EXPECT_FALSE(advice.fits);
  const auto has = [&](const std::string& change) {
    return std::any_of(advice.remedies.begin(), advice.remedies.end(),
                       [&](const Remedy& r) { return r.changes == std::vector{change} && r.changes_training; });
  };
  EXPECT_TRUE(has("trained: all parameters -> QLoRA (nf4) of rank 16 on all linears"));
  for (const Remedy& r : advice.remedies) EXPECT_TRUE(r.changes_training) << r.changes.front();
}

/// A guide's job that runs out of memory, and what the guide says to do about it.
struct Guide {
  std::string name, document;
  std::vector<std::string> remedies;  // each enough by itself
};

class Guides : public testing::TestWithParam<Guide> {};

TEST_P(Guides, RemediesAreAmongTheAnswers) {
  const Advice advice =
      advise(parse_toml(GetParam().document, "guide"), "guide.toml", folders, {.most_changes = 1, .free = {}});
  EXPECT_FALSE(advice.fits);
  for (const std::string& change : GetParam().remedies)
    EXPECT_TRUE(
        std::any_of(advice.remedies.begin(), advice.remedies.end(),
                    [&](const Remedy& r) { return r.changes.size() == 1 && r.changes.front().starts_with(change); }))
        << change << '\n'
        << advice_text(advice);
}

// The guides' own models and devices. What they say of 8-bit optimizers, quantized bases and generation is not
// modelled.
std::string script(const char* train) {
  return std::string(
             "model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\n"
             "gpus = 1\n[runtime]\nname = \"pytorch\"\n[train]\n") +
         train;
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, Guides,
    testing::Values(
        // "Full fine-tuning of 7B on A100 80GB": not over fp32 parameters.
        Guide{"precision",
              script("sequence_length = 2048\nmicro_batch = 1\nrecompute = \"full\"\n"),
              {"train.master_dtype: fp32 -> bf16"}},
        // "Out of memory in forward: reduce batch size or sequence length, enable gradient checkpointing."
        Guide{"activations",
              script("sequence_length = 2048\nmicro_batch = 8\nmaster_dtype = \"bf16\"\n"),
              {"train.micro_batch: 8 -> 1", "train.recompute: none -> full", "train.sequence_length: 2048 -> 256"}},
        // "Use Flash Attention": what grows with the square of the sequence.
        Guide{"attention",
              script("sequence_length = 8192\nmicro_batch = 2\nmaster_dtype = \"bf16\"\nrecompute = \"full\"\n"
                     "attention = \"unfused\"\n"),
              {"train.attention: unfused -> auto"}},
        // The emergency playbook: shorter sequences, smaller micro-batches, more layers recomputed.
        Guide{"playbook",
              "model = \"models/qwen2.5-7b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
              "[layout]\ntensor = 4\n[train]\nsequence_length = 8192\nmicro_batch = 4\nglobal_batch = 32\n"
              "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 1\ncross_entropy = \"te\"\n"
              "hidden_dropout = 0.0\nattention_dropout = 0.0\n",
              {"train.sequence_length: 8192 -> 4096", "train.micro_batch: 4 -> 2", "recompute: full, block of 1 -> "}}),
    [](const testing::TestParamInfo<Guide>& param) { return param.param.name; });

TEST(Advise, GoesOnToLargerSetsOnlyWhereSmallerOnesAreNotEnough) {
  const auto advised = [](std::string text, std::optional<std::size_t> most) {
    return advise(parse_toml(text, "much"), "much.toml", folders, {.most_changes = most, .free = {}});
  };
  const Advice one = advised(too_much, 1), enough = advised(too_much, {});
  ASSERT_FALSE(one.remedies.empty());
  EXPECT_EQ(enough.remedies, one.remedies);
  EXPECT_EQ(enough.tried, one.tried);
  EXPECT_EQ(enough.not_tried, 2U);
  EXPECT_EQ(one.not_tried, 0U);
  EXPECT_NE(advice_text(enough).find("next: --changes 2 tries that many together"), std::string::npos);
  // On devices of 10 GB a single change is not.
  std::string small = too_much;
  small.replace(small.find("a100-sxm-40g"), 12, "rtx-3080-10g");
  const Advice more = advised(small, {});
  EXPECT_TRUE(std::ranges::none_of(more.remedies, [](const Remedy& r) { return r.changes.size() == 1; }));
  EXPECT_GT(more.tried, one.tried);
}

TEST(Advise, FreesAsMuchAsItIsAskedTo) {
  const std::string small = std::string(too_much) + "[layout]\ntensor = 4\n";
  const Advice fits = advise(parse_toml(small, "small"), "small.toml", folders, {});
  ASSERT_TRUE(fits.fits) << advice_text(fits);
  const Advice advice =
      advise(parse_toml(small, "small"), "small.toml", folders, {.most_changes = 1, .free = 2048_MiB});
  ASSERT_FALSE(advice.remedies.empty());
  for (const Remedy& r : advice.remedies)
    EXPECT_GE(advice.required - r.found.figures.device_upper, 2048_MiB) << r.changes.front();
  // One stage has nothing that its embedding could be counted to: no change of a byte frees any.
  EXPECT_LE(advice.required, advice.now.device_upper);
  for (const Remedy& r : advice.remedies) EXPECT_EQ(r.changes.front().find("count_embedding"), std::string::npos);
}

TEST(Capacity, TheLargestValueFitsAndTheNextDoesNot) {
  const std::string text = std::string(too_much) + R"([layout]
tensor = 2
[space]
train.sequence_length = [2048, 4096, 8192, 16384, 32768]
recompute = [{train.recompute = "none"}, {train.recompute = "full"}]
[capacity]
largest = "train.sequence_length"
by = "recompute"
)";
  const Study study = study_of(parse_toml(text, "study"), "study.toml", folders);
  const std::vector<Limit> found = limits(study);
  ASSERT_EQ(found.size(), 2);
  for (const Limit& limit : found) {
    ASSERT_TRUE(limit.largest);
    std::vector<std::size_t> values = study.space.values_of(limit.best->candidate);
    EXPECT_EQ(values[study.grows], *limit.largest);
    EXPECT_EQ(values[*study.by], limit.by);
    const auto made = candidate(study.space, limit.best->candidate);
    EXPECT_EQ(figures_of(predict(std::get<Scenario>(made))), limit.best->figures);
    if (*limit.largest + 1 == study.space.axes[study.grows].values.size()) continue;
    ASSERT_TRUE(limit.next);
    const auto next = candidate(study.space, limit.next->candidate);
    EXPECT_FALSE(predict(std::get<Scenario>(next)).fits);
  }
  EXPECT_EQ(capacity_json(study, found), capacity_json(study, limits(study)));
}

// Three ranks share no head: that is no lack of memory.
TEST(Capacity, AJobThatCannotBeIsSaidToBeRefused) {
  const std::string text = std::string(too_much) + R"([space]
layout.tensor = [2, 3]
train.sequence_length = [1024, 2048]
recompute = [{train.recompute = "full"}]
[capacity]
largest = "train.sequence_length"
by = "layout.tensor"
)";
  const Study study = study_of(parse_toml(text, "study"), "study.toml", folders);
  const std::vector<Limit> found = limits(study);
  ASSERT_EQ(found.size(), 2);
  EXPECT_TRUE(found[0].largest);
  EXPECT_EQ(found[0].refused, "");
  EXPECT_FALSE(found[1].largest);
  EXPECT_NE(found[1].refused, "");
  EXPECT_NE(capacity_text(study, found).find("refused, 3: " + found[1].refused), std::string::npos)
      << capacity_text(study, found);
  const auto rows = nlohmann::json::parse(capacity_json(study, found))["limits"];
  EXPECT_TRUE(rows[0]["refused"].is_null());
  EXPECT_EQ(rows[1]["refused"], found[1].refused);
}

TEST(Capacity, CsvQuotesValuesThatHaveCommas) {
  const std::string text = std::string(too_much) + R"([space]
gpus = [4]
recompute = [{train.recompute = "none"}, {train.recompute = "full", train.recompute_layers = 1}]
[capacity]
largest = "gpus"
by = "recompute"
)";
  const Study study = study_of(parse_toml(text, "study"), "study.toml", folders);
  EXPECT_EQ(capacity_csv(study, {{1, 0, {}, {}, {}}}),
            "by,largest,candidate,tokens_per_s_per_device,peak_device_upper_bytes,next_lacks_bytes,list_ended\n"
            "\"recompute = \"\"full\"\", recompute_layers = 1\",4,,,,,true\n");
}

TEST(Capacity, ShippedStudiesAreRead) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source / "scenarios/studies")) {
    EXPECT_NO_THROW((void)read_study(entry.path(), source / "scenarios")) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 1);
}

TEST(Capacity, NamesAxesOfItsSpace) {
  const std::string text = std::string(too_much) + "[space]\ngpus = [4]\n[capacity]\nlargest = \"gpu\"\n";
  try {
    (void)study_of(parse_toml(text, "bad.toml"), "bad.toml", folders);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"gpus\"?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tidemark::tests::advise_test
