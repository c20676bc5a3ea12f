#pragma once

#include <string>

#include "scenarios/estimate/envelope.hpp"

namespace tidemark::scenarios {

/// Why a simulated number is not the rule's: what of the scenario the rule leaves out, as far as it has it.
class Reasons {
 public:
  Reasons(const Prediction& prediction, const Buckets& buckets)
      : p_(prediction), s_(prediction.scenario), b_(buckets) {}

  [[nodiscard]] std::string parameters() const;
  [[nodiscard]] std::string gradients() const;
  [[nodiscard]] std::string optimizer() const;
  [[nodiscard]] std::string division() const;
  [[nodiscard]] std::string zero() const;
  [[nodiscard]] std::string hidden_states() const;
  [[nodiscard]] std::string activations(double k) const;
  [[nodiscard]] std::string no_scores() const;
  [[nodiscard]] std::string scores() const;
  [[nodiscard]] std::string checkpointing(Bytes whole, Bytes left) const;
  [[nodiscard]] std::string square_root() const;
  [[nodiscard]] std::string kv_cache() const;
  [[nodiscard]] std::string overhead() const;
  [[nodiscard]] std::string total() const;
  [[nodiscard]] std::string shortcut() const;

 private:
  [[nodiscard]] const MemoryRecord& memory() const { return p_.highest().memory; }
  [[nodiscard]] Bytes in_tensors(Category category) const { return peak_of_passes(memory()).composition[category]; }
  [[nodiscard]] Phase phase() const { return peak_of_passes(memory()).at.mark.phase; }
  [[nodiscard]] bool eager() const;
  /// Of what is trained, of a runtime that runs operation by operation.
  [[nodiscard]] DType trained_dtype() const;
  [[nodiscard]] std::string trained_share() const;
  /// Nothing where experts are shared out as all else is.
  [[nodiscard]] std::string of_experts() const;
  [[nodiscard]] bool shards_parameters() const { return s_.layout.sharding == Sharding::Zero3; }

  const Prediction& p_;
  const Scenario& s_;
  const Buckets& b_;
};

}  // namespace tidemark::scenarios
