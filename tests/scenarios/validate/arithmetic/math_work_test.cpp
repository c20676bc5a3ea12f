#include "scenarios/validate/arithmetic/math_work.hpp"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::math_work_test {
namespace {

using namespace literals;

TEST(MathWork, IsThatOfKernelsAndOfWhatTheyTouch) {
  const MathWork work = work_of(parse_program(R"(alloc b0 1024 parameters s0 a
alloc b1 2048 parameters s0 b
alloc b2 512 temporaries s0 c
alloc b3 33554432 workspaces s0 workspace
launch s0 matmul(scale=1) b0:fp32[2x3] b1:fp32[3x4] - - -> b2:fp32[2x4] ~ b3
launch s0 matmul(scale=1) b0:fp32[2x3] b1:fp32[3x4] - - -> b2:fp32[2x4] ~ b3
free b2
alloc b4 256 temporaries s0 d
launch s0 dropout(probability=0.5) b0:fp32[2x3] -> b1:fp32[2x3] b4:bool[2x3]
)"));
  EXPECT_EQ(work.multiply_adds, 2 * 2 * 3 * 4);
  EXPECT_EQ(work.elements, 2 * (6 + 12 + 8) + 3 * 6 + 3 * 6);  // what is drawn counts three times
  EXPECT_EQ(work.memory, 4 * Bytes{1024 + 2048 + 512});
}

Scenario of_two_ranks(int batch) {
  return parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 1
hidden_size = 64
intermediate_size = 128
num_attention_heads = 4
num_key_value_heads = 4
vocab_size = 512
[layout]
tensor = 2
[train]
sequence_length = 32
micro_batch = 1
global_batch = {}
[runtime]
name = "megatron"
)",
                                    batch),
                        "small.toml", folders);
}

TEST(MathWork, OfAJobGrowsWithItsBatch) {
  const MathWork once = work_of(of_two_ranks(8)), often = work_of(of_two_ranks(64));
  EXPECT_GT(often.multiply_adds, 7.5 * once.multiply_adds);
  EXPECT_LT(often.multiply_adds, 8.1 * once.multiply_adds);
  EXPECT_EQ(often.memory, once.memory);
}

TEST(MathWork, IsDoneUnaskedWhereItIsLittle) {
  EXPECT_EQ(too_much_arithmetic({.multiply_adds = 1e9, .elements = 1e8, .memory = 1_GiB}), "");
  EXPECT_EQ(too_much_arithmetic({.multiply_adds = 1e12, .elements = 1e9, .memory = 2_GiB}),
            "they would take some 60 s of a core, more than the 10 s that are spent without --math");
  EXPECT_EQ(too_much_arithmetic({.multiply_adds = 1e9, .elements = 1e8, .memory = 2_GiB}),
            "they would take 2.0 GiB, more than the 1 GiB that are used without --math");
}

}  // namespace
}  // namespace tidemark::tests::math_work_test
