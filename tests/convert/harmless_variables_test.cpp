#include "scenarios/convert/shell/harmless_variables.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::harmless_variables_test {
namespace {

bool harmless(const std::string& script) {
  return scenarios::is_harmless(script, "LR", [](std::string_view flag) { return flag == "lr" || flag == "min-lr"; });
}

TEST(HarmlessVariables, AreGivenToFlagsOfNoMatterAlone) {
  EXPECT_TRUE(harmless("LR=1e-4\ntorchrun pretrain_gpt.py --lr $LR --min_lr=${LR}\n"));
  EXPECT_TRUE(harmless(
      "export LR=1e-4\n# $LR counts\necho \"it is $LR\"\nARGS=(\n  --lr \"$LR\" \\\n  --min-lr \\\n ${LR}\n)\n"));
  EXPECT_TRUE(harmless("LR=1\nRATE=$LR\nOPTIONS=\" --lr $RATE \"\n"));
  EXPECT_TRUE(harmless("LR=1\nRATE=\"$LR\"\nRATE=${RATE}\nrun --lr $RATE"));
}

TEST(HarmlessVariables, AreNotTestedCountedOrGivenToOthers) {
  EXPECT_FALSE(harmless("LR=1\nrun --lr $LR --num-layers $LR"));
  EXPECT_FALSE(harmless("LR=1\nif [ $LR = 1 ]; then run; fi"));
  EXPECT_FALSE(harmless("LR=1\nN=$((LR * 2))\nrun --lr $LR"));
  EXPECT_FALSE(harmless("LR=1\nRATE=$LR\nrun --lr $RATE --num-layers $RATE"));
  EXPECT_FALSE(harmless("LR=1\nOPTIONS=\" --num-layers $LR \"\n"));
  EXPECT_FALSE(harmless("LR=1\nrun $LR"));
  EXPECT_FALSE(harmless("LR=1\necho \"lr: $LR\" > config.yaml\n"));
  EXPECT_FALSE(harmless("LR=1\nexport LR\nrun --lr $LR")) << "which others may read";
}

}  // namespace
}  // namespace tidemark::tests::harmless_variables_test
