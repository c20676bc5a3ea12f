#include "scenarios/cluster/times_compare.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space_remarks.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/difference_text.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::times_compare_test {
namespace {

Cluster of_source(const std::string& device, const std::string& efficiencies) {
  Cluster cluster;
  cluster.device.name = device;
  cluster.device.efficiency.source = efficiencies;
  return cluster;
}

TEST(TimesCompare, WhereEfficienciesHaveOneSource) {
  const Cluster a = of_source("A", "guessed"), b = of_source("B", "guessed"), c = of_source("C", "fitted");
  EXPECT_EQ(why_times_do_not_compare({a, b}), std::nullopt);
  EXPECT_EQ(why_times_do_not_compare({c}), std::nullopt);
  EXPECT_EQ(why_times_do_not_compare({a, c, b, a}),
            "times of different clusters are not comparable if their efficiencies come from different sources: A, B "
            "(guessed) against C (fitted)");
}

std::string job(const std::string& cluster, const std::string& space) {
  return "model = \"models/gpt2.json\"\ncluster = \"clusters/" + cluster +
         ".toml\"\ngpus = 1\n[train]\nsequence_length = 128\nmicro_batch = 1\nglobal_batch = 1\n" + space;
}

Space space(const std::string& clusters) {
  return space_of(parse_toml(job("h100-sxm-80g", "[space]\ncluster = " + clusters + "\n"), "job"), "job", folders);
}

bool says_so(const std::string& answer) { return answer.find("are not comparable") != std::string::npos; }

TEST(TimesCompare, APlanOverClustersSaysWhetherTheyDo) {
  const Space of_two_sources = space(R"(["clusters/h100-sxm-80g.toml", "clusters/b200-sxm-180g.toml"])");
  const Plan found = plan(of_two_sources, {});
  EXPECT_TRUE(says_so(plan_text(of_two_sources, found)));
  EXPECT_TRUE(says_so(plan_json(of_two_sources, found)));

  const Space of_one_source = space(R"(["clusters/h100-sxm-80g.toml", "clusters/h800-sxm-80g.toml"])");
  EXPECT_FALSE(says_so(plan_text(of_one_source, plan(of_one_source, {}))));
  const Space of_one =
      space_of(parse_toml(job("b200-sxm-180g", "[space.train]\nmicro_batch = [1]\n"), "job"), "job", folders);
  EXPECT_TRUE(space_remarks(of_one).empty());
}

TEST(SpaceRemarks, CandidatesThatBoundsDoNotCoverAreToldBeforehand) {
  const auto remarks = [](const std::string& axes) {
    return space_remarks(space_of(parse_toml(job("b200-sxm-180g", axes), "job"), "job", folders));
  };
  EXPECT_TRUE(remarks("[space.layout]\ncontext = [1]\n").empty());
  ASSERT_EQ(remarks("[space.layout]\ncontext = [1, 2]\n").size(), 1U);
  EXPECT_NE(remarks("[space.layout]\ncontext = [1, 2]\n").front().find("run in full"), std::string::npos);
}

TEST(TimesCompare, AnAxisThatNamesAClusterBesideOtherKeysCounts) {
  const Space together = space_of(parse_toml(job("h100-sxm-80g", R"([space]
machine = [{cluster = "clusters/h100-sxm-80g.toml", gpus = 1}, {cluster = "clusters/a100-sxm-80g.toml", gpus = 2}]
)"),
                                             "job"),
                                  "job", folders);
  const std::vector<std::string> remarks = space_remarks(together);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_TRUE(says_so(remarks.front()));
}

TEST(TimesCompare, EveryPredictionAndADifferenceOfTwoSayIt) {
  const auto predicted = [](const std::string& cluster) {
    return predict(parse_scenario(job(cluster, ""), "job.toml", folders));
  };
  const Prediction h100 = predicted("h100-sxm-80g"), b200 = predicted("b200-sxm-180g");
  for (const Prediction& p : {h100, b200})
    EXPECT_TRUE(std::any_of(p.assumptions.begin(), p.assumptions.end(), says_so));
  EXPECT_TRUE(says_so(difference_text(h100, "a", b200, "b")));
  EXPECT_FALSE(says_so(difference_text(h100, "a", h100, "b")));
}

}  // namespace
}  // namespace tidemark::tests::times_compare_test
