#pragma once

#include <string>

#include "scenarios/prediction.hpp"

namespace tidemark::scenarios {

/// The answer on one screen: fits or not, on which rank, when, made of what; then stage by stage.
[[nodiscard]] std::string prediction_text(const Prediction& prediction);

/// Its first lines: yes or no, by how much, and what helps.
[[nodiscard]] std::string verdict_text(const Prediction& prediction);
/// What was asked: model, devices, layout, batch.
[[nodiscard]] std::string question_text(const Prediction& prediction);

/// The answer as JSON, schema "tidemark.prediction/1".
[[nodiscard]] std::string prediction_json(const Prediction& prediction);

}  // namespace tidemark::scenarios
