#pragma once

#include <string>
#include <vector>

#include "scenarios/plan/capacity.hpp"
#include "scenarios/plan/changes/advise.hpp"

namespace tidemark::scenarios {

[[nodiscard]] std::string advice_text(const Advice& advice);
/// "tidemark.advice/1".
[[nodiscard]] std::string advice_json(const Advice& advice);

[[nodiscard]] std::string capacity_text(const Study& study, const std::vector<Limit>& limits);
/// "tidemark.capacity/1".
[[nodiscard]] std::string capacity_json(const Study& study, const std::vector<Limit>& limits);
[[nodiscard]] std::string capacity_csv(const Study& study, const std::vector<Limit>& limits);

}  // namespace tidemark::scenarios
