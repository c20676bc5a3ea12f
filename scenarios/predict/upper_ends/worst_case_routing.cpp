#include "scenarios/predict/upper_ends/worst_case_routing.hpp"

namespace tidemark::scenarios {

std::optional<Train> worst_case(const Scenario& scenario) {
  const Model& model = scenario.model;
  const Layout& layout = scenario.layout;
  // One rank with all experts gets all choices, whichever they are.
  if (!model.experts() || layout.expert == 1 || !left_to_tokens(scenario.train.routing)) return std::nullopt;
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < model.all_layers(); ++layer) layers += model.has_experts(layer) ? 1 : 0;
  // Ranks with parts of the same experts get the same tokens. Any of these may be too many: their chances add up at
  // most (Boole's inequality).
  const std::int64_t ranks = std::int64_t{layout.expert} * layout.experts_data(),
                     micro_batches = scenario.train.global_batch / (scenario.train.micro_batch * layout.data);
  // Rows; and where a token goes once to a rank, tokens, on the rank and on its node.
  const std::int64_t kinds = scenario.train.routing.dispatcher == TokenDispatcher::Flex ? 3 : 1;
  Train train = scenario.train;
  train.routing.overload_probability =
      (1 - train.routing.quantile) / static_cast<double>(kinds * ranks * layers * micro_batches);
  return train;
}

}  // namespace tidemark::scenarios
