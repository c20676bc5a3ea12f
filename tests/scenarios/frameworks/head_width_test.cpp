#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// Heads that are no multiple of 8 elements wide, as OpenLLaMA-3B's of 100.

namespace tidemark::tests::head_width_test {
namespace {

std::string problems(const std::string& runtime, const std::string& attention, int gpus = 1) {
  const std::string text = fmt::format(
      "model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = {}\n"
      "[model_override]\nnum_hidden_layers = 1\nhidden_size = 800\nnum_attention_heads = 8\nnum_key_value_heads = 8\n"
      "[train]\nsequence_length = 256\nmicro_batch = 1\n{}\n[runtime]\nname = \"{}\"\n",
      gpus, attention.empty() ? "" : fmt::format("attention = \"{}\"", attention), runtime);
  try {
    (void)parse_scenario(text, "job.toml", folders);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

TEST(HeadWidth, IsPaddedByPyTorchAndLeftAsItIsByProducts) {
  for (const std::string attention : {"", "fused", "unfused"}) EXPECT_EQ(problems("pytorch", attention), "no problem");
  EXPECT_EQ(problems("fsdp2", "fused", 2), "no problem");
  EXPECT_EQ(problems("megatron", "unfused"), "no problem");
}

TEST(HeadWidth, IsRefusedWithItsAttention) {
  EXPECT_EQ(
      problems("pytorch", "flash"),
      "job.toml:12:13: error: attention = \"flash\": 100 per head, and FlashAttention and cuDNN take multiples of "
      "8\n  hint: \"fused\" would do, for which PyTorch pads heads, or \"unfused\"");
  EXPECT_NE(problems("megatron", "").find("attention = \"auto\": 100 per head"), std::string::npos);
  EXPECT_NE(problems("torchtitan", "").find("100 per head"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::head_width_test
