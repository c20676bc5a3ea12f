#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/golden_rows.hpp"

// Forty trainings that seeds chose, over all families and modes of plain PyTorch (tests/ground_truth/drawn.py).

namespace tidemark::tests::golden {
namespace {

// What docs/pytorch.md claims.
constexpr double equal_share = 0.95;
constexpr double allocated_worst = 0.005, reserved_median = 0.002, reserved_worst = 0.04;

class Drawn : public testing::Test {
 protected:
  static void SetUpTestSuite() { score_ = new DrawnScore(score(drawn_recordings())); }
  static void TearDownTestSuite() { delete score_; }
  static const DrawnScore& of_all() { return *score_; }
  static std::string rows();

 private:
  static inline DrawnScore* score_ = nullptr;
};

std::string Drawn::rows() {
  std::string out;
  for (std::size_t i = 0; i < of_all().names.size(); ++i)
    out += fmt::format("{:26} tensors {:+}, allocated {:+.3f} %, reserved {:+.2f} %\n", of_all().names[i],
                       of_all().off_at_peak[i].count(), 100 * of_all().allocated[i], 100 * of_all().reserved[i]);
  return out;
}

TEST_F(Drawn, AreForty) { EXPECT_EQ(of_all().names.size(), 40U); }

TEST_F(Drawn, TensorsAtThePeakAreEqual) {
  EXPECT_GE(static_cast<double>(of_all().equal()), equal_share * static_cast<double>(of_all().names.size())) << rows();
}

TEST_F(Drawn, PlainRunsAllocateAsMuch) { EXPECT_LE(errors(of_all().allocated).worst, allocated_worst) << rows(); }

TEST_F(Drawn, PlainRunsReserveAsMuch) {
  EXPECT_LE(errors(of_all().reserved).median, reserved_median) << rows();
  EXPECT_LE(errors(of_all().reserved).worst, reserved_worst) << rows();
}

}  // namespace
}  // namespace tidemark::tests::golden
