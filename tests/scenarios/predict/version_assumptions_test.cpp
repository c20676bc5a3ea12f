#include "scenarios/predict/assumptions/version_assumptions.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::version_assumptions_test {
namespace {

std::string job(const std::string& runtime) {
  return R"(model = "models/gpt2.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 1
[train]
sequence_length = 128
micro_batch = 1
[runtime]
)" + runtime;
}

Scenario read(const std::string& runtime) { return parse_scenario(job(runtime), "job.toml", folders); }

std::string problem(const std::string& runtime) {
  try {
    (void)read(runtime);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

using Lines = std::vector<std::string>;

TEST(Versions, OlderOnesThanAnyoneReadAreRefused) {
  EXPECT_EQ(problem("versions = {megatron = \"0.2\"}"),
            "job.toml:8:24: error: megatron = \"0.2\" is older than 0.10, the first release that Tidemark knows\n"
            "  hint: \"0.10\" to \"0.19\" would do; later ones are taken as the last");
  EXPECT_EQ(problem("name = \"pytorch\"\nversions = {torch = \"1.9\"}"),
            "job.toml:9:21: error: torch = \"1.9\" is older than 2.4, the first release that Tidemark knows\n"
            "  hint: \"2.4\" to \"2.15\" would do; later ones are taken as the last");
  for (const char* old : {"transformer_engine = \"2.0\"", "torch = \"2.3.1\"", "nccl = \"2.16\""})
    EXPECT_NE(problem("versions = {" + std::string(old) + "}").find("is older than"), std::string::npos) << old;
  EXPECT_NE(problem("name = \"pytorch\"\nversions = {transformers = \"4.44\"}").find("is older than"),
            std::string::npos);
}

TEST(Versions, NonsenseIsRefused) {
  for (const char* text : {"\"banana\"", "\"1..2\"", "\"\"", "\"2\"", "\"2.\"", "\"-2.1\"", "99", "\"99.0\"", "true"})
    for (const char* key : {"megatron", "torch", "nccl"})
      EXPECT_NE(problem(std::string("versions = {") + key + " = " + text + "}"), "no problem") << key << " = " << text;
  EXPECT_NE(problem("versions = {cuda = \"banana\"}"), "no problem");
}

TEST(Versions, AllProblemsAreTold) {
  const std::string all = problem("versions = {megatron = \"0.2\", torch = \"1.9\"}");
  EXPECT_NE(all.find("megatron"), std::string::npos);
  EXPECT_NE(all.find("torch"), std::string::npos);
}

TEST(Versions, NewerOnesAreTakenAsTheLastOneKnownAndTheAnswerSaysSo) {
  const Scenario s = read("versions = {megatron = \"0.25\", transformer_engine = \"3.1\"}");
  EXPECT_EQ(version_assumptions(s.runtime),
            (Lines{"Megatron-LM core 0.25: as of 0.19, the last release that Tidemark knows",
                   "TransformerEngine 3.1: as of 2.18, the last release that Tidemark knows",
                   "versions that select nothing: CUDA 13.1, transformers 5.23"}));
  const Lines reported = predict(s).assumptions;
  ASSERT_GE(reported.size(), 4u);
  EXPECT_EQ(reported[0], "Megatron-LM core 0.25 with TransformerEngine 3.1 on PyTorch 2.10");
  EXPECT_EQ(reported[1], "Megatron-LM core 0.25: as of 0.19, the last release that Tidemark knows");
}

TEST(Versions, ThoseThatSelectNothingAreNamed) {
  EXPECT_EQ(version_assumptions(read("versions = {cuda = \"11.0\"}").runtime),
            (Lines{"versions that select nothing: CUDA 11.0, transformers 5.23"}));
  EXPECT_EQ(version_assumptions(read("name = \"pytorch\"\nversions = {megatron = \"0.2\"}").runtime),
            (Lines{"versions that select nothing: Megatron-LM core 0.2, TransformerEngine 2.11, CUDA 13.1"}));
}

}  // namespace
}  // namespace tidemark::tests::version_assumptions_test
