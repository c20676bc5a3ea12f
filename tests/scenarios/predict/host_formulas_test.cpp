// What DeepSpeed's documentation and its papers say of the host's memory, beside what is predicted: docs/hosts.md.
#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/predict/prediction.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::host_formulas_test {
namespace {

// A training, and the bytes a parameter that a node's host holds of it by formulas.
struct Published {
  const char* name;
  const char* model;
  int gpus, stage;
  bool parameters;  // on the host, as the optimizer is
  bool pins = true;
};

constexpr std::array published{
    Published{"Llama-3.1 8B, stage 2, optimizer", "llama-3.1-8b", 8, 2, false},
    Published{"the same, stage 3", "llama-3.1-8b", 8, 3, false},
    Published{"the same, and parameters", "llama-3.1-8b", 8, 3, true},
    Published{"the same, pageable", "llama-3.1-8b", 8, 3, true, false},
    Published{"Llama-2 7B on two GPUs, stage 2, optimizer", "llama-2-7b", 2, 2, false},
    Published{"the same, stage 3, and parameters", "llama-2-7b", 2, 3, true},
    Published{"Llama-3.1 70B on two nodes, stage 3, both", "llama-3.1-70b", 16, 3, true},
};

// docs/code-docs/source/memory.rst of DeepSpeed, with zero.Init, before its factor of 1.5 "to be conservative";
// `estimate_zero2_model_states_mem_needs` has the ranks of all nodes instead of those of one.
double documented(const Published& job, int on_node) {
  if (job.stage == 2) return std::max(4 * on_node, 16);
  return (job.parameters ? 18.0 : 16.0) * on_node / job.gpus;
}

// The same page on pinned memory: of stage 3, fp32 gradients, and fp16 parameters where these are there; nothing is
// said of stage 2.
std::string documented_pinned(const Published& job, int on_node) {
  if (job.stage == 2) return "";
  const double of_gradients = job.pins ? 4.0 : 0.0;
  return fmt::format("{:.1f}", (of_gradients + (job.parameters ? 2.0 : 0.0)) * on_node / job.gpus);
}

// ZeRO-Offload (Ren et al. 2021): fp32 parameters, momentum, variance and fp16 gradients. ZeRO-Infinity (Rajbhandari et
// al. 2021): all model states, fp16 parameters and fp32 gradients among them.
double of_papers(const Published& job, int on_node) { return (job.parameters ? 20.0 : 14.0) * on_node / job.gpus; }

Prediction predicted(const Published& job) {
  const char* const pageable = job.pins ? "" : "offload_optimizer = { device = \"cpu\", pin_memory = false }\n";
  return predict(scenario_of_text(
      fmt::format("model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = {}\n[layout]\n"
                  "sharding = \"zero{}\"\n[train]\nsequence_length = 2048\nmicro_batch = 1\nrecompute = \"full\"\n"
                  "[offload]\noptimizer = \"cpu\"\n{}[runtime]\nname = \"deepspeed\"\n[runtime.switches]\n{}",
                  job.model, job.gpus, job.stage, job.parameters ? "parameters = \"cpu\"\n" : "", pageable)));
}

// Of the first node, in bytes for each parameter of the model.
struct Held {
  double all = 0, pinned = 0;
  std::array<double, category_count> by_category{};
};

Held held(const Prediction& p) {
  Held held;
  const auto parameters = static_cast<double>(p.parameters);
  for (const RankGroup& group : p.groups)
    for (const Rank rank : group.ranks) {
      if (rank.value >= p.scenario.cluster.node.devices) continue;
      held.all += static_cast<double>(group.memory.host.bytes.count()) / parameters;
      held.pinned += static_cast<double>(group.memory.pinned.peak.count()) / parameters;
      for (std::size_t c = 0; c < category_count; ++c)
        held.by_category[c] +=
            static_cast<double>(group.memory.host.composition[static_cast<Category>(c)].count()) / parameters;
    }
  return held;
}

std::string table() {
  std::string all =
      "| training | documented | times 1.5 | papers | here | when | pinned, documented | here | master | moments | "
      "gradients | parameters | rounded up, kept | other |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Published& job : published) {
    const Prediction p = predicted(job);
    const int on_node = std::min(job.gpus, p.scenario.cluster.node.devices);
    const Held its = held(p);
    const auto of = [&](Category category) { return its.by_category[static_cast<std::size_t>(category)]; };
    const std::array named{Category::OptimizerMaster, Category::OptimizerMoments, Category::Gradients,
                           Category::Parameters, Category::Fragmentation};
    double other = its.all;
    std::string parts;
    for (const Category category : named) {
      other -= of(category);
      parts += fmt::format("{:.1f} | ", of(category));
    }
    all += fmt::format("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {} | {} | {:.1f} | {}{:.1f} |\n", job.name,
                       documented(job, on_node), 1.5 * documented(job, on_node), of_papers(job, on_node), its.all,
                       name(p.groups.front().memory.host.at.mark.phase), documented_pinned(job, on_node), its.pinned,
                       parts, std::max(other, 0.0));
  }
  return all;
}

TEST(HostFormulas, ThePageHasThemBesideWhatIsPredicted) {
  std::ifstream file(source / "docs/hosts.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string rows = table();
  EXPECT_NE(page.str().find(rows), std::string::npos) << "docs/hosts.md should say\n" << rows;
}

TEST(HostFormulas, CountLessThanWhatIsHeld) {
  for (const Published& job : published) {
    const Prediction p = predicted(job);
    const int on_node = std::min(job.gpus, p.scenario.cluster.node.devices);
    EXPECT_GE(held(p).all, of_papers(job, on_node) - 0.01) << job.name;
    if (job.stage == 3) {
      EXPECT_GE(held(p).all, documented(job, on_node) - 0.01) << job.name;
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::host_formulas_test
