// Ranks that are threads measure each other; what they found makes files that predict reads, and steps that take time.
#include "scenarios/calibrate/calibrate.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/calibrate/device_file.hpp"
#include "scenarios/calibrate/host_tasks.hpp"
#include "scenarios/calibrate/machine_file.hpp"
#include "scenarios/calibrate/math_times.hpp"
#include "scenarios/calibrate/reference_benchmarks.hpp"
#include "scenarios/calibrate/small_programs.hpp"
#include "scenarios/cluster/calibration_reader.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "sim/program/program_builder.hpp"
#include "tests/kernels/thread_world.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::calibrate_test {
namespace {

namespace fs = std::filesystem;
using namespace literals;

std::vector<Point> points_of_two_ranks(const std::string& journal = {}) {
  std::vector<Point> found;
  const CalibrateOptions options{{{}, folders.data_root, 0, 2, true}, journal, "test"};
  EXPECT_EQ(on_ranks(2,
                     [&](World& world) {
                       const std::vector<std::string> hosts = hosts_of(world, "host");
                       EXPECT_EQ(hosts, std::vector<std::string>{"host"});
                       if (auto points = calibrate(world, options, hosts)) found = *std::move(points);
                     }),
            all_well(2));
  return found;
}

// Which takes seconds.
const std::vector<Point>& measured_points() {
  static const std::vector<Point> points = points_of_two_ranks();
  return points;
}

MachineRun run_of(std::vector<Point> points) {
  MachineRun run;
  run.name = "machine";
  run.machine = "a processor \"with\" quotes";
  run.hosts = {"host"};
  run.ranks = run.ranks_per_host = run.ranks_per_node = run.cores = 2;
  run.host_memory = 8_GiB;
  run.tidemark = "1.0";
  run.mpi = "MPI 1";
  run.repeats = 2;
  run.points = std::move(points);
  return run;
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-calibrate-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  Cluster cluster_of(const MachineFiles& files) const {
    std::ofstream(folder_ / "machine.calibration.toml") << files.calibration;
    std::ofstream(folder_ / "machine.toml") << files.cluster;
    return read_cluster(folder_ / "machine.toml");
  }
  fs::path folder_;
};
using Calibrate = Files;

TEST(Point, AreMediansOfRepeatsAndOfRanks) {
  const Point a = point_of("x y", {5_us, 1_us, 9_us, 3_us, 7_us}), b = point_of("x y", {10_us});
  EXPECT_EQ(a, (Point{"x y", 5_us, 3_us, 7_us, 5}));
  const std::vector<Point> both = merged({{a}, {b}, {a}});
  EXPECT_EQ(both, (std::vector<Point>{{"x y", 5_us, 3_us, 7_us, 11}}));
  EXPECT_EQ(merged({{a}, {b}}).front().median, 7'500_ns) << "of two, what lies between them";
  EXPECT_EQ(parse_points(text(both)), both);
}

// An op that begins with what it reads in the cache, and all its other operands, takes half as long as in a job.
TEST(SmallPrograms, TimeOpsAfterOthersAndNothingOfWhatPreparesThem) {
  const auto fills = [](const Program& program, std::size_t begin, std::size_t end) {
    std::vector<Bytes> written;
    for (std::size_t op = begin; op < end; ++op)
      if (const auto* const launch = std::get_if<Launch>(&program.ops[op]))
        if (const Kernel& kernel = program[launch->kernel]; kernel.operation == Operation::Fill)
          written.push_back(program[kernel.outputs[0]].extent());
    return written;
  };
  const auto expect_after_others = [&](const SmallProgram& small, std::size_t times, std::vector<Bytes> before) {
    EXPECT_EQ(small.timed.size(), times);
    std::size_t last = 0;
    for (const SmallProgram::Timed& timed : small.timed) {
      EXPECT_LT(timed.begin, timed.end);
      EXPECT_EQ(fills(small.program, last, timed.begin), before);
      EXPECT_TRUE(fills(small.program, timed.begin, timed.end).empty());
      last = timed.end;
    }
  };
  expect_after_others(product_program(DType::BF16, 16, 32, 64, 2), 6, {4_MiB, Bytes{16 * 64 * 2}});
  expect_after_others(attention_program(DType::FP32, 1, 4, 16, 8, 2), 4, {4_MiB, Bytes{16 * 4 * 8 * 4}});
  expect_after_others(collective_program(CollectiveKind::AllGather, 2, 64_KiB, 3), 3, {4_MiB, 32_KiB});
  expect_after_others(message_program(true, 1_KiB, 3), 3, {4_MiB, 1_KiB});
  expect_after_others(copy_program(false, 1_KiB, 3), 3, {4_MiB, 1_KiB});
}

TEST_F(Calibrate, MeasuresEveryKindOfThingAndTheirFilesAreRead) {
  const std::vector<Point>& points = measured_points();
  std::set<std::string> kinds;
  for (const Point& p : points) {
    EXPECT_GT(p.median, Duration{}) << p.what;
    EXPECT_LE(p.low, p.median);
    EXPECT_GE(p.high, p.median);
    const std::vector<std::string> words = words_of(p.what);
    kinds.insert(words[0] == "kernel" || words[0] == "collective" ? words[0] + " " + words[1] : words[0]);
  }
  for (const char* kind :
       {"op", "copy", "message", "kernel matmul", "kernel attention", "kernel attention_backward", "kernel rms_norm",
        "kernel rms_norm_backward", "kernel layer_norm", "kernel embedding", "kernel adam", "collective all_reduce",
        "collective all_gather", "collective reduce_scatter", "collective broadcast", "collective all_to_all"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;

  const MachineFiles files = host_files(run_of(points));
  const Cluster cluster = cluster_of(files);
  EXPECT_EQ(cluster.node.devices, 2);
  EXPECT_EQ(cluster.device.capacity, 4_GiB);
  ASSERT_TRUE(cluster.calibration.there());
  const Calibration expected = calibration_of(points);
  EXPECT_EQ(cluster.calibration->kernels, expected.kernels);
  EXPECT_EQ(cluster.calibration->collectives, expected.collectives);
  EXPECT_EQ(cluster.calibration->messages, expected.messages);
  EXPECT_EQ(cluster.calibration->copies, expected.copies);
  EXPECT_FALSE(files.not_measured.empty());

  const MachineFiles again = host_files(run_of(points));
  EXPECT_EQ(again.cluster, files.cluster);
  EXPECT_EQ(again.calibration, files.calibration);
}

// Four ranks, two a node: neighbours talk inside, the first of each node between, groups of four and every second rank
// span both.
TEST_F(Calibrate, MeasuresBetweenNodes) {
  std::map<std::string, std::set<std::string>> found;  // by task
  const HostTasks requested{{}, folders.data_root, 2, 2, true};
  std::vector<Point> all;
  EXPECT_EQ(on_ranks(4,
                     [&](World& world) {
                       for (const std::string& task : task_list(requested, world)) {
                         if (!task.starts_with("messages") && !task.starts_with("collectives all_reduce") &&
                             !task.starts_with("copies") && !task.starts_with("products fp32 16"))
                           continue;
                         std::vector<std::vector<Point>> ranks;
                         for (const std::string& one : world.gather(text(measured(task, requested, world))))
                           ranks.push_back(parse_points(one));
                         if (world.rank().value != 0) continue;
                         for (Point& point : merged(ranks)) {
                           const std::vector<std::string> words = words_of(point.what);
                           const bool sized = words[0] == "message" || words[0] == "collective";
                           if (sized) found[task].insert(point.what.substr(0, point.what.rfind(' ')));
                           if (task.starts_with("messages")) {
                             EXPECT_EQ(point.repeats, task == "messages" ? 8 : 4) << "of four ranks, or of two";
                           }
                           all.push_back(std::move(point));
                         }
                       }
                     }),
            all_well(4));
  EXPECT_EQ(found, (std::map<std::string, std::set<std::string>>{
                       {"messages", {"message 0"}},
                       {"messages between nodes", {"message 1"}},
                       {"collectives all_reduce 2", {"collective all_reduce 2 1"}},
                       {"collectives all_reduce 4", {"collective all_reduce 4 2"}},
                       {"collectives all_reduce 2 apart", {"collective all_reduce 2 2"}}}));

  // What was measured between nodes is theirs alone. Here all ranks are of one host, and busy: messages are told that
  // take 1 us and 1 ns for every 10 bytes inside, and twenty times as long between nodes.
  for (Point& point : all)
    if (const std::vector<std::string> words = words_of(point.what); words[0] == "message")
      point.median = point.low = point.high = (1_us + 1_ns * std::stoll(words[2]) / 10) * (words[1] == "1" ? 20 : 1);
  MachineRun run = run_of(all);
  run.ranks = run.ranks_per_host = 4;
  const MachineFiles files = host_files(run);
  const Cluster cluster = cluster_of(files);
  EXPECT_EQ(cluster.node.devices, 2);
  EXPECT_EQ(cluster.host.memory, 4_GiB);
  EXPECT_EQ(cluster.host.code_factor, Ratio{}) << "no framework calls what hosts carry out";
  EXPECT_LT(cluster.node.nic_bandwidth * 3, cluster.node.bandwidth);
  EXPECT_GT(cluster.fabric.latency, cluster.node.latency * 3);
  const auto is_listed = [&](std::string_view key) {
    return std::ranges::any_of(files.not_measured, [&](const NotMeasured& n) { return n.key == key; });
  };
  EXPECT_FALSE(is_listed("node.nic_bandwidth") || is_listed("fabric.latency") || is_listed("node.bandwidth"));
  EXPECT_TRUE(measured_message(*cluster.calibration.get(), true, 1_KiB).has_value());
}

TEST_F(Calibrate, HostsAreNodesWhereRanksFillThemInOrder) {
  const auto of = [](const std::vector<std::string>& hosts) {
    std::int32_t each = -1;
    EXPECT_EQ(on_ranks(static_cast<std::int32_t>(hosts.size()),
                       [&](World& world) {
                         const std::int32_t its = ranks_per_host(world, hosts[world.rank().index()]);
                         if (world.rank().value == 0) each = its;
                       }),
              all_well(static_cast<std::int32_t>(hosts.size())));
    return each;
  };
  EXPECT_EQ(of({"a", "a", "b", "b"}), 2);
  EXPECT_EQ(of({"a", "a"}), 2);
  EXPECT_EQ(of({"a", "b", "a", "b"}), 0);
  EXPECT_EQ(of({"a", "a", "b"}), 0);
}

TEST_F(Calibrate, WhatAJournalRemembersIsNotMeasuredAgain) {
  const std::string journal = (folder_ / "journal").string();
  const std::vector<Point> first = points_of_two_ranks(journal), second = points_of_two_ranks(journal);
  EXPECT_EQ(first, second) << "to the picosecond: nobody measures that twice";
}

// The same programs, timed and simulated. Times are not compared: a busy machine has its own.
TEST_F(Calibrate, StepsOfAJobAreMeasuredAndPredicted) {
  const Cluster machine = cluster_of(host_files(run_of(measured_points())));
  const Scenario job = reference_benchmark("llama-fp32-xs-tp2", folders.data_root);
  std::vector<MathStep> measured;
  EXPECT_EQ(on_ranks(2,
                     [&](World& world) {
                       std::vector<MathStep> its = measured_math_steps(job, world, 2);
                       if (world.rank().value == 0) measured = std::move(its);
                     }),
            all_well(2));
  const std::vector<MathStep> predicted = predicted_math_steps(job, machine);
  ASSERT_EQ(measured.size(), 4u) << "construction and three steps";
  ASSERT_EQ(predicted.size(), measured.size());
  // Measured ones are medians, each of its own run.
  for (const MathStep& its : measured) EXPECT_GT(std::min(its.step, its.kernels), Duration{});
  // Construction and the first step end for the host, whose kernels may be under way until the next one.
  for (std::size_t step = 2; step < predicted.size(); ++step)
    EXPECT_GE(predicted[step].step, predicted[step].kernels) << step;
  for (const MathStep& its : predicted) EXPECT_GT(its.kernels, Duration{});
  EXPECT_EQ(predicted[2].step, predicted[3].step) << "what repeats takes as long again";
}

// What tidemark_gpu_points writes, of two ranks of a device that nobody has.
TEST_F(Calibrate, PointsOfGpusMakeAClusterLikeAnotherOne) {
  std::ofstream(folder_ / "gpu.points")
      << "fact machine: a host\nfact ranks: 2\nfact ranks_per_host: 2\n"
         "fact device: NVIDIA Test\nfact compute_capability: 9.0\nfact capacity: 85899345920\n"
         "fact multiprocessors: 100\nfact memory_bandwidth: 3000000000000\nfact versions: CUDA driver 13000\n"
         "fact bytes context: 536870912\nfact bytes blas_handle: 8388608\nfact bytes communicator 2 1: 209715200\n"
         "250000000 249000000 251000000 15 kernel matmul bf16 1 4096 4096 4096\n"
         "270000000 269000000 271000000 15 kernel matmul bf16 1 4096 4096 4096\n"
         "100000000 99000000 101000000 15 kernel copy bf16 268435456\n"
         "4000000 3900000 4100000 15 kernel copy bf16 8192\n"
         "1200000000 1100000000 1300000000 15 copy 0 67108864\n"
         "2000000 1900000 2100000 1500 op\n"
         "400000000 390000000 410000000 15 collective all_reduce 2 1 67108864\n";
  MachineRun run;
  const MachineFiles files = device_files(
      {"machine", folders.data_root / "clusters/h100-sxm-80g.toml", "1.0", "today", folder_ / "gpu.points"}, run);
  const Cluster cluster = cluster_of(files), like = read_cluster(folders.data_root / "clusters/h100-sxm-80g.toml");
  EXPECT_EQ(cluster.device.name, "NVIDIA Test");
  EXPECT_EQ(cluster.device.capacity, 80_GiB);
  EXPECT_EQ(cluster.device.multiprocessors, 100);
  EXPECT_EQ(cluster.device.context.bytes, 512_MiB);
  EXPECT_EQ(cluster.host.launch, 2_us);
  EXPECT_EQ(cluster.device.kernel_latency, 4_us);
  EXPECT_EQ(cluster.node, like.node) << "nobody measured that";
  EXPECT_EQ(cluster.device.peak, like.device.peak);
  ASSERT_EQ(cluster.nccl.communicators.size(), 1u);
  EXPECT_EQ(cluster.nccl.communicators.front().memory.bytes, 200_MiB);
  EXPECT_EQ(cluster.calibration->kernels.size(), 3u) << "two ranks' products are one point";
  EXPECT_NE(cluster.calibration->source.find("today"), std::string::npos);
  EXPECT_NE(files.cluster.find("device.efficiency.attention"), std::string::npos) << "what was not measured is listed";
  EXPECT_NE(files.cluster.find("#   device.power\n"), std::string::npos);
}

// One core: nothing overlaps, so a step is no shorter than its kernels and its transfers together.
TEST_F(Calibrate, HostOrderKeepsEveryLaunchAndWaitsForTransfers) {
  Workload workload;
  workload.communicators = {{"pair", {{2, 1, 1}}}};
  ProgramBuilder program;
  program.push(CreateCommunicator{CommSlot{0}});
  const LabelId label = program.label("x");
  const BufferId x = program.alloc(1_KiB, Category::Temporaries, label, StreamId{2});
  program.launch(Operation::Fill, {}, {{x, program.view(DType::FP32, {256}, {1})}}, StreamId{2});
  program.push(Record{EventId{3}, StreamId{2}});
  program.push(Wait{StreamId{1}, EventId{3}});
  program.collective(CommSlot{0}, {CollectiveKind::AllReduce, DType::FP32}, x, x, 1_KiB, StreamId{1});
  workload.programs = {std::move(program).finish()};
  workload.program_of_rank = {0, 0};
  const Workload run = in_host_order(workload);
  int launches = 0, syncs = 0;
  for (const Op& op : run.programs.front().ops) {
    if (const auto* launch = std::get_if<Launch>(&op)) {
      ++launches;
      EXPECT_EQ(launch->stream, StreamId{0});
    }
    if (const auto* call = std::get_if<Collective>(&op)) {
      EXPECT_EQ(call->stream, StreamId{0});
    }
    syncs += std::holds_alternative<Sync>(op) ? 1 : 0;
    EXPECT_FALSE(std::holds_alternative<Wait>(op));
  }
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(syncs, 1);
}

}  // namespace
}  // namespace tidemark::tests::calibrate_test
