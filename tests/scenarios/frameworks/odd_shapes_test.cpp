// Jobs at the edges of what can be asked: they have an answer, or are refused with place and reason.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::odd_shapes_test {
namespace {

Prediction predicted(const std::string& text) { return predict(parse_scenario(text, "odd.toml", folders)); }

std::string refusal(const std::string& text) {
  try {
    (void)predicted(text);
    return "none";
  } catch (const InputError& error) {
    return error.what();
  }
}

// 64 rows of every matrix, and more ranks than that: the last ones have no row of any parameter.
std::string sharded(const std::string& runtime, int ranks, const std::string& more) {
  return fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = {0}
[model_override]
num_hidden_layers = 2
hidden_size = 64
intermediate_size = 64
num_attention_heads = 4
num_key_value_heads = 4
head_dim = 16
vocab_size = 64
[layout]
sharding = "zero3"
[train]
sequence_length = 128
micro_batch = 1
global_batch = {0}
[runtime]
name = "{1}"
{2})",
                     ranks, runtime, more);
}

TEST(OddShapes, ARankWithoutARowUpdatesNothing) {
  for (const char* runtime : {"fsdp2", "torchtitan"})
    for (const char* switches : {"", "switches = { foreach = false }", "switches = { fused = true }"}) {
      if (std::string(runtime) == "torchtitan" && *switches != '\0') continue;
      const Prediction some = predicted(sharded(runtime, 64, switches)),
                       none = predicted(sharded(runtime, 72, switches));
      EXPECT_TRUE(some.completed && none.completed) << runtime << switches;
      const auto last = std::ranges::find_if(
          none.groups, [](const RankGroup& group) { return std::ranges::count(group.ranks, Rank{71}) > 0; });
      ASSERT_NE(last, none.groups.end());
      // Which would hold moments by then.
      EXPECT_LT(last->memory.final_allocated, none.groups.front().memory.final_allocated) << runtime << switches;
    }
}

// All ranks meet in the norm's sum, those without rows too.
TEST(OddShapes, ClippingMeetsRanksWithoutRows) {
  for (const char* optimizer : {"", ", foreach = false", ", fused = true"})
    EXPECT_TRUE(
        predicted(sharded("fsdp2", 72, fmt::format("switches = {{ max_grad_norm = 1.0{} }}", optimizer))).completed)
        << optimizer;
}

std::string narrow(int intermediate, int tensor) {
  return fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = {1}
[model_override]
num_hidden_layers = 2
intermediate_size = {0}
[layout]
tensor = {1}
[train]
sequence_length = 128
micro_batch = 1
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)",
                     intermediate, tensor);
}

TEST(OddShapes, AMatrixOneWideIsAMatrix) {
  const Prediction whole = predicted(narrow(1, 1)), cut = predicted(narrow(8, 8));
  EXPECT_TRUE(whole.completed && cut.completed);
  EXPECT_EQ(predicted(narrow(2, 1)).parameters - whole.parameters, 2 * 3 * 4096);
}

TEST(OddShapes, LatentsProjectedAgainWithUnfusedPositions) {
  for (const char* modules : {"\"mla_up_proj\"", "\"mla_up_proj\", \"core_attn\""})
    for (const char* layout : {"tensor = 1\nexpert = 8", "tensor = 2\nsequence_parallel = true\nexpert = 4"}) {
      const std::string text = fmt::format(R"(model = "models/deepseek-v3.json"
cluster = "clusters/h200-sxm-141g.toml"
gpus = 8
[model_override]
num_hidden_layers = 2
first_k_dense_replace = 1
num_nextn_predict_layers = 0
[layout]
{}
[train]
sequence_length = 1024
micro_batch = 1
recompute = "selective"
recompute_modules = [{}]
[runtime]
name = "megatron"
switches = {{ no-rope-fusion = true }}
)",
                                           layout, modules);
      EXPECT_TRUE(predicted(text).completed) << layout << modules;
    }
}

