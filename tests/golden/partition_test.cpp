#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parallel/compile/partitioner.hpp"
#include "sim/base/units.hpp"

// What PyTorch's partitioner kept of graphs that torch.compile made of torchtitan's layers and loss
// (tests/ground_truth/record_partitions.py), tensor by tensor.

namespace tidemark::tests::golden::partition_test {
namespace {

using parallel::compile::GraphNode;
using parallel::compile::JointGraph;
using parallel::compile::Policy;
using sim::Bytes;
using Json = nlohmann::json;

struct Partition {
  std::string name;
  JointGraph graph;
  std::vector<std::string> names;  // of its nodes
  std::vector<std::string> saved;
  double budget = 1;
};

Partition read(const std::filesystem::path& path) {
  const Json json = Json::parse(std::ifstream(path));
  Partition its;
  its.name = path.stem().string();
  std::map<std::string, std::size_t> places;
  const auto places_of = [&](const Json& names) {
    std::vector<std::size_t> all;
    for (const Json& name : names) all.push_back(places.at(name.get<std::string>()));
    return all;
  };
  for (const Json& recorded : json.at("nodes")) {
    const std::vector<std::string> classes = recorded.at("classes");
    const auto is = [&](const char* what) { return std::ranges::count(classes, what) > 0; };
    const std::string policy = recorded.value("policy", "");
    its.graph.nodes.push_back({.inputs = places_of(recorded.at("inputs")),
                               .bytes = Bytes{recorded.at("bytes").get<std::int64_t>()},
                               .policy = policy == "save"        ? Policy::Save
                                         : policy == "recompute" ? Policy::Recompute
                                                                 : Policy::None,
                               .input = is("input"),
                               .fixed = is("static"),
                               .tangent = is("tangent"),
                               .view = is("view"),
                               .fusible = is("fusible"),
                               .recomputable = is("recomputable"),
                               .intensive = is("compute_intensive"),
                               .random = is("random"),
                               .joins = is("joins"),
                               .several = is("several"),
                               .part = is("part"),
                               .flops = recorded.value("flops", std::int64_t{1})});
    its.names.push_back(recorded.at("name"));
    places[its.names.back()] = places.size();
  }
  its.budget = json.value("budget", 1.0);
  its.graph.outputs = places_of(json.at("outputs"));
  its.graph.gradients = places_of(json.at("gradients"));
  for (const Json& name : json.at("saved")) its.saved.push_back(name);
  return its;
}

std::vector<Partition> partitions() {
  std::vector<Partition> all;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TIDEMARK_SOURCE_DIR) /
                                                               "tests/golden/partitions/recordings"))
    all.push_back(read(entry.path()));
  std::ranges::sort(all, {}, &Partition::name);
  return all;
}

class Partitions : public testing::TestWithParam<Partition> {};

TEST_P(Partitions, KeepWhatPyTorchKeeps) {
  const Partition& its = GetParam();
  std::vector<std::string> kept;
  for (const std::size_t node : saved_values(its.graph, its.budget)) kept.push_back(its.names[node]);
  EXPECT_EQ(kept, its.saved);
}

INSTANTIATE_TEST_SUITE_P(Recordings, Partitions, testing::ValuesIn(partitions()),
                         [](const testing::TestParamInfo<Partition>& row) {
                           std::string name = row.param.name;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace tidemark::tests::golden::partition_test
