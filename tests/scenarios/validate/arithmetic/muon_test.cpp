// Megatron's Muon: matrices that are whole on a rank, or gathered, are made orthogonal as on one rank.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::muon_test {
namespace {

class ArithmeticOfMuon : public testing::TestWithParam<MathCase> {};

TEST_P(ArithmeticOfMuon, IsThatOfOneRank) { expect_what_one_rank_computes(GetParam()); }

MathCase dense(std::string name, int gpus, std::string layout, const std::string& switches = "") {
  MathCase made{.name = std::move(name), .gpus = gpus, .layout = std::move(layout), .train = "optimizer = \"muon\""};
  made.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  made.runtime += switches;
  return made;
}

MathCase experts(std::string name, int gpus, std::string layout, const std::string& switches = "") {
  MathCase made = dense(std::move(name), gpus, std::move(layout), switches);
  made.model = "mixtral-8x7b";
  made.override_keys += "\nnum_local_experts = 4";
  return made;
}

const std::string tensors = "tensor = 2\nsequence_parallel = true\n", zero1 = "sharding = \"zero1\"\n",
                  dealt = "\nswitches.no-use-layer-wise-param-layout = true",
                  nesterov = "\nswitches.muon-nesterov = true";

INSTANTIATE_TEST_SUITE_P(Layouts, ArithmeticOfMuon,
                         testing::Values(dense("whole", 2, "data = 2", nesterov), dense("gathered", 2, tensors),
                                         dense("layer_wise", 4, tensors + zero1), dense("dealt_out", 4, zero1, dealt),
                                         dense("in_a_pipeline", 4, "pipeline = 2\n" + zero1),
                                         dense("joint_projections", 2, zero1, "\nswitches.muon-no-split-qkv = true"),
                                         experts("experts_whole", 2, "expert = 2"),
                                         experts("experts_layer_wise", 4, "expert = 2\n" + zero1),
                                         experts("experts_dealt_out", 4, "expert = 2\n" + zero1, dealt)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::muon_test
