#include "scenarios/report/math_report.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::string tell(const MathDifference& d) {
  return fmt::format("{} of step {} on rank {}: {:.1e}", d.what, d.step, d.rank, d.relative);
}

}  // namespace

// Losses fall within a few steps of a model that learns nothing but its batches: they are shown to be alive.
std::string math_text(const MathCheck& check) {
  std::string line = fmt::format("\nreal numbers in {}: loss", check.type);
  for (std::size_t step = 0; step < check.losses.size(); ++step)
    line += fmt::format("{} {:.9g}", step == 0 ? "" : ",", check.losses[step]);
  line += ", on one rank";
  for (std::size_t step = 0; step < check.reference_losses.size(); ++step)
    line += fmt::format("{} {:.9g}", step == 0 ? "" : ",", check.reference_losses[step]);
  line += fmt::format(
      "\n  {} tensors compared; relative to the largest element, {:.0e} is allowed and the farthest apart {}\n",
      check.tensors, check.tolerance, check.agrees() ? "is" : "are");
  if (!check.spoiled.empty()) line += "  wrong on purpose: " + check.spoiled + '\n';
  for (const std::string& wrong : check.wrong) line += "  " + wrong + '\n';
  const std::size_t shown = check.agrees() ? 1 : check.worst.size();
  for (std::size_t i = 0; i < std::min(shown, check.worst.size()); ++i) line += "  " + tell(check.worst[i]) + '\n';
  return line;
}

std::string math_json(const MathCheck& check) {
  Json worst = Json::array();
  for (const MathDifference& d : check.worst)
    worst.push_back({{"what", d.what}, {"step", d.step}, {"rank", d.rank}, {"relative_difference", d.relative}});
  return Json{{"type", check.type},
              {"agrees", check.agrees()},
              {"tolerance", check.tolerance},
              {"losses", check.losses},
              {"losses_on_one_rank", check.reference_losses},
              {"tensors", check.tensors},
              {"farthest_apart", std::move(worst)},
              {"read_unwritten", check.wrong},
              {"wrong_on_purpose", check.spoiled}}
      .dump();
}

}  // namespace tidemark::scenarios
