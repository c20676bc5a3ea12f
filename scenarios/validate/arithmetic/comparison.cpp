#include "scenarios/validate/arithmetic/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

// What is no number is as wrong as can be.
double size_of_difference(double difference) { return std::isnan(difference) ? HUGE_VAL : std::abs(difference); }

}  // namespace

void Comparison::Loss::add(const Finding& finding) {
  for (const double value : finding.values) sum += value;
  count += static_cast<std::int64_t>(finding.values.size());
  op = finding.op;
}

Comparison::Comparison(MathCheck check, Optimizer optimizer, std::string_view of_one_rank)
    : check_(std::move(check)), optimizer_(optimizer) {
  for (Finding& finding : findings_in(of_one_rank)) {
    if (finding.what == FindingKind::Loss) {
      expected_losses_[finding.step].add(finding);
      continue;
    }
    Key key{finding.step, finding.name};
    (finding.what == FindingKind::Gradient ? gradients_ : updated_).emplace(std::move(key), std::move(finding));
  }
}

// Adam and others divide a gradient by its own size, or take its sign, so that of elements that should be nothing
// rounding is all that is left: in parameters always, and where numbers are not in float64, in what comes of them. In
// float64 the next step's gradients show what it did.
bool Comparison::comparable(const Finding& finding) const {
  if (optimizer_ == Optimizer::Sgd || optimizer_ == Optimizer::SgdMomentum) return true;
  return finding.what == FindingKind::Gradient && (check_.type == "float64" || finding.step == 1);
}

void Comparison::add(Rank rank, const RankParameters& parameters, std::string_view findings) {
  for (const Finding& finding : findings_in(findings)) {
    if (finding.what == FindingKind::Loss)
      losses_[finding.step].add(finding);
    else if (comparable(finding))
      compare(rank, parameters, finding);
  }
}

void Comparison::compare(Rank rank, const RankParameters& parameters, const Finding& finding) {
  const bool gradient = finding.what == FindingKind::Gradient;
  const Finding& whole = (gradient ? gradients_ : updated_).at({finding.step, finding.name});
  const ParameterPart& part = parameters.named(finding.name);
  ensure(static_cast<std::int64_t>(whole.values.size()) == part.elements(), "one rank holds all of a parameter");
  double largest = 1e-300;
  for (const double value : whole.values) largest = std::max(largest, std::abs(value));
  double relative = 0;
  for (std::size_t i = 0; i < finding.values.size(); ++i) {
    const std::int64_t place = part.place(finding.first + static_cast<std::int64_t>(i));
    const double apart = finding.values[i] - whole.values[static_cast<std::size_t>(place)];
    relative = std::max(relative, size_of_difference(apart / largest));
  }
  ++check_.tensors;
  differences_.push_back(
      {{fmt::format("{} of {}", gradient ? "gradient" : "parameter", finding.name), finding.step, rank.value, relative},
       whole.op});
}

MathCheck Comparison::finish() && {
  for (const auto& [step, loss] : losses_) {
    const Loss& expected = expected_losses_.at(step);
    check_.losses.push_back(loss.mean());
    check_.reference_losses.push_back(expected.mean());
    const double relative = size_of_difference(loss.mean() / expected.mean() - 1);
    differences_.push_back({{"loss", step, 0, relative}, expected.op});
  }
  // An error spreads: what one rank comes to first says most.
  const auto order = [this](const Difference& d) {
    const bool wrong = d.reported.relative > check_.tolerance;
    return std::tuple(!wrong, wrong ? d.op : 0, wrong ? d.reported.rank : 0, -d.reported.relative);
  };
  std::ranges::stable_sort(differences_, {}, order);
  for (std::size_t i = 0; i < std::min<std::size_t>(differences_.size(), 10); ++i)
    check_.worst.push_back(std::move(differences_[i].reported));
  return std::move(check_);
}

}  // namespace tidemark::scenarios
