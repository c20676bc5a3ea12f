#include <filesystem>
#include <string>
#include <variant>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// What modules of transformers, PEFT and LitGPT do by release and by model, told of the programs of small models.

namespace tidemark::tests::dated_modules_test {
namespace {

struct Requested {
  std::string model, versions, switches{}, train{}, tables{}, runtime = "pytorch";
  int gpus = 1;
};

Scenario parsed(const Requested& a) {
  return parse_scenario(
      fmt::format("model = \"models/{}.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = {}\n{}\n"
                  "[model_override]\nnum_hidden_layers = 1\nvocab_size = 1024\n"
                  "[train]\nsequence_length = 256\nmicro_batch = 1\n{}\n"
                  "[runtime]\nname = \"{}\"\nversions = {{ {} }}\n[runtime.switches]\nuse_cache = false\n{}\n",
                  a.model, a.gpus, a.tables, a.train, a.runtime, a.versions, a.switches),
      "job.toml", folders);
}

std::string problems(const Requested& a) {
  try {
    (void)parsed(a);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

Program program_of(const Requested& a) {
  const Job job(parsed(a));
  return lower_role(job.lowering(), job.roles.front());
}

std::int64_t allocated_in_forward(const Program& program) {
  std::int64_t bytes = 0;
  Mark now;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op)) now = *mark;
    if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr && now.step == 1 && now.phase == Phase::Forward)
      bytes += alloc->size.count();
  }
  return bytes;
}

// modeling_mistral.py MistralFlashAttention2 of 4.47 repeats keys and values; modeling_llama.py does not. From 4.48 on
// they have one function.
TEST(FlashClasses, RepeatKeysAndValuesInMistralsAlone) {
  const auto forward = [](const std::string& model, const std::string& release) {
    return allocated_in_forward(program_of({.model = model,
                                            .versions = fmt::format("transformers = \"{}\"", release),
                                            .train = "attention = \"flash\"\nmaster_dtype = \"bf16\""}));
  };
  constexpr std::int64_t of_all_heads = 2 * 256 * 32 * 128 * 2;  // keys and values of 256 tokens in bf16
  EXPECT_EQ(forward("mistral-7b-v0.1", "4.47") - forward("mistral-7b-v0.1", "4.48"), of_all_heads);
  EXPECT_EQ(forward("llama-3.1-8b", "4.47"), forward("llama-3.1-8b", "4.48"));
}

// litgpt/model.py RMSNorm: `x_normed.to(dtype) * weight` up to 0.4.5, `(x_normed * weight.float()).to(dtype)` then.
TEST(LitGpt, WeightsNormsInFp32FromRelease046On) {
  const auto forward = [](const std::string& release) {
    return allocated_in_forward(program_of({.model = "llama-2-7b",
                                            .versions = fmt::format("litgpt = \"{}\"", release),
                                            .switches = "modules = \"litgpt\"",
                                            .train = "master_dtype = \"bf16\""}));
  };
  // Of two norms in the layer and the last one: weighted rows are fp32, and so is a copy of the weight.
  constexpr std::int64_t norms = 3, hidden = 4096, rows = 256;
  EXPECT_EQ(forward("0.4.6") - forward("0.4.5"), norms * ((4 - 2) * rows * hidden + 4 * hidden));
  EXPECT_EQ(forward("0.3.1"), forward("0.4.5"));
  EXPECT_EQ(forward("0.4.11"), forward("0.4.6"));
  EXPECT_NE(problems({.model = "llama-2-7b", .versions = "litgpt = \"0.3.0\""}).find("older than 0.3.1"),
            std::string::npos);
}

// litgpt/model.py CausalSelfAttention.forward: the variable `qkv` holds the joint projection until attention is over.
// Of grouped queries nothing else does: keys and values are copied for each query's head.
TEST(LitGpt, HoldsTheJointProjectionUntilAttentionIsOver) {
  struct Case {
    std::string model;
    std::int64_t heads;  ///< of queries, keys and values together
  };
  for (const auto& [model, heads] : {Case{"llama-2-70b", 64 + 2 * 8}, Case{"llama-2-7b", 3 * 32}}) {
    const Program program = program_of({.model = model,
                                        .versions = "litgpt = \"0.4.11\"",
                                        .switches = "modules = \"litgpt\"",
                                        .train = "master_dtype = \"bf16\""});
    BufferId joint;
    bool held = false, attended = false;
    for (const Op& op : program.ops) {
      const auto* alloc = std::get_if<Alloc>(&op);
      if (alloc != nullptr && alloc->size == Bytes{256 * heads * 128 * 2} && !joint.valid())
        joint = alloc->buffer, held = true;
      if (const auto* freed = std::get_if<Free>(&op)) held = held && freed->buffer != joint;
      const auto* launch = std::get_if<Launch>(&op);
      attended = launch != nullptr && program[launch->kernel].operation == Operation::Attention;
      if (attended) break;
    }
    EXPECT_TRUE(held) << model;
    EXPECT_TRUE(attended) << model;
  }
}

// PEFT makes adapters fp32 (autocast_adapter_dtype), as an fp32 base is; what is gathered in bf16 of both is no matter
// to shards, gradients and moments.
TEST(AdaptersOfAnFp32Base, AreKeptInFp32WhereTheyAreGatheredInBf16) {
  constexpr std::int64_t ranks = 2, trained = 2 * 8 * (4096 + 4096) / ranks;  // q_proj and v_proj
  for (const std::string runtime : {"fsdp", "fsdp2"})
    for (const std::string dtype : {"", "dtype = \"fp32\""}) {
      const Program program = program_of({.model = "llama-2-7b",
                                          .versions = "",
                                          .train = "master_dtype = \"fp32\"",
                                          .tables = "[adapter]\n" + dtype,
                                          .runtime = runtime,
                                          .gpus = ranks});
      std::int64_t kept = 0, moments = 0;
      std::int32_t step = 0;
      for (const Op& op : program.ops) {
        if (const auto* mark = std::get_if<Mark>(&op)) step = mark->step;
        const auto* alloc = std::get_if<Alloc>(&op);
        if (alloc == nullptr || alloc->space != MemorySpace::Device) continue;
        if (step == 0 && alloc->category == Category::Adapters) kept += alloc->size.count();
        if (step == 1 && alloc->category == Category::OptimizerMoments) moments += alloc->size.count();
      }
      if (runtime == "fsdp2") {  // of FSDP1 each is whole for a moment
        EXPECT_EQ(kept, 4 * trained);
      }
      EXPECT_EQ(moments, 2 * 4 * trained) << runtime;
    }
}

// mm and addmm save weight.t(), of which pinned memory takes rows: Copy.cu makes a contiguous copy on the device.
TEST(SaveOnCpu, CopiesTransposedWeightsOnTheDeviceFirst) {
  const auto forward = [](bool pins) {
    return allocated_in_forward(program_of({.model = "llama-2-7b",
                                            .versions = "",
                                            .switches = pins ? "pin_memory = true" : "pin_memory = false",
                                            .train = "master_dtype = \"bf16\"",
                                            .tables = "[offload]\nactivations = \"cpu\""}));
  };
  constexpr std::int64_t hidden = 4096, ffn = 11008, vocabulary = 1024;
  constexpr std::int64_t weights = 2 * (4 * hidden * hidden + 3 * hidden * ffn + vocabulary * hidden);
  EXPECT_GE(forward(true) - forward(false), weights);
}

}  // namespace
}  // namespace tidemark::tests::dated_modules_test
