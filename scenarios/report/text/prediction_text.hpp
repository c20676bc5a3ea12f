#pragma once

#include <string>
#include <vector>

#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

// Where memory runs out, these tell what helps; of that, with `accepted`, what the scenario takes.

/// The answer in some fifteen lines: fits or not, how long a step takes, each stage's peak and what the highest is made
/// of; and what to ask next of `file`, which is empty where no file has the scenario.
[[nodiscard]] std::string brief_text(const Prediction& prediction, const std::string& file,
                                     const AcceptedChanges* accepted = nullptr);
/// All of it: on which rank, when, made of what; then stage by stage; what is assumed, and what is not modelled.
[[nodiscard]] std::string prediction_text(const Prediction& prediction, const AcceptedChanges* accepted = nullptr);

/// Its first lines: yes or no, by how much, and what helps.
[[nodiscard]] std::string verdict_text(const Prediction& prediction, const AcceptedChanges* accepted = nullptr);
/// What the upper ends have beside what is simulated, a line each; empty where there is nothing.
[[nodiscard]] std::string bounds_text(const std::vector<MemoryBound>& bounds);
/// Why there is neither yes nor no, with each name's place; empty where everything is judged.
[[nodiscard]] std::string not_judged_text(const std::vector<NotJudged>& names);
/// An answer's JSON with the list of them behind its first brace, where there are any.
[[nodiscard]] std::string with_not_judged(std::string json, const std::vector<NotJudged>& names);
/// What was asked: model, devices, layout, batch.
[[nodiscard]] std::string question_text(const Prediction& prediction);

/// The answer as JSON, schema "tidemark.prediction/1".
[[nodiscard]] std::string prediction_json(const Prediction& prediction, const AcceptedChanges* accepted = nullptr);

}  // namespace tidemark::scenarios
