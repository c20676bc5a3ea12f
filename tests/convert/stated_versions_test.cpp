#include "scenarios/convert/stated_versions.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/version_text.hpp"
#include "tests/convert/recipes.hpp"

// Containers, lists of packages and tags of Megatron-LM, taken for the releases that they stand for.

namespace tidemark::tests::stated_versions_test {
namespace {

const std::string training =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
    "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16\n";

Converted converted(const std::string& script, const std::string& packages = "") {
  ConvertRequest requested;
  requested.files = {"job.sh"};
  requested.texts = {{"job.sh", script}};
  if (!packages.empty()) {
    requested.files.emplace_back("requirements.txt");
    requested.texts["requirements.txt"] = packages;
  }
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  return convert(requested);
}
parallel::Versions versions(const std::string& script, const std::string& packages = "") {
  return scenario_of(converted(script, packages), shipped_data()).runtime.versions;
}
std::vector<std::string> reported(const std::vector<StatedVersion>& stated) {
  std::vector<std::string> found;
  for (const StatedVersion& its : stated)
    found.push_back(
        fmt::format("{}: {} {} by {}", its.place.line, its.component, scenarios::text(its.version), its.by));
  return found;
}
bool says(const Converted& its, const std::string& what, const std::string& why) {
  for (const Remark& remark : its.remarks)
    if (remark.kind == RemarkKind::Assumed && remark.what.find(what) != std::string::npos &&
        remark.why.find(why) != std::string::npos)
      return true;
  return false;
}

TEST(StatedVersions, AContainersTagIsItsPyTorch) {
  EXPECT_EQ(reported(versions_in_script("#SBATCH --container-image=nvcr.io#nvidia/pytorch:25.04-py3\n"
                                        "# docker run nvcr.io/nvidia/pytorch:24.10-py3\n"
                                        "IMAGE=\"nvcr.io/nvidia/pytorch:25.12-py3\"\n")),
            (std::vector<std::string>{"1: torch 2.7 by nvcr.io#nvidia/pytorch:25.04-py3",
                                      "3: torch 2.10 by nvcr.io/nvidia/pytorch:25.12-py3"}));
  EXPECT_EQ(versions("IMAGE=nvcr.io/nvidia/pytorch:25.04-py3\n" + training).torch, (parallel::Version{2, 7}));
}

TEST(StatedVersions, AnOldContainerIsTakenForTheFirstReleaseThatIsKnown) {
  const std::string script = "IMAGE=nvcr.io/nvidia/pytorch:23.12-py3\n" + training;
  EXPECT_EQ(versions(script).torch, (parallel::Version{2, 4}));
  EXPECT_TRUE(says(converted(script), "pytorch:23.12", "torch 2.2 is older than what is known here: taken as 2.4"));
}

TEST(StatedVersions, TwoThatDifferAreNeitherTakenAndAnUnknownOneIsSaid) {
  const std::string two = "A=nvcr.io/nvidia/pytorch:25.04-py3\nB=nvcr.io/nvidia/pytorch:24.10-py3\n" + training;
  EXPECT_EQ(versions(two).torch, parallel::Versions{}.torch);
  EXPECT_TRUE(says(converted(two), "pytorch:24.10", "neither is taken"));
  EXPECT_TRUE(says(converted("A=nvcr.io/nvidia/pytorch:29.01-py3\n" + training), "pytorch:29.01", "is not known here"));
}

TEST(StatedVersions, TagsAndBranchesOfMegatronAreItsRelease) {
  EXPECT_EQ(versions("git checkout core_v0.12.1\n" + training).megatron, (parallel::Version{0, 12}));
  EXPECT_EQ(versions("git clone -b core_r0.15.0 https://example.com/m\n" + training).megatron,
            (parallel::Version{0, 15}));
  const std::string old = "git checkout core_v0.6.0\n" + training;
  EXPECT_EQ(versions(old).megatron, (parallel::Version{0, 10}));
  EXPECT_TRUE(says(converted(old), "core_v0.6", "older"));
}

TEST(StatedVersions, ARequirementsFileOrPipFreezeStandsBesideTheScript) {
  const std::string packages =
      "# of the image\nnumpy>=1.26\ntorch==2.6.0+cu124\nTransformer_Engine[pytorch]==2.3.0\nmegatron-core==0.13.1 ; "
      "python_version > '3.8'\nflash-attn @ https://example.com/flash.whl\nnccl-of-nobody==9\ntransformers>=4.50\n";
  EXPECT_TRUE(lists_packages(packages));
  EXPECT_EQ(reported(versions_of_packages(packages)),
            (std::vector<std::string>{"3: torch 2.6 by torch==2.6.0+cu124",
                                      "4: transformer_engine 2.3 by transformer-engine==2.3.0",
                                      "5: megatron 0.13.1 by megatron-core==0.13.1 ; python_version > '3.8'"}));
  const parallel::Versions its = versions(training, packages);
  EXPECT_EQ(its.torch, (parallel::Version{2, 6}));
  EXPECT_EQ(its.transformer_engine, (parallel::Version{2, 3}));
  EXPECT_EQ(its.megatron, (parallel::Version{0, 13}));
}

TEST(StatedVersions, ArgumentsAndScenariosAreNoListsOfPackages) {
  EXPECT_FALSE(lists_packages("--num-layers 2 --hidden-size 512\n"));
  EXPECT_FALSE(lists_packages("model = \"models/llama-3.1-8b.json\"\n"));
  EXPECT_FALSE(lists_packages("torch\nnumpy\n")) << "which release of them nobody says";
}

}  // namespace
}  // namespace tidemark::tests::stated_versions_test
