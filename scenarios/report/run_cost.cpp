#include "scenarios/report/run_cost.hpp"

#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/report/step_range.hpp"

namespace tidemark::scenarios {
namespace {

constexpr double seconds_per_hour = 3600, seconds_per_day = 86'400;

Between operator*(const Between& its, double factor) {
  return {its.value * factor, its.low * factor, its.high * factor};
}

double seconds_of(Duration duration) {
  return static_cast<double>(duration.count()) / static_cast<double>(picoseconds_per_second);
}

Between step_seconds(const Prediction& p) {
  const StepRange range = step_range(p.step, p.scenario.cluster.device.efficiency);
  return {seconds_of(p.step.step), seconds_of(range.low), seconds_of(range.high)};
}

double tokens_per_step(const Scenario& s) {
  return static_cast<double>(s.train.global_batch) * static_cast<double>(s.train.sequence_length);
}

std::optional<Between> dollars_of(const Prediction& p, const Between& seconds) {
  const std::optional<Ratio>& of_an_hour = p.scenario.cluster.dollars_per_gpu_hour;
  if (!of_an_hour || p.deadlock) return std::nullopt;
  return seconds * (p.scenario.gpus * as_double(*of_an_hour) / seconds_per_hour);
}

std::string range_words(const Between& its) {
  return fmt::format("{} ({} to {})", rounded_amount(its.value), rounded_amount(its.low), rounded_amount(its.high));
}

// In days; in hours or minutes where it is less than one.
std::string length_words(const Between& seconds, std::string_view of_what) {
  constexpr double minute = 60;
  const auto in = [&](double unit, std::string_view name) {
    return fmt::format("{} {}{}", range_words(seconds * (1 / unit)), of_what, name);
  };
  if (seconds.value >= seconds_per_day) return in(seconds_per_day, "days");
  return seconds.value >= seconds_per_hour ? in(seconds_per_hour, "hours") : in(minute, "minutes");
}

}  // namespace

std::optional<RunCost> run_cost(const Prediction& p) {
  const Scenario& s = p.scenario;
  if (!s.run.known() || p.deadlock) return std::nullopt;
  RunCost cost;
  // A training goes on for whole steps: the last one may take it beyond the tokens that it was to have.
  cost.steps = s.run.steps > 0 ? static_cast<double>(s.run.steps)
                               : std::ceil(static_cast<double>(s.run.tokens) / tokens_per_step(s));
  cost.tokens = cost.steps * tokens_per_step(s);
  cost.seconds = step_seconds(p) * cost.steps;
  cost.gpu_days = cost.seconds * (s.gpus / seconds_per_day);
  cost.dollars = dollars_of(p, cost.seconds);
  return cost;
}

std::optional<Between> dollars_per_billion_tokens(const Prediction& p) {
  constexpr double billion = 1e9;
  return dollars_of(p, step_seconds(p) * (billion / tokens_per_step(p.scenario)));
}

std::string rounded_amount(double amount) {
  static constexpr std::array<std::string_view, 5> thousands{"", " k", " M", " B", " T"};
  constexpr double thousand = 1000, shown_whole = 999.5;
  std::size_t power = 0;
  while (amount >= shown_whole && power + 1 < thousands.size()) {
    amount /= thousand;
    ++power;
  }
  const int decimals = amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", amount, decimals, thousands[power]);
}

std::string run_cost_text(const Prediction& p) {
  const std::string rate = p.scenario.cluster.dollars_per_gpu_hour
                               ? fmt::format("${:.2f} a GPU-hour", as_double(*p.scenario.cluster.dollars_per_gpu_hour))
                               : std::string();
  if (const std::optional<RunCost> cost = run_cost(p)) {
    std::string out =
        fmt::format("the run, {} tokens in {:.0f} steps: {}, {}", rounded_amount(cost->tokens), cost->steps,
                    length_words(cost->seconds, ""), length_words(cost->gpu_days * seconds_per_day, "GPU-"));
    if (cost->dollars) out += fmt::format(", ${} at {}", range_words(*cost->dollars), rate);
    return out + "; steps alone\n";
  }
  if (const std::optional<Between> dollars = dollars_per_billion_tokens(p))
    return fmt::format("a billion tokens cost ${} at {}\n", range_words(*dollars), rate);
  return {};
}

}  // namespace tidemark::scenarios
