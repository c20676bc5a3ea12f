#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// A moment of a rank's program that a user can name.
struct RequestedMoment {
  enum class Kind : std::uint8_t { DevicePeak, AllocatedPeak, HostPeak, End, OpIndex };
  Kind kind = Kind::DevicePeak;
  std::size_t op = 0;  ///< for Kind::OpIndex
};

/// Whether equal tensors of all layers share a line.
enum class Detail : std::uint8_t { ByRole, Everything };

/// The rank that `predict` names: whose device, or host, is fullest.
[[nodiscard]] Rank fullest_rank(const Job& job, RequestedMoment::Kind moment, const Progress& progress);

/// What is live on a rank's device at a moment, or on its host at the peak of that, as text; of a peak, why it is
/// there.
[[nodiscard]] std::string live_text(const Job& job, Rank rank, const RequestedMoment& at, Detail detail);
/// The same as JSON, schema "tidemark.live/1", every tensor on its own.
[[nodiscard]] std::string live_json(const Job& job, Rank rank, const RequestedMoment& at);

/// A stage of the flow as text. Of a model that cannot be lowered yet its parameters only.
[[nodiscard]] std::string model_text(const Scenario& scenario);
[[nodiscard]] std::string schedule_text(const Job& job);
[[nodiscard]] std::string communicators_text(const Job& job, Rank rank);
[[nodiscard]] std::string program_text(const Job& job, Rank rank);
[[nodiscard]] std::string costs_text(const Job& job, Rank rank);

}  // namespace tidemark::scenarios
