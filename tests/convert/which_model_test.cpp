#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "tests/convert/recipes.hpp"

// Which model a script of Megatron's trains, where several have its shape.

namespace tidemark::tests::which_model_test {
namespace {

const std::string start = "torchrun --nproc_per_node 8 pretrain_gpt.py ";
const std::string rest =
    " --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --seq-length 4096 "
    "--position-embedding-type rope --group-query-attention --num-query-groups 8 --micro-batch-size 1 --bf16 "
    "--attention-dropout 0 --hidden-dropout 0 ";
const std::string of_70b = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64" + rest;
const std::string of_8b = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32" + rest;

ConvertRequest requested_of(const std::string& arguments) {
  ConvertRequest requested;
  requested.files = {"job.sh"};
  requested.texts = {{"job.sh", start + arguments}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  return requested;
}

// "models/llama-3.1-70b.json of 128256", or what is wrong.
std::string model_of(const std::string& arguments) {
  try {
    const Converted converted = convert(requested_of(arguments));
    const Scenario scenario = scenario_of(converted, shipped_data());
    return scenario.model.name + " of " + std::to_string(scenario.model.vocabulary);
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(WhichModel, TheTokenizersNameDecidesThenRotaryBase) {
  EXPECT_EQ(model_of(of_70b + "--tokenizer-model meta-llama/Llama-3.1-70B --rotary-base 500000"),
            "llama-3.1-70b of 128256");
  EXPECT_EQ(model_of(of_70b + "--tokenizer-model meta-llama/Llama-2-70b-hf"), "llama-2-70b of 32000");
  EXPECT_EQ(model_of(of_70b + "--tokenizer-model /data/tokenizer --rotary-base 500000"), "llama-3.1-70b of 128256");
  EXPECT_EQ(model_of(of_70b + "--tokenizer-model /data/tokenizer --rotary-base 10000"), "llama-2-70b of 32000");
  EXPECT_EQ(model_of(of_70b + "--tokenizer-type Llama2Tokenizer --tokenizer-model t.model"), "llama-2-70b of 32000");
  // The vocabulary is the tokenizer's, whatever model of that shape is shipped.
  EXPECT_EQ(model_of(of_8b + "--tokenizer-model mistralai/Mistral-7B-v0.1 --rotary-base 10000").substr(12),
            " of 32000");
  EXPECT_EQ(model_of(of_70b + "--vocab-size 50000").substr(11), " of 50000") << "which of them does not matter";
}

TEST(WhichModel, AFileOfLayersIsTheModelWhateverWidthIsSaid) {
  const std::string file = (shipped_data() / "models/llama-3.3-nemotron-super-49b.json").string();
  const std::string flag = "--heterogeneous-layers-config-path ";
  EXPECT_EQ(model_of(of_70b + flag + file), "llama-3.3-nemotron-super-49b of 128256");
  EXPECT_NE(model_of(of_8b + flag + file).find("disagrees with the model's num_hidden_layers"), std::string::npos)
      << model_of(of_8b + flag + file);
  for (const Remark& its : convert(requested_of(of_70b + flag + file)).remarks)
    EXPECT_NE(its.kind, RemarkKind::NotExpressed) << its.what;
  const Converted gone = convert(requested_of(of_70b + flag + "/nowhere/config.json"));
  const auto reported = std::ranges::find(gone.remarks, RemarkKind::NotExpressed, &Remark::kind);
  ASSERT_NE(reported, gone.remarks.end());
  EXPECT_NE(reported->why.find("name a nemotron-nas config.json as the model"), std::string::npos) << reported->why;
}

// The figures are of the larger vocabulary, within the bound of one that nobody says.
TEST(WhichModel, ATieThatChangesMemoryIsBounded) {
  EXPECT_EQ(model_of(of_70b + "--tokenizer-model /data/tokenizer"), "llama-3.1-70b of 128256");
  const Converted its = convert(requested_of(of_70b + "--tokenizer-model /data/tokenizer"));
  const auto reported = std::ranges::find(its.remarks, RemarkKind::Bounded, &Remark::kind);
  ASSERT_NE(reported, its.remarks.end());
  EXPECT_EQ(reported->what, "vocab-size");
  EXPECT_EQ(reported->bound, "vocabulary");
  EXPECT_EQ(
      reported->why,
      "models/llama-3.1-70b.json and models/llama-2-70b.json have this shape, and vocabularies of 128256 and 32000 "
      "tokens; which of them is not said, and the figures are of the former: put --vocab-size into the script, or "
      "name one with --model");
}

}  // namespace
}  // namespace tidemark::tests::which_model_test
