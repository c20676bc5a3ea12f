// What a script asks for and is not there: other processes, checkpoints, tokenizers, data sets, their files.
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/dry_run/dry_run_fixture.hpp"

namespace tidemark::tests::absent_test {
namespace {

using nlohmann::json;

class AbsentWithPython : public DryRunWithPython {};
class AbsentWithTorch : public DryRunWithTorch {
 protected:
  [[nodiscard]] bool has(const std::string& modules) const {
    return std::system(("cd / && " + python_ + " -c 'import " + modules + "' > /dev/null 2>&1").c_str()) == 0;
  }
};

// A command that starts the training as another process, as trl, axolotl and torchrun do.
TEST_F(AbsentWithPython, AProcessThatALauncherStartsTakesItsPlace) {
  script("launcher.py",
         "import subprocess, sys\ndef go(): subprocess.run([sys.executable, 'train.py', 'a'], check=True)\n");
  script("train.py",
         "import os, sys\nprint('trains', *sys.argv[1:], os.environ.get('PYTHONPATH'))\nraise KeyError('mine')\n");
  script("main.py", "import launcher\nlauncher.go()\nprint('never here')\n");
  const DrySaid said = run("--show-output -- python3 main.py");
  EXPECT_EQ(said.code, 2) << said.out << said.err;
  EXPECT_NE(said.err.find("trains a None"), std::string::npos) << said.err;
  EXPECT_EQ(said.err.find("never here"), std::string::npos) << said.err;
  EXPECT_TRUE(said.out.starts_with("the script failed on rank 0: KeyError: 'mine'")) << said.out;
  EXPECT_NE(said.out.find("the process that main.py starts: instead of it"), std::string::npos) << said.out;
}

TEST_F(AbsentWithPython, OtherProcessesAreNobodysTraining) {
  script("tool.py", "print('a tool')\n");
  script("t.py", "import subprocess, sys\nsubprocess.run([sys.executable, 'tool.py'], check=True)\nprint('goes on')\n");
  const DrySaid said = run("--show-output -- python3 t.py");
  EXPECT_NE(said.err.find("goes on"), std::string::npos) << said.err;
  EXPECT_EQ(said.out.find("starts"), std::string::npos) << said.out;
}

TEST_F(AbsentWithPython, CheckpointsHaveTheConfigurationThatTheirNameStandsFor) {
  script("t.py", R"(
from tidemark_dry_run import known_models as known
for name in ("Qwen/Qwen2.5-7B-Instruct", "/models/Llama-2-7b-hf", "bert-base-cased", "nobody/knows-this"):
    its = known.config_of(name)
    print(name, its and (its.get("hidden_size"), its.get("vocab_size"), its["model_type"]))
)");
  const DrySaid said = run("--show-output -- python3 t.py");
  EXPECT_NE(said.err.find("Qwen/Qwen2.5-7B-Instruct (3584, 152064, 'qwen2')"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("/models/Llama-2-7b-hf (4096, 32000, 'llama')"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("bert-base-cased (None, 28996, 'bert')"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("nobody/knows-this None"), std::string::npos) << said.err;
}

TEST_F(AbsentWithTorch, AFileOfTokensIsZeros) {
  if (!has("numpy")) GTEST_SKIP() << "that Python has no numpy";
  script("t.py", R"(
import numpy as np
tokens = np.memmap("data/train.bin", dtype=np.uint16, mode="r")
print(len(tokens) > 1000000, int(tokens[:1000].max()))
np.arange(5, dtype=np.uint16).tofile("there.bin")
print([int(x) for x in np.memmap("there.bin", dtype="u2", mode="r")], type(np.memmap("there.bin", dtype="u2", mode="r")).__name__)
)");
  const DrySaid said = run("--show-output -- " + python_ + " t.py");
  EXPECT_NE(said.err.find("True 0\n"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("4] memmap"), std::string::npos) << said.err;
  EXPECT_NE(said.out.find("the file data/train.bin: "), std::string::npos) << said.out;
}

// Loaded by transformers' own code, of a file that takes no room.
TEST_F(AbsentWithTorch, ACheckpointIsLoadedAndTrained) {
  if (!has("transformers, datasets")) GTEST_SKIP() << "that Python has no transformers, datasets";
  script("t.py", R"(
import torch, transformers, datasets
name = "Qwen/Qwen2.5-0.5B"
model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype="auto").cuda()
tokens = transformers.AutoTokenizer.from_pretrained(name)
rows = datasets.load_dataset("trl-lib/Capybara", split="train")
text = tokens.apply_chat_template(rows[0]["messages"], tokenize=False)
ids = tokens([text] * 2, truncation=True, max_length=128, return_tensors="pt").input_ids.cuda()
print(sum(p.numel() for p in model.parameters()), model.dtype, len(tokens), tuple(ids.shape), rows.column_names)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(9):
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
)");
  const DrySaid said = run("--show-output --json answer.json -- " + python_ + " t.py");
  ASSERT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_NE(said.err.find("494032768 torch.bfloat16 151936 (2, 128) ['source', 'messages', 'num_turns']"),
            std::string::npos)
      << said.err;
  for (const char* what :
       {"the configuration of Qwen/Qwen2.5-0.5B: Tidemark's", "the weights of Qwen/Qwen2.5-0.5B: zeros, in bfloat16",
        "the tokenizer of Qwen/Qwen2.5-0.5B: one of 151936 tokens", "the data set trl-lib/Capybara: 512 rows"})
    EXPECT_NE(said.out.find(what), std::string::npos) << what << said.out;
  // Weights, gradients and two moments in 16 bits.
  EXPECT_GE(json::parse(content(folder_ / "answer.json"))
                .at("ranks")
                .at(0)
                .at("steps")
                .at(1)
                .at("peak")
                .at("allocated_bytes"),
            4 * 2 * 494032768LL);
}

// As stages of a pipeline tell each other shapes.
TEST_F(AbsentWithTorch, WhatAnotherRankWouldSendNobodyKnows) {
  script("t.py", R"(
import torch
torch.distributed.init_process_group("nccl")
torch.zeros(4, device="cuda")
torch.distributed.send_object_list([(2, 3)], dst=0)
shapes = [None]
torch.distributed.recv_object_list(shapes, src=0)
print("goes on", shapes)
)");
  const DrySaid said = run("--rank 1 -- " + python_ + " -m torch.distributed.run --nproc-per-node 2 t.py");
  EXPECT_EQ(said.code, 4) << said.out << said.err;
  EXPECT_TRUE(said.out.starts_with("cannot say whether it fits: rank 1 waits for objects that rank 0 would send"))
      << said.out;
  EXPECT_NE(said.out.find("t.py:7 <module>"), std::string::npos) << said.out;
  EXPECT_EQ(said.err.find("goes on"), std::string::npos) << said.err;
}

// transformers' loop over experts, of which every one is chosen by as many tokens unless shares are told.
TEST_F(AbsentWithTorch, ExpertsGetWhatTheyAreTold) {
  std::filesystem::create_directories(folder_ / "transformers");
  script("transformers/__init__.py", "");
  script("transformers/loop.py", R"(
import torch

class Experts:
    num_experts = 4

    def __call__(self, chosen):
        mask = torch.nn.functional.one_hot(chosen, num_classes=self.num_experts + 1).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        return [(int(one[0]), torch.where(mask[one[0]])[1].numel()) for one in hit]
)");
  script("t.py", R"(
import torch
from transformers.loop import Experts
chosen = torch.zeros(8, 2, dtype=torch.int64, device="cuda")
print("loop", Experts()(chosen), Experts()(chosen))
print("counts", torch.histc(chosen.float().flatten(), bins=4, min=0, max=4).tolist())
)");
  for (const auto& [routing, loop, counts] :
       {std::tuple("", "[(0, 4), (1, 4), (2, 4), (3, 4)]", "[4.0, 4.0, 4.0, 4.0]"),
        {"--routing 3,1,0,0", "[(0, 12), (1, 4)]", "[12.0, 4.0, 0.0, 0.0]"}}) {
    const DrySaid said = run(std::string(routing) + " --show-output -- " + python_ + " t.py");
    EXPECT_NE(said.err.find(std::string("loop ") + loop + ' ' + loop), std::string::npos) << said.err;
    EXPECT_NE(said.err.find(std::string("counts ") + counts), std::string::npos) << said.err;
    EXPECT_NE(said.out.find("tokens that a router sends to experts: "), std::string::npos) << said.out;
  }
}

// The device would say how many there are.
TEST_F(AbsentWithTorch, ARowOfAMaskHasNoPadding) {
  script("t.py", R"(
import torch
mask = torch.ones(2, 5, dtype=torch.int64, device="cuda")
print(tuple(torch.nonzero(mask[0]).shape), torch.nonzero(mask[1])[0].item(), tuple(torch.nonzero(mask).shape))
)");
  const DrySaid said = run("--show-output -- " + python_ + " t.py");
  EXPECT_NE(said.err.find("(5, 1) 0 (0, 2)"), std::string::npos) << said.err;
  EXPECT_NE(said.out.find("where a row of whole numbers or a mask is not zero: everywhere"), std::string::npos)
      << said.out;
}

TEST_F(AbsentWithTorch, PicturesAreBlack) {
  if (!has("torchvision")) GTEST_SKIP() << "that Python has no torchvision";
  script("t.py", R"(
import torchvision
rows = torchvision.datasets.CIFAR10(root="nowhere", train=True, download=True, transform=torchvision.transforms.ToTensor())
print(len(rows), tuple(rows[0][0].shape), float(rows[0][0].max()), rows[3][1])
)");
  const DrySaid said = run("--show-output -- " + python_ + " t.py");
  EXPECT_NE(said.err.find("512 (3, 32, 32) 0.0 3"), std::string::npos) << said.err;
  EXPECT_NE(said.out.find("the data set CIFAR10: 512 black pictures"), std::string::npos) << said.out;
}

}  // namespace
}  // namespace tidemark::tests::absent_test
