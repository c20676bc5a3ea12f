#include "parallel/frameworks/megatron/moe.hpp"

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

namespace {

// TransformerEngine's GroupedLinear (pytorch/module/grouped_linear.py): weight and bias of one expert after the other.
std::vector<Linear> make_grouped(const Worker& w, Parameters& parameters, const std::string& experts,
                                 std::string_view linear, const Parameter& weight) {
  std::vector<Linear> made;
  for (std::int32_t i = 0; i < w.model.experts->count; ++i) {
    const std::string name = fmt::format("{}.{}.{}", experts, i, linear);
    Parameter its = weight;
    its.name = name + ".weight";
    its.expert = i;
    made.push_back({w.name(name), parameters.add(its), nullptr});
    if (!w.model.experts->biases) continue;
    Parameter bias{.name = name + ".bias", .rows = weight.rows, .expert = i};
    if (weight.cut == WeightCut::Rows) bias.cut = WeightCut::Rows;
    made.back().bias = parameters.add(std::move(bias));
  }
  return made;
}

}  // namespace

// A module's own parameters come before those of modules within it: the shared experts' gate before their linears.
MoeLayer::MoeLayer(Worker& w, Parameters& parameters, const std::string& layer) : w_(w), name_(w.name(layer + ".mlp")) {
  const Model& m = w.model;
  const Experts& experts = *m.experts;
  ensure(m.norms == NormPlacement::Before, "what experts read is normalized");
  const std::string at = layer + ".mlp";
  const std::int64_t halves = gated(m.activation) ? 2 : 1;
  const auto of_each_token = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    return parameters.add(
        {.name = at + name, .rows = rows, .columns = columns, .in_parts = GradientInParts::UnderSequenceParallelism});
  };
  norm_ = make_norm(w, parameters, at + ".norm");
  router_ = of_each_token(".router.weight", experts.count, m.hidden);
  if (experts.biases) router_bias_ = of_each_token(".router.bias", experts.count, 1);
  fc1_ = make_grouped(w, parameters, at + ".experts", "fc1",
                      {.name = {}, .rows = halves * experts.ffn, .columns = m.hidden, .cut = WeightCut::Rows});
  fc2_ = make_grouped(w, parameters, at + ".experts", "fc2",
                      {.name = {}, .rows = m.hidden, .columns = experts.ffn, .cut = WeightCut::Columns});
  if (experts.shared_ffn == 0) return;
  if (experts.shared_gate) shared_gate_ = of_each_token(".shared.gate.weight", 1, m.hidden);
  shared_fc1_ = make_linear(w, parameters, at + ".shared.fc1", halves * experts.shared_ffn, m.hidden, WeightCut::Rows,
                            GemmBias::None);
  shared_fc2_ =
      make_linear(w, parameters, at + ".shared.fc2", m.hidden, experts.shared_ffn, WeightCut::Columns, GemmBias::None);
}

}  // namespace tidemark::parallel::megatron
