// What the optimizer makes of a gradient, by its formula: of a program in float64, from the second step's gradient to
// what the model reads after it. What ranks and one rank have wrong together shows here.

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/math/engine/calculator.hpp"
#include "scenarios/validate/arithmetic/rank_training.hpp"
#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::updates_test {
namespace {

using Values = std::vector<double>;
using ByName = std::map<std::string, Values>;

struct Steps {
  std::map<std::int32_t, ByName> gradients, parameters;
};

Steps trained(const Scenario& scenario) {
  Steps steps;
  const Job job(scenario);
  const std::vector<std::string> ends = on_ranks(1, [&](World& world) {
    math::HostCalculator host;
    for (Finding& found : findings_in(RankTraining(job, {0}, job).run(world, host, math::Storage::Wide)))
      if (found.what != FindingKind::Loss)
        (found.what == FindingKind::Gradient ? steps.gradients : steps.parameters)[found.step][found.name] =
            std::move(found.values);
  });
  EXPECT_EQ(ends, all_well(1));
  return steps;
}

// How far the second step moves an element whose gradients were these (torch.optim's formulas).
double moved(Optimizer optimizer, double first, double second) {
  constexpr double rate = 1e-3, momentum = 0.9, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  switch (optimizer) {
    case Optimizer::Sgd:
      return -rate * second;
    case Optimizer::SgdMomentum:
      return -rate * (momentum * first + second);
    case Optimizer::AdamW: {
      const double mean = beta1 * (1 - beta1) * first + (1 - beta1) * second;
      const double square = beta2 * (1 - beta2) * first * first + (1 - beta2) * second * second;
      return -rate * mean / (1 - beta1 * beta1) / (std::sqrt(square / (1 - beta2 * beta2)) + epsilon);
    }
    case Optimizer::Lion: {
      // Zeros, then two gradients: betas 0.9 and 0.99.
      const double to = beta1 * 0.01 * first + (1 - beta1) * second;
      return -rate * static_cast<double>((to > 0) - (to < 0));
    }
    case Optimizer::Adafactor:
    case Optimizer::Muon:
    case Optimizer::AdamW8Bit:
    case Optimizer::Lion8Bit:
    case Optimizer::PagedAdamW:
    case Optimizer::PagedAdamW8Bit:
    case Optimizer::PagedLion:
    case Optimizer::PagedLion8Bit:
    case Optimizer::ApolloAdamW:
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return 0;  // of more than the element
  }
  return 0;
}

class Updates : public testing::TestWithParam<MathCase> {};

TEST_P(Updates, AreByTheOptimizersFormula) {
  const Scenario scenario = scenario_of(GetParam());
  const Steps steps = trained(scenario);
  std::size_t elements = 0;
  double farthest = 0;
  for (const auto& [name, after] : steps.parameters.at(2)) {
    const Values &before = steps.parameters.at(1).at(name), &first = steps.gradients.at(1).at(name),
                 &second = steps.gradients.at(2).at(name);
    ASSERT_EQ(after.size(), second.size()) << name;
    for (std::size_t i = 0; i < after.size(); ++i, ++elements) {
      const double expected = moved(scenario.train.optimizer, first[i], second[i]);
      farthest = std::max(farthest, std::abs(after[i] - before[i] - expected) / (std::abs(expected) + 1e-9));
    }
  }
  EXPECT_GT(elements, 10'000u);
  EXPECT_LT(farthest, 1e-5);
}

MathCase job(std::string name, std::string train, std::string precision = "fp32", std::string runtime = "") {
  MathCase made{.name = std::move(name), .layout = "", .train = std::move(train)};
  made.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  made.precision = std::move(precision);
  if (!runtime.empty()) made.runtime = "name = \"pytorch\"\n[runtime.switches]\nmax_grad_norm = 0.0\n" + runtime;
  return made;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Updates,
    testing::Values(job("megatron_adam", ""), job("megatron_adam_of_copies", "", "bf16"),
                    job("megatron_sgd_of_copies", "optimizer = \"sgd\"", "bf16"),
                    job("megatron_momentum", "optimizer = \"sgd_momentum\""),
                    job("pytorch_adam", "", "fp32", "foreach = true"),
                    job("pytorch_adam_one_by_one", "", "fp32", "foreach = false"),
                    job("pytorch_adam_in_one_kernel", "", "fp32", "fused = true"),
                    job("pytorch_momentum", "optimizer = \"sgd_momentum\"", "fp32", "foreach = true"),
                    job("pytorch_momentum_one_by_one", "optimizer = \"sgd_momentum\"", "fp32", "foreach = false")),
    [](const auto& test) { return test.param.name; });

// Of a square matrix: the polynomial x (a + b x xT + c (x xT)^2) five times, by its own definition.
Values made_orthogonal(Values x, std::size_t side) {
  using Row = std::array<double, 3>;
  const std::array<Row, 5> coefficients{Row{4.0848, -6.8946, 2.9270}, Row{3.9505, -6.3029, 2.6377},
                                        Row{3.7418, -5.5913, 2.3037}, Row{2.8769, -3.1427, 1.2046},
                                        Row{2.8366, -3.0525, 1.2012}};
  const auto product = [&](const Values& a, const Values& b, bool transposed) {
    Values c(side * side, 0.0);
    for (std::size_t i = 0; i < side; ++i)
      for (std::size_t j = 0; j < side; ++j)
        for (std::size_t k = 0; k < side; ++k)
          c[i * side + j] += a[i * side + k] * (transposed ? b[j * side + k] : b[k * side + j]);
    return c;
  };
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::sqrt(squares);
  for (const auto& [a, b, c] : coefficients) {
    const Values gram = product(x, x, true), cube = product(gram, x, false), fifth = product(gram, cube, false);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + b * cube[i] + c * fifth[i];
  }
  return x;
}

TEST(MuonsUpdates, AreMomentaMadeOrthogonal) {
  MathCase requested{.name = "muon", .train = "optimizer = \"muon\""};
  requested.override_keys = "num_key_value_heads = 2\nhead_dim = 8";
  const Steps steps = trained(scenario_of(requested));
  const std::string name = "layers.1.attention.proj.weight";
  constexpr std::size_t side = 32;
  const Values &first = steps.gradients.at(1).at(name), &second = steps.gradients.at(2).at(name);
  ASSERT_EQ(first.size(), side * side);
  Values momentum(first.size());
  for (std::size_t i = 0; i < momentum.size(); ++i) momentum[i] = 0.9 * 0.1 * first[i] + 0.1 * second[i];
  const Values direction = made_orthogonal(momentum, side);
  double farthest = 0;
  for (std::size_t i = 0; i < momentum.size(); ++i) {
    const double expected = -1e-3 * std::sqrt(double{side}) * direction[i];
    farthest = std::max(farthest,
                        std::abs(steps.parameters.at(2).at(name)[i] - steps.parameters.at(1).at(name)[i] - expected));
  }
  EXPECT_LT(farthest, 1e-9);
}

}  // namespace
}  // namespace tidemark::tests::updates_test
