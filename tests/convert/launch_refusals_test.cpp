#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "tests/convert/recipes.hpp"

// What is refused rather than answered as another training.

namespace tidemark::tests::launch_refusals_test {
namespace {

using Files = std::map<std::filesystem::path, std::string>;

std::string problem_of(const Files& files) {
  ConvertRequest requested;
  requested.texts = files;
  for (const auto& [file, text] : files) requested.files.push_back(file);
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  requested.strict = true;
  try {
    (void)scenario_of(convert(requested), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string problem_of(const std::string& script) { return problem_of(Files{{"job.sh", script}}); }

const std::string small =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
    "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16";

TEST(LaunchRefusals, WhatAConstructMayHaveAssignedIsAskedForWithItsLine) {
  const std::string uses = "\n" + small + " --tensor-model-parallel-size $TP\n";
  const auto because = [&](const std::string& construct) {
    const std::string problem = problem_of("TP=1\n" + construct + uses);
    const std::size_t begin = problem.find("$TP");
    return problem.substr(begin, problem.find(" is not known") - begin);
  };
  EXPECT_EQ(because("for i in $(seq 3); do TP=$((TP*2)); done"), "$TP (a loop (for) in line 2 may assign it)");
  EXPECT_EQ(because("((TP*=8))"), "$TP (arithmetic in line 2 may assign it)");
  EXPECT_EQ(because("case $(tool) in a) TP=2;; esac"), "$TP (a case in line 2 may assign it)");
  EXPECT_EQ(because("while read -r x; do TP=8; done"), "$TP (a loop (while) in line 2 may assign it)");
  EXPECT_EQ(because("f() { TP=8; f; }; f"), "$TP (a function in line 2 may assign it)");
  EXPECT_EQ(because("unset TP"), "$TP (unset in line 2 may assign it)");
  EXPECT_EQ(because("if a; then TP=4; fi"),
            "$TP (an if whose condition only running it would tell in line 2 may assign it)");
  EXPECT_EQ(problem_of("TP=1\n(TP=8)\nTP=8 true\necho x | TP=4\nTP=4 &\nfor i in a; do X=2; done" + uses),
            "no problem");
  const std::string whole = problem_of("TP=1\nlet TP*=8" + uses);
  EXPECT_TRUE(whole.starts_with("job.sh:3:")) << whole;
  EXPECT_TRUE(whole.ends_with("hint: say it with --set TP=VALUE")) << whole;
}

TEST(LaunchRefusals, AVariableOfTheEnvironmentThatIsNotKnownIsAskedForWhereItCounts) {
  EXPECT_EQ(problem_of("export NCCL_BUFFSIZE=$(tool)\n" + small),
            "job.sh:1:22: error: NCCL_BUFFSIZE: $(tool) is not known without running it\n"
            "  hint: put what it is into the script");
  EXPECT_EQ(problem_of("export NCCL_SOCKET_IFNAME=$(tool)\n" + small), "no problem");
  // What is exported behind it, or for another command, is not its own.
  EXPECT_EQ(problem_of("NVTE_FUSED_ATTN=0 true\n" + small + "\nexport NVTE_FUSED_ATTN=0\n"), "no problem");
  EXPECT_NE(problem_of("env NVTE_FLASH_ATTN=0 " + small + " --attention-backend flash"), "no problem");
}

TEST(LaunchRefusals, ASecondTrainingIsNotDropped) {
  EXPECT_EQ(problem_of(small + " --tensor-model-parallel-size 8\n" + small + " --tensor-model-parallel-size 2\n"),
            "job.sh:2:29: error: starts another training than line 1 does, and a scenario is of one\n"
            "  hint: give the command alone, as it would be typed");
  EXPECT_EQ(problem_of(small + "\n" + small + "\n"), "no problem") << "the same again";
  EXPECT_EQ(problem_of("python tools/preprocess_data.py --input x --vocab-size 3\n" + small), "no problem");
  EXPECT_EQ(problem_of("for i in 1 2; do torchrun train.py; done\n" + small),
            "job.sh:1:1: error: a loop (for) is not followed, and may start another training than line 2 does\n"
            "  hint: give the command alone, as it would be typed");
  EXPECT_EQ(problem_of("run() {\n  " + small + "\n  run\n}\nX=1 run\n"),
            "job.sh:5:1: error: a function is not followed, and may start a training\n"
            "  hint: give the command alone, as it would be typed");
}

TEST(LaunchRefusals, FilesThatDisagreeAreNotOneTraining) {
  EXPECT_EQ(problem_of({{"a.sh", small}, {"b.sh", small}}),
            "b.sh:1:1: error: says what a.sh says of another training, and a scenario is of one\n"
            "  hint: give one of them");
  EXPECT_EQ(problem_of({{"a.sh", small + " --tensor-model-parallel-size 2"}, {"b.toml", "[layout]\ntensor = 4\n"}}),
            "b.toml:2:10: error: layout.tensor = 4, and a.sh says 2\n"
            "  hint: leave it out of one of them");
  EXPECT_EQ(problem_of({{"a.sh", small}, {"b.toml", "[layout]\ntensor = 4\n"}}), "no problem");
  EXPECT_EQ(problem_of({{"job.yaml", "distributed_type: FSDP\nnum_processes: 8\n---\nnum_processes: 4\n"}}),
            "job.yaml:4:1: error: begins a second document, and a scenario is of one training\n"
            "  hint: give each a file of its own");
}

// What mpirun starts on each rank is read with what it is given: exported variables, -x, and arguments.
TEST(LaunchRefusals, AScriptThatAnotherStartsIsReadWithWhatItIsGiven) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "tidemark_inner_scripts";
  std::filesystem::create_directories(folder / "job");
  std::ofstream(folder / "train.sh")
      << "python pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
         "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --bf16 "
         "--tensor-model-parallel-size $TP --micro-batch-size $1 --global-batch-size "
         "$ALL\n";
  std::ofstream(folder / "job" / "job.sbatch") << "#!/bin/bash\n#SBATCH --nodes=2\nexport ALL=64\nROOT=/elsewhere\n"
                                                  "mpirun -np 16 -x TP=2 bash ${ROOT}/train.sh 4\n";
  ConvertRequest requested;
  requested.files = {folder / "job" / "job.sbatch"};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  const Scenario s = scenario_of(convert(requested), shipped_data());
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_EQ(s.layout.data, 8);
  EXPECT_EQ(s.train.micro_batch, 4);
  EXPECT_EQ(s.train.global_batch, 64);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tidemark::tests::launch_refusals_test
