#include "parallel/torch/record.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {

void Recorder::attach() {
  if (saved_.empty()) return;
  ensure(!recording_.operations.empty(), "what is saved was made by a kernel");
  // A function that launches nothing, as what scales an auxiliary loss's gradient, keeps what the one before it made.
  std::vector<std::string>& its = recording_.operations[std::min(function_, recording_.operations.size() - 1)].saved;
  for (std::string& tensor : std::exchange(saved_, {}))
    if (std::find(its.begin(), its.end(), tensor) == its.end()) its.push_back(std::move(tensor));
}

void Recorder::renamed(const std::string& tensor, const std::string& now) {
  for (Recording::Operation& op : recording_.operations) {
    if (!op.outputs.empty() && op.outputs.front() == tensor) op.name = now.substr(0, now.find('@'));
    for (std::vector<std::string>* names : {&op.inputs, &op.outputs, &op.saved})
      std::replace(names->begin(), names->end(), tensor, now);
  }
  std::replace(saved_.begin(), saved_.end(), tensor, now);
}

void Recorder::froze(const std::string& parameter) {
  for (Recording::State& state : recording_.state) state.frozen |= state.name == parameter;
}

std::string text(const Recording& recording, const std::string& model) {
  std::int64_t all = 0, elements = 0, trained = 0, trained_elements = 0;
  for (const Recording::State& state : recording.state) {
    if (!state.trained) continue;
    ++all;
    elements += elements_of(state.sizes);
    if (state.frozen) continue;
    ++trained;
    trained_elements += elements_of(state.sizes);
  }
  std::string out = fmt::format("{}: {} operations, {} parameters with {} elements", model, recording.operations.size(),
                                all, elements);
  if (trained < all) out += fmt::format(", of which {} with {} are trained", trained, trained_elements);
  out += '\n';
  for (const Recording::State& state : recording.state)
    out += fmt::format("{} {} {} {}\n",
                       !state.trained ? "buffer"
                       : state.frozen ? "frozen"
                                      : "parameter",
                       state.name, fmt::join(state.sizes, "x"), name(state.dtype));
  for (const Recording::Operation& op : recording.operations) {
    out += fmt::format("{}: {} -> {}", op.name, fmt::join(op.inputs, " "), fmt::join(op.outputs, " "));
    if (!op.saved.empty()) out += fmt::format("  saves {}", fmt::join(op.saved, " "));
    out += '\n';
  }
  return out;
}

}  // namespace tidemark::parallel::torch
