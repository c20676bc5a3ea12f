#include "scenarios/recordings/logs/logged_steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "scenarios/recordings/logs/log_line.hpp"

namespace tidemark::scenarios {
namespace {

constexpr double ms = 1e-3;
constexpr double longest = 1e6;  // seconds

// As number_behind, of "5,000" and "2.43K" too; nothing where it is no more than nothing.
std::optional<double> rate_behind(std::string_view line, std::string_view word, std::size_t from = 0) {
  const std::size_t at = line.find(word, from);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t end = at + word.size();
  while (end < line.size() && (is_blank(line[end]) || line[end] == ':' || line[end] == '=')) ++end;
  std::string digits;
  for (; end < line.size() && (line[end] == ',' || line[end] == '.' || (line[end] >= '0' && line[end] <= '9')); ++end)
    if (line[end] != ',') digits += line[end];
  const std::optional<double> number = LineReader(digits).number<double>();
  if (!number || *number <= 0) return std::nullopt;
  const char unit = end < line.size() ? line[end] : ' ';
  return *number * (unit == 'K' ? 1e3 : unit == 'M' ? 1e6 : 1);
}

std::optional<double> seconds_of(std::string_view line) {
  for (const std::string_view milliseconds : {"elapsed time per iteration (ms)", "elapsed_time_per_iteration_ms"})
    if (const std::optional<double> found = rate_behind(line, milliseconds)) return *found * ms;
  return rate_behind(line, "train_step_timing in s");
}

std::optional<double> tokens_of(std::string_view line) {
  if (const std::optional<double> found = rate_behind(line, "throughput/device/TPS")) return found;
  const std::size_t step = line.find("step:");
  return step == std::string_view::npos ? std::nullopt : rate_behind(line, " tps:", step);
}

}  // namespace

std::vector<LoggedStep> logged_steps(std::string_view text) {
  std::vector<LoggedStep> steps;
  std::optional<Rank> whose;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = without_colours(text.substr(at, end - at));
    ++number, at = end + 1;
    if (line.find("validate step:") != std::string::npos) continue;
    const LoggedStep step{seconds_of(line), rate_behind(line, "CurrSamplesPerSec"), tokens_of(line), number};
    if (!step.seconds && !step.samples_per_s && !step.tokens_per_s_per_device) continue;
    const std::optional<Rank> rank = named_rank(line);
    if (steps.empty()) whose = rank;
    if (rank == whose) steps.push_back(step);
  }
  return steps;
}

std::optional<MeasuredStep> measured_step(const std::vector<LoggedStep>& steps, double samples, double tokens,
                                          double devices) {
  std::vector<double> took;
  for (const LoggedStep& step : steps) {
    const double its = step.seconds         ? *step.seconds
                       : step.samples_per_s ? samples / *step.samples_per_s
                                            : tokens / devices / *step.tokens_per_s_per_device;
    if (its > 0 && its < longest) took.push_back(its);
  }
  if (took.size() > 1) took.erase(took.begin());
  if (took.empty()) return std::nullopt;
  std::ranges::sort(took);
  const std::size_t half = took.size() / 2;
  const double median = took.size() % 2 == 1 ? took[half] : (took[half - 1] + took[half]) / 2;
  return MeasuredStep{Duration{std::llround(median * static_cast<double>(picoseconds_per_second))}, took.size()};
}

}  // namespace tidemark::scenarios