std::string litgpt(int sequence) {
  return fmt::format(R"(model = "models/llama-2-7b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 1
[model_override]
num_hidden_layers = 2
[train]
sequence_length = {}
micro_batch = 1
[runtime]
name = "pytorch"
switches = {{ modules = "litgpt" }}
)",
                     sequence);
}

TEST(OddShapes, LitGptStopsBeyondTheModelsPositions) {
  EXPECT_EQ(refusal(litgpt(4096)), "none");
  EXPECT_EQ(refusal(litgpt(8192)),
            "odd.toml:7:19: error: sequence_length = 8192 is more than the 4096 positions of the model, at which "
            "LitGPT stops\n"
            "  hint: max_position_embeddings in [model_override] says how many there are");
}

std::string with_attention(const std::string& attention, const std::string& variables) {
  return narrow(64, 1).insert(narrow(64, 1).find("micro_batch"),
                              attention.empty() ? "" : "attention = \"" + attention + "\"\n") +
         "[runtime.environment]\n" + variables;
}

// As --attention-backend sets them (core/models/common/language_module/language_module.py).
TEST(OddShapes, VariablesOfTheAttentionAreThoseThatMegatronSets) {
  EXPECT_EQ(refusal(with_attention("unfused", "NVTE_FUSED_ATTN = \"0\"\n")), "none");
  EXPECT_EQ(refusal(with_attention("unfused", "NVTE_FUSED_ATTN = 0\nNVTE_FLASH_ATTN = 0\nNVTE_UNFUSED_ATTN = 1\n")),
            "none");
  EXPECT_EQ(refusal(with_attention("flash", "NVTE_FUSED_ATTN = \"0\"\n")), "none");
  EXPECT_EQ(refusal(with_attention("", "NVTE_FUSED_ATTN = \"1\"\nNVTE_FLASH_ATTN = \"1\"\n")), "none");
  EXPECT_EQ(refusal(with_attention("", "NVTE_FUSED_ATTN = \"0\"\n")),
            "odd.toml:18:19: error: NVTE_FUSED_ATTN = \"0\": Megatron-LM sets it to 1 for attention = \"auto\", and "
            "rejects other values\n  hint: leave it out, or set attention = \"flash\" in [train]");
  EXPECT_EQ(refusal(with_attention("fused", "NVTE_FLASH_ATTN = \"1\"\nNVTE_UNFUSED_ATTN = \"1\"\n")),
            "odd.toml:19:19: error: NVTE_FLASH_ATTN = \"1\": Megatron-LM sets it to 0 for attention = \"fused\", and "
            "rejects other values\n  hint: leave it out, or set attention = \"auto\" in [train]");
}

std::string of_405b(std::int64_t micro_batches) {
  return fmt::format(R"(model = "models/llama-3.1-405b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2048
[layout]
tensor = 8
sequence_parallel = true
pipeline = 2
sharding = "zero1"
[train]
sequence_length = 8192
micro_batch = 1
global_batch = {}
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)",
                     128 * micro_batches);
}

// Before any of it is made; what the hint names is let in.
TEST(OddShapes, ProgramsThatTakeMinutesAreRefusedByTheirNumberOfOps) {
  const std::string said = refusal(of_405b(2048));
  EXPECT_NE(said.find("2048 micro-batches make programs of 64 million ops and more"), std::string::npos) << said;
  EXPECT_NE(said.find("hint: memory repeats from micro-batch to micro-batch: global_batch = "), std::string::npos)
      << said;
  const std::size_t at = said.find("global_batch = ") + 15;
  const std::int64_t would_do = std::stoll(said.substr(at));
  EXPECT_GT(would_do, 0);
  EXPECT_NO_THROW((void)resolved_scenario(parse_scenario(of_405b(would_do / 128), "odd.toml", folders)));
  EXPECT_NO_THROW((void)resolved_scenario(parse_scenario(of_405b(16), "odd.toml", folders)));
}

}  // namespace
}  // namespace tidemark::tests::odd_shapes_test
