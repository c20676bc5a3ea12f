#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/fake_recordings.hpp"
#include "tests/golden/golden_rows.hpp"

// Trainings that seeds chose, over all families and modes of plain PyTorch (tests/ground_truth/drawn.py).

namespace tidemark::tests::golden::drawn_test {
namespace {

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

// docs/pytorch.md claims these to the byte: no tolerance.
TEST_F(Drawn, TensorsAtThePeakAreEqual) {
  EXPECT_EQ(of_all().names.size(), 60U);
  EXPECT_EQ(of_all().equal(), of_all().names.size()) << rows();
}

TEST_F(Drawn, PlainRunsAllocateAsMuch) { EXPECT_EQ(errors(of_all().allocated).worst, 0) << rows(); }

TEST_F(Drawn, PlainRunsReserveAsMuch) { EXPECT_EQ(errors(of_all().reserved).worst, 0) << rows(); }

}  // namespace
}  // namespace tidemark::tests::golden::drawn_test
