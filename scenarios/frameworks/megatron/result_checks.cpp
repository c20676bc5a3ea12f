#include "scenarios/frameworks/megatron/result_checks.hpp"

namespace tidemark::scenarios {

ResultChecks read_result_checks(TomlReader& switches) {
  const bool either = !switches.boolean("no-check-for-nan-in-loss-and-grad").value_or(false);
  const auto half = [&](std::string_view name) { return switches.boolean(name).value_or(true) && either; };
  return {.nan_in_loss = half("check_for_nan_in_loss"),
          .nan_in_grad = half("check_for_nan_in_grad"),
          .spiky_loss = switches.boolean("check-for-spiky-loss").value_or(false),
          .large_grads = switches.boolean("check-for-large-grads").value_or(false)};
}

}  // namespace tidemark::scenarios
