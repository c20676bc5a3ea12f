#include "scenarios/cluster/calibration_reader.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/text/kernels_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/small_job.hpp"

namespace tidemark::tests::calibration_reader_test {
namespace {

namespace fs = std::filesystem;
using namespace literals;

const fs::path inputs = fs::path(TIDEMARK_SOURCE_DIR) / "tests" / "bad_inputs" / "files";

Device h100() { return read_cluster(inputs / "cluster.toml").device; }

TEST(CalibrationReader, ReadsOneLineOfEachKind) {
  const Calibration c = parse_calibration(read_text(inputs / "calibration.toml"), "calibration.toml", h100());
  EXPECT_EQ(c.source, "made up");
  ASSERT_EQ(c.kernels.size(), 3u);
  EXPECT_EQ(c.kernels[0], (Calibration::Kernel{Operation::Matmul, DType::BF16, {1, 4096, 4096, 4096}, 215_us}));
  EXPECT_EQ(c.kernels[1],
            (Calibration::Kernel{Operation::Attention, DType::BF16, {1, 32, 4096, 4096, 128, 1}, 500_us}));
  EXPECT_EQ(c.collectives, (std::vector{Calibration::Collective{CollectiveKind::AllReduce, 8, 1, 64_MiB, 400_us}}));
  EXPECT_EQ(c.messages, (std::vector{Calibration::Message{true, 8_MiB, 200_us}}));
  EXPECT_EQ(c.copies, (std::vector{Calibration::Copy{false, 64_MiB, 1'200_us}}));
}

TEST(CalibrationReader, AFractionIsOfThePeakThatBoundsTheKernel) {
  const auto time = [](const std::string& kernel) {
    return parse_calibration("source = \"x\"\nkernels = [" + kernel + "]\n", "c.toml", h100()).kernels.front().time;
  };
  // 2 x 4096^3 operations at half of 989.4 TFLOP/s; 64 MiB at half of 3352 GB/s.
  EXPECT_NEAR(static_cast<double>(
                  time("{kind = \"matmul\", dtype = \"bf16\", m = 4096, n = 4096, k = 4096, fraction = 0.5}").count()),
              277.822e6, 1e4);
  EXPECT_NEAR(
      static_cast<double>(time("{kind = \"rms_norm\", dtype = \"bf16\", bytes = \"64 MiB\", fraction = 0.5}").count()),
      40.041e6, 1e4);
}

class CalibratedScenario : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-calibration-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  [[nodiscard]] Scenario read(const std::string& text) const {
    return parse_scenario(text, folder_ / "job.toml", {folder_, folders.data_root});
  }

  fs::path folder_;
};

const std::string slow_products =
    "source = \"test\"\nkernels = [{kind = \"matmul\", dtype = \"bf16\", m = 4096, n = 14336, k = 4096, time = \"1 "
    "s\"}]\n";

TEST_F(CalibratedScenario, AClusterNamesAFileBesideItAndAScenarioAnotherOne) {
  write("times.toml", slow_products);
  write("others.toml", "source = \"others\"\n");
  const std::string h100_text = read_text(folders.data_root / "clusters/h100-sxm-80g.toml");
  write("cluster.toml", "calibration = \"times.toml\"\n" + h100_text);
  std::string job = small_job;
  job.replace(job.find("clusters/h100-sxm-80g.toml"), std::string("clusters/h100-sxm-80g.toml").size(), "cluster.toml");
  EXPECT_EQ(read(job).cluster.calibration->source, "test");
  EXPECT_EQ(read("calibration = \"others.toml\"\n" + job).cluster.calibration->source, "others");
  EXPECT_FALSE(read(small_job).cluster.calibration.there());
}

// Of Llama-3.1 8B's MLP: gate and up of two tensor-parallel ranks are one product of 4096 x 14336.
TEST_F(CalibratedScenario, StepsTakeMeasuredTimesAndExplainSaysSo) {
  write("times.toml", slow_products);
  const Scenario plain = read(small_job), calibrated = read("calibration = \"times.toml\"\n" + std::string(small_job));
  const Prediction before = predict(plain), after = predict(calibrated);
  EXPECT_GT(after.step.step, before.step.step + Duration{picoseconds_per_second});
  EXPECT_EQ(after.groups.front().memory.peak_device_upper, before.groups.front().memory.peak_device_upper);
  const std::string kernels = kernels_text(Job(calibrated), Rank{0});
  EXPECT_NE(kernels.find("times.toml: "), std::string::npos);
  EXPECT_NE(kernels.find("% of that time measured"), std::string::npos);
  EXPECT_NE(kernels.find("  measured "), std::string::npos) << kernels;
  EXPECT_EQ(kernels_text(Job(plain), Rank{0}).find("measured"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::calibration_reader_test
