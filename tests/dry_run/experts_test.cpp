// Trainings of experts that dry runs have no answer for stop with the place, and those that they know go on.
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/dry_run/dry_run_fixture.hpp"

namespace tidemark::tests::experts_of_dry_runs_test {
namespace {

using nlohmann::json;

class ExpertsOfDryRuns : public DryRunWithTorch {
 protected:
  // A layer of eight experts, whose dispatch is given, under a loop that trains it.
  void train(const std::string& forward, const std::string& before = "") const {
    script("experts.py", "import torch\n" + before + R"(
class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(64, 8)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(8))

    def forward(self, x):
        choice = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
)" + forward + R"(
        return out

model = torch.nn.Sequential(torch.nn.Linear(64, 64), Experts()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.zeros(512, 64, device="cuda")).sum().backward()
    optimizer.step()
)");
  }
  void expect_stop(const std::string& what) const {
    const DrySaid said = run("--json answer.json -- " + python_ + " experts.py");
    EXPECT_EQ(said.code, 4) << said.out << said.err;
    EXPECT_TRUE(said.out.starts_with(
        "cannot say whether it fits: rank 0 asks the device which tokens its experts get, by " + what))
        << said.out;
    const json failure = json::parse(content(folder_ / "answer.json")).at("ranks").at(0).at("failure");
    EXPECT_EQ(failure.at("type"), "experts");
    EXPECT_NE(failure.at("stack").at(0).get<std::string>().find("experts.py:"), std::string::npos) << failure;
  }
};

TEST_F(ExpertsOfDryRuns, PlacesThatNobodyToldStopIt) {
  train(R"(
        for i, expert in enumerate(self.experts):
            rows = (choice == i + 1).nonzero().flatten()
            out = out.index_add(0, rows, expert(x[rows])))");
  expect_stop("torch.Tensor.nonzero");
}

TEST_F(ExpertsOfDryRuns, MasksThatNobodyToldStopIt) {
  train(R"(
        for i, expert in enumerate(self.experts):
            out = out + expert(x[choice == i + 1]).sum())");
  expect_stop("the rows of an expert");
}

TEST_F(ExpertsOfDryRuns, CountsThatNobodyToldStopIt) {
  train(R"(
        counts = torch.nn.functional.one_hot(choice, 8).sum(0).tolist()
        out = out + sum(expert(part).sum() for expert, part in zip(self.experts, x[:sum(counts)].split(counts))))");
  expect_stop("torch.Tensor.tolist");
}

TEST_F(ExpertsOfDryRuns, CountsThatAreToldGoOn) {
  train(R"(
        counts = torch.bincount(choice, minlength=8).tolist()
        out = out + sum(expert(part).sum() for expert, part in zip(self.experts, x.split(counts))))");
  for (const char* shares : {"even", "7,0,0,0,0,0,0,1"}) {
    const DrySaid said = run(std::string("--routing ") + shares + " -- " + python_ + " experts.py");
    EXPECT_EQ(said.code, 0) << said.out << said.err;
    EXPECT_NE(said.out.find("tokens that a router sends to experts"), std::string::npos) << said.out;
  }
}

// Its own package is not needed: what asks is its class.
TEST_F(ExpertsOfDryRuns, DeepEPsBuffersStopIt) {
  script("deep_ep.py", "class Buffer:\n    def __init__(self, group, bytes):\n        pass\n");
  train("        deep_ep.Buffer(None, 1 << 20)\n", "import deep_ep\n");
  expect_stop("DeepEP's Buffer");
}

}  // namespace
}  // namespace tidemark::tests::experts_of_dry_runs_test
