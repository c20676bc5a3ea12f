#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/estimate/rules.hpp"
#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// The guides' five buckets, of what one rank holds. They sum to its device memory where that is highest in a pass that
/// trains.
struct Buckets {
  Bytes parameters, gradients, optimizer;
  Bytes activations;  ///< saved or recomputed, temporaries, logits and loss
  Bytes kv_cache;     ///< of a rollout: the estimation guide's tables have it as a bucket more
  Bytes overhead;     ///< all else: communication, workspaces, NCCL, context, fragmentation

  [[nodiscard]] Bytes total() const { return parameters + gradients + optimizer + activations + kv_cache + overhead; }
  bool operator==(const Buckets&) const = default;
};
/// The highest moment of the forward passes or of the backward passes, whichever has more activations.
[[nodiscard]] const Peak& peak_of_passes(const MemoryRecord& memory);
/// At that moment; the cache is that of generation, and what the device holds besides at its peak is overhead.
[[nodiscard]] Buckets buckets_of(const MemoryRecord& memory);

/// A rule's number beside the simulated one.
struct RuleRow {
  std::string bucket;
  std::string rule;  ///< as the guide writes it
  rules::Source source;
  rules::Range guide;  ///< bytes
  Bytes simulated;
  std::string why;  ///< by what mechanism they differ

  /// By what part of the simulated number the guide's is off, from the nearer end of what it leaves open; 0 within it,
  /// and where nothing is simulated.
  [[nodiscard]] double off() const;
};

/// The back of the envelope beside the simulation.
struct Envelope {
  Prediction prediction;
  Buckets buckets;  ///< of the fullest rank
  double k = 0;     ///< of the estimation guide's formula for activations, that the simulated ones come to
  std::vector<RuleRow> rows;
};

/// Asks each rule that says something about the scenario, and the simulation.
[[nodiscard]] Envelope envelope(const Scenario& scenario, const Progress& progress = {});

/// The answer on one screen, and as JSON, schema "tidemark.estimate/1".
[[nodiscard]] std::string envelope_text(const Envelope& envelope);
[[nodiscard]] std::string envelope_json(const Envelope& envelope);

}  // namespace tidemark::scenarios
