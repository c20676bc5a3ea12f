#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/golden/golden_rows.hpp"

// Whoever picks a layout goes by the order of predicted times: of each model with three published layouts or more on
// one device, the predicted order is the measured one.

namespace tidemark::tests::order_test {
namespace {

constexpr double tie = 0.02;  // measured times nearer than that have no order

// Of a layout with so many micro-batches, tokens per second and device; a layout's figures are those of its most.
struct Layout {
  std::string name;
  double micro_batches = 0, predicted = 0, measured = 0;
};

TEST(OrderOfLayouts, IsTheMeasuredOne) {
  const std::filesystem::path root = TIDEMARK_SOURCE_DIR;
  std::map<std::string, std::map<std::string, Layout>> models;
  for (const golden::Family& family : golden::families())
    for (const golden::Row& row : family.rows) {
      const Scenario s = scenarios::read_scenario(row.scenario, root / "scenarios");
      const double tokens = static_cast<double>(s.train.sequence_length * s.train.global_batch) / s.gpus;
      const std::string model = fmt::format("{} {} layers of {}, {} tokens", s.cluster.device.name,
                                            s.model.layers.size(), s.model.hidden, s.train.sequence_length);
      const std::string layout = row.name.substr(0, row.name.rfind("_mbc"));
      const double micro_batches = std::stod(row.name.substr(row.name.rfind("_mbc") + 4));
      Layout& its = models[model][layout];
      if (micro_batches < its.micro_batches) continue;
      its = {layout, micro_batches, tokens / (1e3 * golden::predicted(row).step.s), tokens / row.step_ms};
    }
  int compared = 0;
  for (const auto& [model, layouts] : models) {
    if (layouts.size() < 3) continue;
    for (const auto& [a, x] : layouts)
      for (const auto& [b, y] : layouts) {
        if (x.measured <= y.measured * (1 + tie)) continue;
        ++compared;
        EXPECT_GT(x.predicted, y.predicted) << model << ": " << a << " is faster than " << b;
      }
  }
  EXPECT_GE(compared, 2) << "a model has three layouts that differ";
}

}  // namespace
}  // namespace tidemark::tests::order_test
