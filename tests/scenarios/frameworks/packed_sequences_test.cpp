#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// packed_sequences: what is read, and what follows from it.

namespace tidemark::tests::packed_sequences_test {
namespace {

Scenario parsed(const std::string& train, const std::string& model = "llama-2-7b",
                const std::string& runtime = "pytorch", const std::string& cluster = "a100-sxm-80g") {
  const std::string text = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ngpus = 1\n"
      "[model_override]\nnum_hidden_layers = 2\nvocab_size = 4096\n"
      "[train]\nsequence_length = 2048\nmicro_batch = 2\nmaster_dtype = \"bf16\"\n{}\n[runtime]\nname = \"{}\"\n"
      "[runtime.switches]\nuse_cache = false\n",
      model, cluster, train, runtime);
  return parse_scenario(text, "job.toml", folders);
}

std::string problems(const std::string& train, const std::string& model = "llama-2-7b",
                     const std::string& runtime = "pytorch") {
  try {
    (void)parsed(train, model, runtime);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

Bytes allocated(const std::string& train) { return predict(parsed(train)).highest().memory.allocated.bytes; }

TEST(PackedSequences, IsReadAndChecked) {
  const Scenario read = parsed("packed_sequences = 4");
  EXPECT_EQ(read.train.packed, 4);
  EXPECT_EQ(read.train.sequences(), 8);
  EXPECT_EQ(read.train.tokens_of_sequence(), 512);
  EXPECT_NE(problems("packed_sequences = 3").find("it does not divide sequence_length = 2048"), std::string::npos);
  EXPECT_NE(problems("packed_sequences = 2", "gpt2-xl").find("models of type gpt2"), std::string::npos);
  EXPECT_NE(problems("packed_sequences = 2", "llama-2-7b", "megatron").find("under megatron"), std::string::npos);
}

// FlashAttention takes them for what they are, so that a row of many costs little more than rows of one; a mask is of
// all tokens by all tokens, and each layer keeps a bias of that size.
TEST(PackedSequences, FlashAttentionTellsThemApartAndMasksAreLarge) {
  const Bytes rows = allocated("attention = \"flash\"");
  const Bytes flash = allocated("attention = \"flash\"\npacked_sequences = 4");
  EXPECT_LT(flash.count(), rows.count() + (64 << 20));
  const Bytes masked = allocated("packed_sequences = 4");
  constexpr std::int64_t tokens = 4096, layers = 2;
  constexpr std::int64_t random_state = layers * 2 * 512;  // blocks, which either kernel has in its own way
  EXPECT_GE(masked.count(), flash.count() + layers * 2 * tokens * tokens - random_state);
}

TEST(PackedSequences, TheKernelThatTakesAMaskIsNamed) {
  const auto says = [&](const std::string& cluster, const std::string& kernel) {
    const Prediction p = predict(parsed("packed_sequences = 4", "llama-2-7b", "pytorch", cluster));
    return std::ranges::any_of(p.assumptions, [&](const std::string& a) {
      return a.starts_with("attention: " + kernel + ", with a bias of tokens x tokens");
    });
  };
  EXPECT_TRUE(says("a100-sxm-80g", "the memory-efficient kernel"));
  EXPECT_TRUE(says("h100-sxm-80g", "cuDNN's kernel"));
}

TEST(PackedSequences, AttentionTakesTheTimeOfShortSequences) {
  const auto step = [](const std::string& train) { return predict(parsed(train)).step; };
  const StepPrediction long_ones = step("attention = \"flash\"");
  const StepPrediction short_ones = step("attention = \"flash\"\npacked_sequences = 16");
  EXPECT_LT(short_ones.step, long_ones.step);
  EXPECT_LT(short_ones.mfu, 1.05 * long_ones.mfu);
}

}  // namespace
}  // namespace tidemark::tests::packed_sequences_test
