#include "scenarios/dry_run/launch_command.hpp"

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::launch_command_test {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

LaunchCommand command(const std::string& line) { return launch_command(words(line)); }

std::string error(const std::string& line) {
  try {
    static_cast<void>(command(line));
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(LaunchCommand, PythonAloneIsOneRank) {
  const LaunchCommand c = command("python train.py --lr 1e-4");
  EXPECT_EQ(c.launcher, StartedBy::Python);
  EXPECT_EQ(c.python, "python");
  EXPECT_EQ(c.arguments, words("train.py --lr 1e-4"));
  EXPECT_EQ(c.nodes, 1);
  EXPECT_EQ(c.per_node.count, 1);
}

TEST(LaunchCommand, PythonKeepsItsOwnFlags) {
  EXPECT_EQ(command("python3.11 -u -X dev -W ignore -m pkg.train a b").arguments,
            words("-u -X dev -W ignore -m pkg.train a b"));
}

TEST(LaunchCommand, VariablesStandBeforeIt) {
  const LaunchCommand c = command("env A=1 B=x=y /venv/bin/python train.py");
  const std::vector<std::pair<std::string, std::string>> wanted{{"A", "1"}, {"B", "x=y"}};
  EXPECT_EQ(c.environment, wanted);
  EXPECT_EQ(c.python, "/venv/bin/python");
}

TEST(LaunchCommand, TorchrunCountsRanks) {
  for (const char* line : {"torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend c10d t.py -x 1",
                           "torchrun --nnodes 1:2 --nproc_per_node 8 --master_addr a t.py -x 1",
                           "python -m torch.distributed.run --nnodes 2 --nproc-per-node 8 --standalone t.py -x 1"}) {
    const LaunchCommand c = command(line);
    EXPECT_EQ(c.launcher, StartedBy::Torchrun) << line;
    EXPECT_EQ(c.nodes, 2) << line;
    EXPECT_EQ(c.per_node.count, 8) << line;
    EXPECT_EQ(c.arguments, words("t.py -x 1")) << line;
    EXPECT_FALSE(c.local_rank_argument) << line;
  }
  EXPECT_EQ(command("torchrun t.py").per_node.count, 1);
  EXPECT_EQ(command("torchrun --nproc-per-node gpu t.py").per_node.count, std::nullopt);
  EXPECT_EQ(command("torchrun -m pkg.train a").arguments, words("-m pkg.train a"));
}

TEST(LaunchCommand, TheOldLauncherHandsTheLocalRankOver) {
  const LaunchCommand c = command("python -m torch.distributed.launch --nproc_per_node 4 t.py");
  EXPECT_TRUE(c.local_rank_argument);
  EXPECT_EQ(c.local_rank_name, "--local-rank");
  EXPECT_FALSE(command("python -m torch.distributed.launch --use_env t.py").local_rank_argument);
}

TEST(LaunchCommand, DeepSpeedTakesAllDevicesUnlessTold) {
  const LaunchCommand c = command("deepspeed --master_port 1 t.py --deepspeed ds.json");
  EXPECT_EQ(c.per_node.count, std::nullopt);
  EXPECT_TRUE(c.local_rank_argument);
  EXPECT_EQ(c.arguments, words("t.py --deepspeed ds.json"));
  EXPECT_EQ(command("deepspeed --num_gpus=4 --num_nodes 2 t.py").per_node.count, 4);
  EXPECT_EQ(command("deepspeed --num_gpus=4 --num_nodes 2 t.py").nodes, 2);
  EXPECT_EQ(command("deepspeed --include localhost:0,1,5 t.py").per_node.count, 3);
  EXPECT_FALSE(command("deepspeed --no_local_rank t.py").local_rank_argument);
}

TEST(LaunchCommand, AccelerateReadsItsOwnFlags) {
  const LaunchCommand c = command("accelerate launch --config_file c.yaml t.py --x 1");
  EXPECT_EQ(c.launcher, StartedBy::Accelerate);
  EXPECT_EQ(c.launcher_arguments, words("--config_file c.yaml t.py --x 1"));
}

TEST(LaunchCommand, TakesInWhatAccelerateMakesOfThem) {
  LaunchCommand c = command("accelerate launch t.py");
  take_accelerate(c, R"({"environment": {"ACCELERATE_MIXED_PRECISION": "bf16"}, "module": true, "script": "pkg.train",
                         "arguments": ["--x"], "nodes": 2, "ranks": 16, "tells_ranks": true})");
  EXPECT_EQ(c.arguments, words("-m pkg.train --x"));
  EXPECT_EQ(c.nodes, 2);
  EXPECT_EQ(c.per_node.count, 8);
  EXPECT_EQ(c.environment.front().second, "bf16");
  for (const char* text : {"", "{}", "[]", R"({"environment": 3})"})
    EXPECT_THROW(take_accelerate(c, text), std::runtime_error) << text;
}

TEST(LaunchCommand, RefusesWhatStartsNoTraining) {
  EXPECT_NE(error("").find("is empty"), std::string::npos);
  EXPECT_NE(error("torchrun").find("no script"), std::string::npos);
  EXPECT_NE(error("torchrun --nproc-per-node").find("ends with"), std::string::npos);
  EXPECT_NE(error("torchrun --nproc-per-node 0 t.py").find("is not a number"), std::string::npos);
  EXPECT_NE(error("torchrun --colour blue t.py").find("no flag"), std::string::npos);
  EXPECT_NE(error("torchrun --no-python t").find("not Python"), std::string::npos);
  EXPECT_NE(error("python").find("without a script"), std::string::npos);
  EXPECT_NE(error("python -I t.py").find("environment"), std::string::npos);
  EXPECT_NE(error("train.py").find("is a script"), std::string::npos);
  EXPECT_NE(error("accelerate config").find("launch"), std::string::npos);
}

TEST(LaunchCommand, TheFirstLineOfAScriptNamesItsInterpreter) {
  EXPECT_EQ(interpreter_in("#!/venv/bin/python3\nimport re\n"), "/venv/bin/python3");
  EXPECT_EQ(interpreter_in("#! /usr/bin/env python3 -u\n"), "python3");
  EXPECT_EQ(interpreter_in("#!/bin/sh\n'''exec' \"/a long/bin/python3.11\" \"$0\" \"$@\"\n' '''\n"),
            "/a long/bin/python3.11");
  EXPECT_EQ(interpreter_in("#!/bin/bash\nexec true\n"), std::nullopt);
  EXPECT_EQ(interpreter_in("\x7f"
                           "ELF"),
            std::nullopt);
  EXPECT_EQ(interpreter_in(""), std::nullopt);
  EXPECT_EQ(interpreter_in("#!"), std::nullopt);
}

}  // namespace
}  // namespace tidemark::tests::launch_command_test
