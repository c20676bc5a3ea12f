#include "parallel/frameworks/megatron/optimizer/parameters.hpp"

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

Parameters::Parameters(Worker& w) : made_(!w.built.parameters.empty()) {
  for (const auto& [id, weight] : w.weights())
    if (weight.parameter != nullptr) by_name_.emplace(weight.parameter->name, &weight);
}

const Weight* Parameters::add(Parameter parameter) {
  static const Weight nowhere;
  const auto [found, added] = by_name_.try_emplace(parameter.name, &nowhere);
  if (!added) return found->second;
  ensure(!made_, "a rank has the parameters that its modules register");
  parameter.layer = layer_;
  registered_.push_back(std::move(parameter));
  return &nowhere;
}

const Tensor& value_of(const Weight* weight) {
  static const Tensor none;
  return weight != nullptr ? weight->value : none;
}

Norm make_norm(const Worker& w, Parameters& parameters, const std::string& name) {
  return make_norm(w, parameters, name, w.model.hidden);
}

Norm make_norm(const Worker& w, Parameters& parameters, const std::string& name, std::int64_t width) {
  const auto vector = [&](const char* what) {
    return parameters.add({.name = name + what, .rows = width, .in_parts = GradientInParts::UnderSequenceParallelism});
  };
  const Weight* const weight = vector(".weight");
  return {w.name(name), weight, w.model.normalization == Normalization::Layer ? vector(".bias") : nullptr};
}

Linear make_linear(const Worker& w, Parameters& parameters, const std::string& name, std::int64_t rows,
                   std::int64_t columns, WeightCut cut, GemmBias bias) {
  const Weight* const weight = parameters.add(
      {.name = name + ".weight",
       .rows = rows,
       .columns = columns,
       .cut = cut,
       .in_parts = cut == WeightCut::None ? GradientInParts::UnderSequenceParallelism : GradientInParts::Never});
  if (bias == GemmBias::None) return {w.name(name), weight, nullptr};
  return {w.name(name), weight, parameters.add({.name = name + ".bias", .rows = rows, .cut = cut})};
}

const Weight* make_output_bias(const Worker& w, Parameters& parameters, const std::string& linear) {
  return parameters.add(
      {.name = linear + ".bias", .rows = w.model.hidden, .in_parts = GradientInParts::UnderSequenceParallelism});
}

}  // namespace tidemark::parallel::megatron
