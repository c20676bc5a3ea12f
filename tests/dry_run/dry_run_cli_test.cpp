// The verb itself: without PyTorch as far as that goes, and with it where TIDEMARK_TORCH_PYTHON names a Python that has
// a CUDA build of it. No GPU is needed.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/dry_run/dry_run_fixture.hpp"

namespace tidemark::tests::dry_run_cli_test {
namespace {

using nlohmann::json;
using WithPython = DryRunWithPython;
using WithTorch = DryRunWithTorch;

TEST_F(DryRunCli, BadInputIsTwoAndSaysWhat) {
  for (const std::string arguments :
       {"", "-- ", "-- torchrun", "-- python3 nowhere.py", "-- ls -l", "-- no-such-program-anywhere x.py",
        "--steps 0 -- python3 t.py", "--cluster no-such-card -- python3 t.py", "--against no-such-job -- python3 t.py",
        "torchrun --nproc-per-node 8 t.py", "--world-size 0 -- python3 t.py", "--timeout 0 -- python3 t.py",
        "--routing 1,x -- python3 t.py", "--routing 0,0 -- python3 t.py", "--routing '' -- python3 t.py",
        "--against command -- python3 t.py"}) {
    const DrySaid said = run(arguments);
    EXPECT_EQ(said.code, 2) << arguments << said.err;
    EXPECT_EQ(said.out, "") << arguments;
    EXPECT_NE(said.err.find("error: "), std::string::npos) << said.err;
  }
}

TEST_F(WithPython, AScriptThatTrainsNothingLeavesItOpen) {
  script("t.py", "print('trains nothing')\n");
  const DrySaid said = run("--json answer.json -- python3 t.py");
  EXPECT_EQ(said.code, 4) << said.out << said.err;
  EXPECT_TRUE(said.out.starts_with("cannot say whether it fits")) << said.out;
  EXPECT_NE(said.err.find("trains nothing"), std::string::npos) << said.err;
  EXPECT_TRUE(json::parse(content(folder_ / "answer.json")).at("fits").is_null());
}

TEST_F(WithPython, AScriptsOwnErrorComesThrough) {
  script("t.py", "def f():\n  raise ValueError('my own mistake')\nf()\n");
  const DrySaid said = run("-- python3 t.py");
  EXPECT_EQ(said.code, 2) << said.out << said.err;
  EXPECT_NE(said.err.find("Traceback"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("ValueError: my own mistake"), std::string::npos) << said.err;
  EXPECT_TRUE(said.out.starts_with("the script failed on rank 0: ValueError: my own mistake")) << said.out;
}

// As argparse ends a script, and `raise SystemExit`, which passes sys.exit by.
TEST_F(WithPython, AScriptThatEndsItselfWithAStatusHasFailed) {
  script("t.py", "import sys\nprint('no --lr', file=sys.stderr)\nsys.exit(2)\n");
  script("u.py", "raise SystemExit('please set DATA')\n");
  for (const auto& [name, status, word] : {std::tuple("t.py", 2, "no --lr"), {"u.py", 1, "please set DATA"}}) {
    const DrySaid said = run(std::string("-- python3 ") + name);
    EXPECT_EQ(said.code, 2) << said.out << said.err;
    EXPECT_TRUE(said.out.starts_with("the script failed on rank 0: it ended with status " + std::to_string(status)))
        << said.out;
    EXPECT_NE(said.err.find(word), std::string::npos) << said.err;
    EXPECT_EQ(said.out.find("stand-ins"), std::string::npos) << said.out;
  }
}

TEST_F(WithPython, AModuleThatIsNotThereIsOfAnotherEnvironment) {
  script("t.py", "import there_is_no_such_module\n");
  const DrySaid said = run("-- python3 t.py");
  EXPECT_EQ(said.code, 2) << said.out << said.err;
  EXPECT_NE(said.out.find("hint: the command's Python 3."), std::string::npos) << said.out;
}

TEST_F(WithPython, RanksAreToldWhatTheirLauncherTells) {
  script(
      "t.py",
      "import os, sys\nprint(*[os.environ.get(n) for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'PYTHONPATH', 'MINE')], "
      "sys.argv[1:])\n");
  const DrySaid said =
      run("--rank 9 --show-output -- MINE=x python3 -m torch.distributed.launch --nnodes 2 --nproc_per_node 8 t.py a");
  EXPECT_NE(said.err.find("9 1 16 None x ['--local-rank=1', 'a']"), std::string::npos) << said.err;
}

TEST_F(WithPython, OfNcclsVariablesThoseThatAreNotReadAreNamed) {
  script("t.py", "pass\n");
  (void)run("--json answer.json -- NCCL_BUFFSIZE=8388608 NCCL_DEBUG=INFO NCCL_SET_STACK_SIZE=1 python3 t.py");
  EXPECT_EQ(json::parse(content(folder_ / "answer.json")).at("not_modelled"),
            json::array({"NCCL_SET_STACK_SIZE=1: NCCL's own default is taken"}));
}

TEST_F(WithPython, AScriptThatTakesTooLongIsEnded) {
  script("t.py", "import time\ntime.sleep(600)\n");
  const DrySaid said = run("--timeout 1 -- python3 t.py");
  EXPECT_EQ(said.code, 3) << said.out << said.err;
  EXPECT_NE(said.err.find("--timeout"), std::string::npos) << said.err;
}

TEST_F(WithTorch, ATrainingIsCountedStepByStep) {
  const DrySaid said = run("--json answer.json --snapshot dry.pickle -- " + python_ + " train.py");
  ASSERT_EQ(said.code, 0) << said.out << said.err;
  const json rank = json::parse(content(folder_ / "answer.json")).at("ranks").at(0);
  ASSERT_EQ(rank.at("steps").size(), 3U);
  EXPECT_EQ(rank.at("steps").at(1), rank.at("steps").at(2));
  // 4 layers of 1024 x 1024 in fp32, two moments each, a step counter on the host, and the batch of a pass that begins.
  constexpr std::int64_t weights = 4LL * 1024 * 1024 * 4, batch = 256 * 1024 * 4;
  EXPECT_EQ(rank.at("set_up").at("after").at("allocated_bytes"), weights + batch);
  EXPECT_EQ(rank.at("steps").at(2).at("after").at("allocated_bytes"), 3 * weights + batch);
  const std::string replay = "'" TIDEMARK_BINARY "' replay '" + (folder_ / "dry.pickle").string() + "' > /dev/null";
  EXPECT_EQ(std::system(replay.c_str()), 0);
}

TEST_F(WithTorch, EveryRankOfAnyWorldRunsAlone) {
  const DrySaid said = run("--json answer.json --rank 0 --rank 15 --steps 2 -- " + python_ +
                           " -m torch.distributed.run --nnodes 2 --nproc-per-node 8 train.py ddp");
  ASSERT_EQ(said.code, 0) << said.out << said.err;
  const json answer = json::parse(content(folder_ / "answer.json"));
  EXPECT_EQ(answer.at("world_size"), 16);
  EXPECT_EQ(answer.at("ranks").at(1).at("rank"), 15);
  EXPECT_EQ(answer.at("ranks").at(0).at("peak_reserved_bytes"), answer.at("ranks").at(1).at("peak_reserved_bytes"));
  EXPECT_TRUE(answer.at("ranks").at(0).at("groups").at(0).at("reduces"));
}

TEST_F(WithTorch, ASpawnedProcessRunsInItsPlace) {
  script("spawned.py", R"(
import torch

def work(rank, world):
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:1", rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(9):
        model(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=(4,), nprocs=4)
)");
  const DrySaid said = run("--world-size 4 --rank 3 --json answer.json -- " + python_ + " spawned.py");
  ASSERT_EQ(said.code, 0) << said.out << said.err;
  const json rank = json::parse(content(folder_ / "answer.json")).at("ranks").at(0);
  EXPECT_EQ(rank.at("groups").at(0).at("ranks"), json::array({0, 1, 2, 3}));
  EXPECT_EQ(rank.at("steps").size(), 3U);
  EXPECT_NE(said.out.find("number 3 of 4 alone"), std::string::npos) << said.out;
}

// What NCCL holds follows the variables that it reads.
TEST_F(WithTorch, NcclsBuffersAreAsLargeAsTheyAreToldToBe) {
  const auto held = [&](const std::string& variable) {
    const DrySaid said = run("--json answer.json --rank 0 --steps 1 -- " + variable + " " + python_ +
                             " -m torch.distributed.run --nproc-per-node 8 train.py ddp");
    EXPECT_EQ(said.code, 0) << said.out << said.err;
    return json::parse(content(folder_ / "answer.json")).at("ranks").at(0).at("peak_device_bytes").get<std::int64_t>();
  };
  EXPECT_LT(held("NCCL_BUFFSIZE=1048576"), held("NCCL_BUFFSIZE=8388608"));
}

// Inductor plans buffers and writes kernels, which nobody compiles.
TEST_F(WithTorch, ACompiledTrainingHoldsLessThanItself) {
  const auto peak = [&](const std::string& words) {
    const DrySaid said = run("--json answer.json -- " + python_ + " train.py waves batch=8192 " + words);
    EXPECT_EQ(said.code, 0) << said.out << said.err;
    const json answer = json::parse(content(folder_ / "answer.json"));
    EXPECT_EQ(said.out.find("Inductor's kernels") != std::string::npos, words == "compile") << said.out;
    return answer.at("ranks").at(0).at("steps").at(2).at("peak").at("allocated_bytes").get<std::int64_t>();
  };
  const std::int64_t as_it_is = peak(""), compiled = peak("compile");
  EXPECT_LT(compiled, as_it_is);  // of a chain of sines one is kept
}

TEST_F(WithTorch, ItRunsOutWhereTheCardWould) {
  const DrySaid said = run("--cluster rtx-3080-10g --json answer.json -- " + python_ + " train.py batch=600000");
  EXPECT_EQ(said.code, 1) << said.out << said.err;
  EXPECT_TRUE(said.out.starts_with("no, it does not fit: rank 0 runs out")) << said.out;
  const json rank = json::parse(content(folder_ / "answer.json")).at("ranks").at(0);
  EXPECT_EQ(rank.at("failure").at("kind"), "out_of_memory");
  EXPECT_EQ(rank.at("steps").size(), 3U);  // without a limit
}

TEST_F(WithTorch, APredictionLiesBesideIt) {
  if (std::system(("cd / && " + python_ + " -c 'import transformers' 2> /dev/null").c_str()) != 0)
    GTEST_SKIP() << "that Python has no transformers";
  for (const char* name : {"against.py", "against.json", "against.toml"})
    std::filesystem::copy_file(std::string(TIDEMARK_SOURCE_DIR "/tests/dry_run/") + name, folder_ / name);
  const DrySaid said =
      run("--cluster a100-sxm-80g --against against.toml --json answer.json -- " + python_ + " against.py");
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_TRUE(json::parse(content(folder_ / "answer.json")).at("agrees"));
  EXPECT_NE(said.out.find("yes, they agree within 2 %: against beside the dry run"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("the first request that differs"), std::string::npos) << said.out;
  EXPECT_EQ(said.out.find("unanswered.py"), std::string::npos) << "the stacks are the script's: " << said.out;
}

}  // namespace
}  // namespace tidemark::tests::dry_run_cli_test
