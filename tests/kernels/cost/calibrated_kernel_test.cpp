#include "kernels/cost/calibrated_kernel.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cost/cost_time.hpp"
#include "kernels/cost/roofline.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "topology/cluster.hpp"

namespace tidemark::tests::calibrated_kernel_test {
namespace {

using namespace literals;

using Sizes = std::vector<std::int64_t>;

Program launching(const std::string& kernel) { return parse_program("launch s0 " + kernel + "\n"); }

Sizes sizes_of(const std::string& kernel) {
  const Program program = launching(kernel);
  return kernels::calibrated_sizes(program, program.kernels.front());
}

const std::string product = "matmul(scale=1) b0:bf16[4x256x128] b1:bf16[128x64] - - -> b2:bf16[4x256x64]";
const std::string batched = "matmul(scale=1) b0:bf16[4x256x128] b1:bf16[4x128x64] - - -> b2:bf16[4x256x64]";
const std::string copied = "copy b0:bf16[1024] -> b1:fp32[1024]";

TEST(CalibratedKernel, SizesAreThoseThatTellKernelsOfOneKindApart) {
  EXPECT_EQ(sizes_of(product), (Sizes{1, 1024, 64, 128})) << "batches that share b are rows";
  EXPECT_EQ(sizes_of(batched), (Sizes{4, 256, 64, 128}));
  EXPECT_EQ(sizes_of(copied), (Sizes{2048 + 4096})) << "bytes read and written";
}

Cluster cluster_with(std::vector<Calibration::Kernel> kernels) {
  Cluster cluster;
  cluster.device.compute_capability = 90;
  Calibration calibration;
  calibration.kernels = std::move(kernels);
  cluster.calibration = std::move(calibration);
  return cluster;
}

TimeByPoints time_on(const Cluster& cluster, const std::string& kernel) {
  return sourced_kernel_times(launching(kernel), cluster).front();
}

TEST(CalibratedKernel, MeasuredTimesTakeThePlaceOfTheModels) {
  const Cluster cluster = cluster_with({{Operation::Matmul, DType::BF16, {1, 1024, 64, 128}, 77_us}});
  EXPECT_EQ(time_on(cluster, product).time, 77_us);
  EXPECT_EQ(time_on(cluster, product).source, TimeSource::Measured);
  EXPECT_EQ(time_on(cluster, batched).source, TimeSource::Model) << "four products are no single one";
  EXPECT_EQ(time_on(cluster, copied).time, kernel_times(launching(copied), cluster_with({})).front());
}

TEST(CalibratedKernel, AProductNearOneThatWasMeasuredIsAsFarFromItsModel) {
  const Duration model = kernel_times(launching(product), cluster_with({})).front();
  const std::string wider = "matmul(scale=1) b0:bf16[4x256x128] b1:bf16[128x96] - - -> b2:bf16[4x256x96]";
  const Duration its_model = kernel_times(launching(wider), cluster_with({})).front();
  const TimeByPoints its =
      time_on(cluster_with({{Operation::Matmul, DType::BF16, {1, 1024, 64, 128}, 2 * model}}), wider);
  EXPECT_EQ(its.source, TimeSource::Interpolated);
  EXPECT_NEAR(static_cast<double>(its.time.count()), 2.0 * static_cast<double>(its_model.count()),
              1e-6 * static_cast<double>(its_model.count()));
}

TEST(CalibratedKernel, TypesAndKindsAreToldApart) {
  const Cluster cluster = cluster_with(
      {{Operation::Matmul, DType::FP32, {1, 1024, 64, 128}, 77_us}, {Operation::Add, DType::FP32, {6144}, 3_us}});
  EXPECT_EQ(time_on(cluster, product).source, TimeSource::Model);
  EXPECT_EQ(time_on(cluster, copied).source, TimeSource::Model);
}

TEST(CalibratedKernel, DropoutOfAttentionIsNotTold) {
  const std::string attention =
      "attention(scale=1,causal=1,dropout={}) b0:bf16[1x64x4x32] b1:bf16[1x64x4x32] b2:bf16[1x64x4x32] - -> "
      "b3:bf16[1x64x4x32] - - -";
  const auto with = [&](const std::string& dropout) {
    std::string text = attention;
    return text.replace(text.find("{}"), 2, dropout);
  };
  const Cluster cluster = cluster_with({{Operation::Attention, DType::BF16, {1, 4, 64, 64, 32, 1}, 5_us}});
  EXPECT_EQ(time_on(cluster, with("0")).time, 5_us);
  EXPECT_EQ(time_on(cluster, with("0.5")).source, TimeSource::Model);
}

// Of two groups of two ranks side by side.
Workload reducing() {
  Workload workload;
  workload.communicators = {{"pairs", {{2, 1, 1}}, MessageRoute::Group}};
  ProgramBuilder program;
  program.push(CreateCommunicator{CommSlot{0}});
  const BufferId b = program.alloc(1_MiB, Category::Temporaries, program.label("x"));
  program.collective(CommSlot{0}, {CollectiveKind::AllReduce, DType::BF16}, b, b, 1_MiB);
  workload.programs = {std::move(program).finish()};
  workload.program_of_rank = {0, 0, 0, 0};
  return workload;
}

TEST(CalibratedKernel, CollectivesTakeWhatWasMeasuredFoldedOrNot) {
  Cluster cluster;
  cluster.device.compute_capability = 90;
  const Workload workload = reducing();
  const Folding apart = unfolded(workload, {0, 0, 0, 0});
  const TimeCosts before = cost_time(workload, apart, cluster);
  Calibration calibration;
  calibration.collectives = {{CollectiveKind::AllReduce, 2, 1, 1_MiB, 123_us}};
  cluster.calibration = calibration;
  const TimeCosts after = cost_time(workload, apart, cluster);
  ASSERT_EQ(after.collectives.size(), before.collectives.size());
  for (std::size_t g = 0; g < after.collectives.size(); ++g) {
    const TransferCost &was = before.collectives[g].begin()->second, &is = after.collectives[g].begin()->second;
    EXPECT_NE(lone(was, before.links), 123_us);
    EXPECT_LE(lone(is, after.links), 123_us + 1_ns);
    EXPECT_GE(lone(is, after.links) + 1_ns, 123_us);
    EXPECT_EQ(is.loads.size(), was.loads.size());
  }
}

}  // namespace
}  // namespace tidemark::tests::calibrated_kernel_test
