#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/te.hpp"

namespace tidemark::parallel::megatron {

/// Where modules register their parameters when they are constructed.
class Parameters {
 public:
  /// A rank's weights, which modules get by name; of a worker without parameters, a list of them is made.
  explicit Parameters(Worker& worker);
  /// What comes from now on belongs to that layer: -1 before the first, their number after the last.
  void enter(std::int32_t layer) { layer_ = layer; }
  [[nodiscard]] const Weight* add(Parameter parameter);
  [[nodiscard]] std::vector<Parameter> registered() && { return std::move(registered_); }

 private:
  bool made_;  ///< the rank's parameters are there
  std::int32_t layer_ = 0;
  std::map<std::string, const Weight*, std::less<>> by_name_;
  std::vector<Parameter> registered_;
};

/// Nothing where there is none.
[[nodiscard]] const Tensor& value_of(const Weight* weight);
/// Of so many dimensions of each token; of the residual stream where nothing is said.
[[nodiscard]] Norm make_norm(const Worker& w, Parameters& parameters, const std::string& name, std::int64_t width);
[[nodiscard]] Norm make_norm(const Worker& w, Parameters& parameters, const std::string& name);
/// A bias is the GEMM's; what comes after a linear registers its own. A weight that is not cut meets the tokens of its
/// rank.
enum class GemmBias : std::uint8_t { None, Added };
[[nodiscard]] Linear make_linear(const Worker& w, Parameters& parameters, const std::string& name, std::int64_t rows,
                                 std::int64_t columns, WeightCut cut, GemmBias bias);
/// Of a row-parallel linear, added to the sum of the ranks' parts.
[[nodiscard]] const Weight* make_output_bias(const Worker& w, Parameters& parameters, const std::string& linear);

}  // namespace tidemark::parallel::megatron
