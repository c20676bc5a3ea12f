#include "scenarios/estimate/rules.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

// What the guides work out by hand, by their own rules.

namespace tidemark::tests::rules_test {
namespace {

constexpr double gb = 1e9, mib = 1 << 20;

TEST(EstimateRules, TablesOfBytesGiveTheGuidesSevenBillion) {
  EXPECT_EQ(rules::parameters(7e9, rules::bytes_per_parameter(rules::Format::Fp32)), 28 * gb);
  EXPECT_EQ(rules::parameters(7e9, rules::bytes_per_parameter(rules::Format::Fp16)), 14 * gb);
  EXPECT_EQ(rules::parameters(7e9, rules::bytes_per_parameter(rules::Format::Int8)), 7 * gb);
  EXPECT_EQ(rules::parameters(7e9, rules::bytes_per_parameter(rules::Format::Int4)), 3.5 * gb);
  EXPECT_EQ(rules::gradients(7e9, 2), 14 * gb);
  EXPECT_EQ(rules::optimizer_states(7e9, rules::State::Adam), 56 * gb);
  EXPECT_EQ(rules::optimizer_states(7e9, rules::State::Momentum), 28 * gb);
  EXPECT_EQ(rules::optimizer_states(7e9, rules::State::None), 0);
  EXPECT_EQ(rules::optimizer_states(7e9, rules::State::Adam8bit), 7 * gb);
}

TEST(EstimateRules, ActivationsAreOneHiddenStateOfEachLayer) {
  const rules::Activations of{.batch = 1, .sequence = 2048, .hidden = 4096, .layers = 32, .bytes_each = 2};
  EXPECT_EQ(rules::hidden_states(of), 512 * mib);
  EXPECT_EQ(rules::activations(of, 8), 4096 * mib);
  EXPECT_EQ(rules::k_of(of, 4096 * mib), 8);
  EXPECT_EQ(rules::attention_matrix(1, 32, 2048, 2), 256 * mib);
}

TEST(EstimateRules, CheckpointingLeavesAShareOrASquareRoot) {
  const rules::Range left = rules::left_by_checkpointing(100, rules::saved_by_checkpointing);
  EXPECT_DOUBLE_EQ(left.low, 30);
  EXPECT_DOUBLE_EQ(left.high, 50);
  EXPECT_DOUBLE_EQ(rules::square_root_checkpointed(100, 16), 25);
}

TEST(EstimateRules, CacheIsAsWideAsTheResidualStream) {
  EXPECT_EQ(rules::kv_cache(28, 3584, 8192, 1, 2), 3288334336.0);
}

TEST(EstimateRules, DivisionsAndOverheadAreOfWhatIsGiven) {
  EXPECT_EQ(rules::divided(84 * gb, 4, 2), 10.5 * gb);
  EXPECT_EQ(rules::sharded(56 * gb, 8), 7 * gb);
  EXPECT_EQ(rules::overhead(100), (rules::Range{10, 20}));
}

TEST(EstimateRules, ShortcutGivesAnotherNumberThanItsComment) {
  EXPECT_DOUBLE_EQ(rules::shortcut_gb(7), 120.75);
  EXPECT_EQ(rules::shortcut_of_7_as_commented, 73.6);
  EXPECT_DOUBLE_EQ(rules::shortcut_gb(7, 2, rules::State::Momentum), 88.55);
}

}  // namespace
}  // namespace tidemark::tests::rules_test
