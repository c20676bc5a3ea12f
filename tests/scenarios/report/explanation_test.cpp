#include "scenarios/report/explanation.hpp"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/format.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/kernels_text.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// One public run, line by line: twelve layers of Llama-3 70B on eight B200, tensor 2 with sequence parallelism,
// data 4 with sharded optimizer state, 4096 tokens. Its ranks measured 62136.2534 to 62136.4019 MiB (SimuMax,
// docs/b200/b200_release_v1.2_summary.json); what that is made of follows from the sizes of the model.

namespace tidemark::tests::explanation_test {
namespace {

using nlohmann::json;

const Job& job() {
  static const Job worked_example(read_scenario(
      source / "tests/golden/simumax_b200/llama3_70b_tp2_pp1_dp4_l12_mbc4_cef.toml", source / "scenarios"));
  return worked_example;
}

constexpr RequestedMoment allocated_peak{RequestedMoment::Kind::AllocatedPeak};

struct Tensors {
  std::size_t count = 0;
  double mib = 0;  ///< of blocks, together
};

// The live tensors at the allocated peak, layers taken together.
std::map<std::string, Tensors> live_by_role() {
  std::map<std::string, Tensors> found;
  const json j = json::parse(live_json(job(), Rank{0}, allocated_peak));
  for (const json& t : j["tensors"]) {
    std::string label = t["tensor"];
    if (label.starts_with("layers.")) label = "layers.*" + label.substr(label.find('.', 7));
    Tensors& tensors = found[label];
    ++tensors.count;
    tensors.mib += t["block_bytes"].get<double>() / (1 << 20);
  }
  return found;
}

TEST(WorkedExample, AllocatedIsWithinOneMebibyteOfWhatWasMeasured) {
  for (const RankGroup& group : predict(job().scenario).groups)
    EXPECT_NEAR(static_cast<double>(group.memory.allocated.bytes.count()) / (1 << 20), 62136.25, 1.0);
}

TEST(WorkedExample, ThePeakIsInTheHeadsBackward) {
  const json at = json::parse(live_json(job(), Rank{0}, allocated_peak))["at"];
  EXPECT_EQ(at["op"], "head");
  EXPECT_EQ(at["phase"], "backward");
  EXPECT_EQ(at["step"], 2);
}

struct Line {
  const char* label;
  std::size_t count;
  double mib;  ///< each
};

TEST(WorkedExample, EveryLineOfItsTableIsATensor) {
  const std::map<std::string, Tensors> live = live_by_role();
  const Line lines[] = {
      {"parameter_buffer", 1, 11800.390625},    // 2N
      {"gradient_buffer", 1, 23600.78125},      // 4N
      {"dummy_gradient.5120x8192", 1, 80},      // qkv
      {"dummy_gradient.8192x4096", 1, 64},      // proj
      {"dummy_gradient.28672x8192", 1, 448},    // fc1
      {"dummy_gradient.8192x14336", 1, 224},    // fc2
      {"dummy_gradient.64256x8192", 1, 1004},   // head
      {"layers.*.attention.norm.out", 12, 32},  // one layer: 536.516 with its input …
      {"layers.*.attention.q", 12, 32},
      {"layers.*.attention.k", 12, 4},
      {"layers.*.attention.v", 12, 4},
      {"layers.*.attention.context", 12, 32},
      {"layers.*.attention.lse", 12, 0.5},
      {"layers.*.attention.add.out", 12, 32},
      {"layers.*.mlp.norm.out", 12, 32},
      {"layers.*.mlp.fc1.out", 12, 224},
      {"layers.*.mlp.swiglu", 12, 112},
      {"layers.*.attention.norm.rstd", 12, 1.0 / 128},
      {"layers.*.mlp.norm.rstd", 12, 1.0 / 128},
      {"embedding.out", 1, 32},          // … which is this for the first layer,
      {"layers.*.mlp.add.out", 12, 32},  // this for the others, and the last one the final norm's
      {"final_norm.out", 1, 32},
      {"final_norm.rstd", 1, 1.0 / 128},
      {"head.logits", 1, 502},
      {"head.input_gradient", 1, 64},
      {"head.input_gradient_scattered", 1, 32},
      {"global_memory_buffer.mpu", 1, 64},
      {"workspace.gemm", 1, 32 + 1.0 / 1024},
      {"workspace.cublas.forward_thread", 1, 8.125},
      {"workspace.cublas.autograd_thread", 1, 8.125},
      {"rotary.table", 1, 2},
  };
  for (const Line& line : lines) {
    ASSERT_TRUE(live.contains(line.label)) << line.label;
    const Tensors& found = live.at(line.label);
    EXPECT_EQ(found.count, line.count) << line.label;
    EXPECT_NEAR(found.mib, static_cast<double>(line.count) * line.mib, 0.01) << line.label;
  }
}

TEST(WorkedExample, OptimizerStateIsTwelveBytesPerShardedParameter) {
  double mib = 0;
  for (const auto& [label, tensors] : live_by_role())
    if (label.ends_with(".main") || label.ends_with(".exp_avg") || label.ends_with(".exp_avg_sq")) mib += tensors.mib;
  EXPECT_NEAR(mib, 17700.586, 0.01);
}

TEST(WorkedExample, NothingElseOfSizeIsLive) {
  // What the table's residual of 0.049 MiB stands for: batches, masks, scalars, rounding.
  double small = 0, all = 0;
  const json j = json::parse(live_json(job(), Rank{0}, allocated_peak));
  for (const json& t : j["tensors"]) {
    const double mib = t["block_bytes"].get<double>() / (1 << 20);
    all += mib;
    const std::string label = t["tensor"];
    if (label.starts_with("runtime.") || label.starts_with("embedding.mask") || label.ends_with("rng_state"))
      small += mib;
  }
  EXPECT_LT(small, 0.1);
  EXPECT_NEAR(all, 62136.25, 1.0);
}

TEST(WorkedExample, ItsTextShowsTheLines) {
  const std::string text = live_text(job(), Rank{0}, allocated_peak, Detail::ByRole);
  const auto shows = [&](const std::string& label, const std::string& number) {
    std::size_t at = 0;
    while ((at = text.find("  " + label + " ", at)) != std::string::npos) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      if (line.find(number) != std::string::npos) return true;
      ++at;
    }
    return false;
  };
  EXPECT_TRUE(shows("parameters", "11800.39 MiB")) << text;
  EXPECT_TRUE(shows("gradients", "23600.78 MiB"));
  EXPECT_TRUE(shows("optimizer_master", "5900.20 MiB"));
  EXPECT_TRUE(shows("optimizer_moments", "11800.39 MiB"));
  EXPECT_TRUE(shows("saved_activations", "6502.20 MiB"));  // twelve layers and the final norm
  EXPECT_TRUE(shows("logits_loss", "502.00 MiB"));
  EXPECT_TRUE(shows("layers.*.mlp.fc1.out", "2688.00 MiB"));
  EXPECT_TRUE(shows("dummy_gradient.64256x8192", "1004.00 MiB"));
  EXPECT_TRUE(shows("head.logits", "502.00 MiB"));
  EXPECT_TRUE(shows("workspace.cublas.autograd_thread", "8.12 MiB"));
  EXPECT_TRUE(shows("rotary.table", "2.00 MiB"));
  const std::string everything = live_text(job(), Rank{0}, allocated_peak, Detail::Everything);
  EXPECT_NE(everything.find("layers.11.mlp.fc1.out"), std::string::npos);
  EXPECT_EQ(everything.find("layers.*"), std::string::npos);
}

TEST(Explanation, LiveTensorsSumToAllocatedAtAnyMoment) {
  const MemoryRecord memory = [&] {
    const Program program = lower_role(job().lowering(), job().roles.front());
    return replay(program, job().costs.of(Rank{0}), {});
  }();
  const auto allocated = [](const RequestedMoment& at) {
    const json j = json::parse(live_json(job(), Rank{0}, at));
    std::int64_t sum = 0;
    for (const json& t : j["tensors"]) sum += t["block_bytes"].get<std::int64_t>();
    EXPECT_EQ(sum, j["allocated_bytes"]);
    return sum;
  };
  EXPECT_EQ(allocated(allocated_peak), memory.allocated.bytes.count());
  EXPECT_EQ(allocated({RequestedMoment::Kind::End}), memory.final_allocated.count());
  EXPECT_LE(allocated({RequestedMoment::Kind::DevicePeak}), memory.device.bytes.count());
  EXPECT_EQ(allocated({RequestedMoment::Kind::OpIndex, 0}), 0);
  EXPECT_THROW(live_json(job(), Rank{0}, {RequestedMoment::Kind::OpIndex, 1'000'000'000}), InputError) << "no such op";
}

TEST(Explanation, JsonHasItsKeys) {
  const json j = json::parse(live_json(job(), Rank{3}, {}));
  EXPECT_EQ(j["schema"], "tidemark.live/1");
  EXPECT_EQ(j["rank"], 3);
  EXPECT_TRUE(j["at"]["time_s"].is_null());
  for (const std::string key : {"tensor", "category", "requested_bytes", "block_bytes", "allocated_at_op"})
    EXPECT_TRUE(j["tensors"][0].contains(key)) << key;
}

TEST(Explanation, ProgramsAreInTheirTextForm) {
  const std::string text = program_text(job(), Rank{0});
  EXPECT_TRUE(text.starts_with("mark construction 0 -1 start_up\ncreate context\n")) << text.substr(0, 100);
  const Program parsed = parse_program(text);
  EXPECT_EQ(sim::text(parsed), text);
}

TEST(Explanation, EveryStageOfTheFlowHasAText) {
  EXPECT_TRUE(model_text(job().scenario).starts_with("resized llama-3.1-70b: "))
      << model_text(job().scenario).substr(0, 100);
  EXPECT_EQ(schedule_text(job()), "stage 0: embedding, layers 0-11, head and loss\n  F0 B0 F1 B1 F2 B2 F3 B3\n");
  EXPECT_EQ(communicators_text(job(), Rank{5}),
            "g0 world: 8 ranks, rank 5 is with 0-7\n"
            "g1 tensor: 2 ranks, rank 5 is with 4-5\n"
            "g2 data: 4 ranks, rank 5 is with 1, 3, 5, 7\n"
            "g3 optimizer_instance: 8 ranks, rank 5 is with 0-7\n"
            "g4 model_parallel: 2 ranks, rank 5 is with 4-5\n");
  const std::string costs = costs_text(job(), Rank{0});
  for (const std::string row : {"context", "modules", "nccl_kernels", "communicator world", "communicator tensor"})
    EXPECT_NE(costs.find(row), std::string::npos) << row;
}

TEST(Explanation, AKernelThatWorksOnManyTensorsNamesAFewOfThem) {
  const Scenario replicated = parse_scenario(
      "model = \"models/gpt2.json\"\ncluster = \"clusters/a100-sxm-40g.toml\"\ngpus = 1\n[train]\n"
      "sequence_length = 128\nmicro_batch = 1\nglobal_batch = 1\n",
      "replicated.toml", folders);
  std::istringstream lines(kernels_text(Job(replicated), Rank{0}));
  bool cut = false, counted = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LT(line.size(), 700) << line;
    // Of the gradients of 148 parameters four are named.
    counted |= line.find(" norm fp32") != std::string::npos && line.find(" and 144 others -> ") != std::string::npos;
    if (line.find(" adam(") == std::string::npos) continue;
    cut |= line.find(" others -> ") != std::string::npos && line.ends_with(" others");
  }
  EXPECT_TRUE(cut);
  EXPECT_TRUE(counted);
}

TEST(Explanation, KernelsAreThoseOfTheLastStepCostliestFirst) {
  const std::string text = kernels_text(job(), Rank{0});
  EXPECT_NE(text.find("in the last step of rank 0"), std::string::npos);
  EXPECT_NE(text.find(job().scenario.cluster.device.efficiency.source), std::string::npos);
  // Twelve layers and four micro-batches: the widest product is launched 48 times for each pass.
  const std::size_t first = text.find("matmul(scale=1)");
  ASSERT_NE(first, std::string::npos);
  const std::string row = text.substr(text.rfind('\n', first) + 1, first - text.rfind('\n', first) - 1);
  EXPECT_NE(row.find("  48  "), std::string::npos) << row;
  EXPECT_NE(row.find("% of peak"), std::string::npos) << row;
  EXPECT_NE(row.find("gemm x sustained"), std::string::npos) << row;
  double last = 100;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  while (std::getline(lines, line) && line.find(" others") == std::string::npos) {
    const double share = std::stod(line);
    EXPECT_LE(share, last) << line;
    last = share;
  }
}

Scenario scenario_of(const std::string& model, const std::string& more = "") {
  return parse_scenario(fmt::format("model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n"
                                    "[train]\nsequence_length = 256\nmicro_batch = 1\n{}",
                                    model, more),
                        "job.toml", folders);
}

TEST(Explanation, ModelsOfExpertsSayHowMuchATokenGoesThrough) {
  const std::string text = model_text(scenario_of("mixtral-8x7b"));
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_TRUE(
      first.ends_with(" operations, 675 parameters with 46702792704 elements, 12879925248 of them active for a "
                      "token"))
      << first;
  EXPECT_NE(text.find("\n  layers 0-31: attention of 32 heads of 128, 8 of keys and values; 2 of 8 experts of 14336: "
                      "1451270144 parameters each\n"),
            std::string::npos);
  EXPECT_NE(text.find("\nparameter layers.31.mlp.experts.7.fc2.weight 4096x14336 bf16\n"), std::string::npos);
}

// The function that scales their gradient saves the loss and launches nothing.
TEST(Explanation, LossesOfRoutersAreSavedWhereTheyAreMade) {
  for (const char* loss : {"moe-aux-loss-coeff", "moe-z-loss-coeff"}) {
    const std::string text =
        model_text(scenario_of("mixtral-8x7b", fmt::format("[runtime.switches]\n{} = 0.02\n", loss)));
    const std::size_t made = text.find("loss", text.find("layers.0.mlp.router"));
    ASSERT_NE(made, std::string::npos);
    EXPECT_NE(text.find("  saves layers.0.mlp.router", made), std::string::npos) << loss;
  }
}

// Without anything to reach, no table of communicators; its last column is words, and is not pushed to the right.
TEST(Explanation, CostsAreOfWhatThereIs) {
  const Job one(scenario_of("llama-3.1-8b"));
  const std::string text = costs_text(one, Rank{0});
  EXPECT_EQ(text.find("communicator"), std::string::npos) << text;
  EXPECT_NE(text.find("  source\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("   source\n"), std::string::npos) << text;
}

// ---- the model that is shown is the one that runs ------------------------------------------------------------------

// What `--show model` names.
struct ShownModel {
  std::vector<std::string> operators;
  std::set<std::string> parameters;
  std::vector<std::string> tensors, saved;
};

ShownModel shown(const std::string& text) {
  ShownModel model;
  std::istringstream lines(text);
  std::string line, word;
  std::getline(lines, line);  // how many there are
  while (std::getline(lines, line)) {
    if (line.starts_with("  ")) continue;  // the list of layers
    std::istringstream words(line);
    words >> word;
    if (word == "parameter" || word == "buffer") {
      words >> word;
      model.parameters.insert(word);
      continue;
    }
    model.operators.push_back(word.substr(0, word.size() - 1));
    bool saves = false;
    while (words >> word) {
      if (word == "saves") saves = true;
      if (word.find('@') != std::string::npos) (saves ? model.saved : model.tensors).push_back(word);
    }
  }
  return model;
}

Job job_of(const std::string& model, int layers, const std::string& rest) {
  const std::string layers_key = model == "gpt2" || model == "santacoder" ? "n_layer" : "num_hidden_layers";
  return Job(parse_scenario(fmt::format("model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = "
                                        "1\n[model_override]\n{} = {}\n{}",
                                        model, layers_key, layers, rest),
                            "job.toml", folders));
}

std::vector<Job> jobs_of_all_runtimes() {
  const std::string train = "[train]\nsequence_length = 256\nmicro_batch = 2\nglobal_batch = 4\n";
  const std::string pytorch = "[runtime]\nname = \"pytorch\"\n";
  const std::string full = "recompute = \"full\"\n";
  std::vector<Job> jobs;
  for (const std::string model :
       {"llama-3.1-8b", "gpt2", "gemma-2-9b", "gpt-neox-20b", "phi-3-mini-4k", "santacoder"}) {
    jobs.push_back(job_of(model, 2, train + pytorch));
    jobs.push_back(job_of(model, 2, train + "attention = \"unfused\"\nmaster_dtype = \"bf16\"\n" + pytorch));
    if (model != "santacoder") jobs.push_back(job_of(model, 2, train));
  }
  jobs.push_back(job_of("llama-3.1-8b", 2, train + full + pytorch));
  jobs.push_back(job_of("llama-3.1-8b", 2, train + full + pytorch + "[runtime.switches]\nuse_reentrant = true\n"));
  jobs.push_back(job_of("gpt2", 2, train + "attention = \"unfused\"\n"));
  return jobs;
}

TEST(Explanation, TheModelShownIsTheOneThatRuns) {
  for (const Job& job : jobs_of_all_runtimes()) {
    SCOPED_TRACE(job.scenario.model.name + " with " + job.scenario.runtime.name);
    const Program program = parse_program(program_text(job, Rank{0}));
    const ShownModel model = shown(model_text(job.scenario));
    ASSERT_FALSE(model.operators.empty());
    std::set<std::string> names;
    for (const Label& label : program.labels) names.insert(label.text);
    for (const std::string& op : model.operators) EXPECT_TRUE(names.contains(op)) << op;

    static constexpr std::string_view own = ".parameter";
    std::map<std::string, BufferId> tensors;  // as "name@b7"
    std::vector<std::size_t> freed(static_cast<std::size_t>(program.buffers), program.ops.size());
    std::size_t backward = program.ops.size();
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (const auto* mark = std::get_if<Mark>(&program.ops[i]); mark != nullptr && mark->phase == Phase::Backward)
        backward = std::min(backward, i);
      if (const auto* free = std::get_if<Free>(&program.ops[i])) freed[free->buffer.index()] = i;
      const auto* alloc = std::get_if<Alloc>(&program.ops[i]);
      if (alloc == nullptr) continue;
      std::string name = program[alloc->label];
      tensors.emplace(fmt::format("{}@b{}", name, alloc->buffer.value), alloc->buffer);
      if (alloc->category != Category::Parameters) continue;
      if (name.ends_with(own)) name.resize(name.size() - own.size());
      EXPECT_TRUE(model.parameters.contains(name)) << name;
    }
    for (const std::string& tensor : model.tensors) EXPECT_TRUE(tensors.contains(tensor)) << tensor;
    for (const std::string& tensor : model.saved) {
      ASSERT_TRUE(tensors.contains(tensor)) << tensor;
      EXPECT_GT(freed[tensors.at(tensor).index()], backward) << tensor;
    }
    EXPECT_FALSE(model.saved.empty());
  }
}

// Tied embeddings on four stages: only the ends have a part in the embedding's communicator.
TEST(Explanation, CommunicatorsHoldRanksOfTheJobOnly) {
  Scenario s = job().scenario;
  s.model.tied_embeddings = true;
  s.layout.pipeline = 4;
  s.layout.data = 1;
  s.train.global_batch = 8;
  const Job tied(s);
  for (std::int32_t rank = 0; rank < 8; ++rank)
    for (const std::string beyond : {" 8", " 9", " 10", " 11", "-8", "-9"}) {
      const std::string text = communicators_text(tied, Rank{rank});
      for (std::size_t at = 0; at < text.size();) {
        const std::string line = text.substr(at, text.find('\n', at) - at);
        at += line.size() + 1;
        const std::string members = line.substr(line.find(" is with"));
        EXPECT_EQ((members + ",").find(beyond + ","), std::string::npos) << line;
      }
    }
}

TEST(Format, Numbers) {
  EXPECT_EQ(mib(Bytes{1536 << 10}), "1.50 MiB");
  EXPECT_EQ(gib(Bytes{3LL << 29}), "1.50 GiB");
  EXPECT_EQ(rank_list({Rank{0}, Rank{1}, Rank{2}, Rank{5}, Rank{7}, Rank{8}}), "0-2, 5, 7-8");
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(table({{"a", "bb"}, {"ccc", "d"}}), "  a    bb\n  ccc   d\n");
}

}  // namespace
}  // namespace tidemark::tests::explanation_test
