#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scenarios/prediction.hpp"

namespace tidemark::scenarios {

/// A moment of a rank's program that a user can name.
struct AskedMoment {
  enum class Kind : std::uint8_t { DevicePeak, AllocatedPeak, HostPeak, End, OpIndex };
  Kind kind = Kind::DevicePeak;
  std::size_t op = 0;  ///< for Kind::OpIndex
};

/// Whether equal tensors of all layers share a line.
enum class Detail : std::uint8_t { ByRole, Everything };

/// What is live on a rank at a moment, as text: on its device, or at the peak of its host there.
[[nodiscard]] std::string live_text(const Job& job, Rank rank, const AskedMoment& at, Detail detail);
/// The same as JSON, schema "tidemark.live/1", every tensor on its own.
[[nodiscard]] std::string live_json(const Job& job, Rank rank, const AskedMoment& at);

/// A stage of the flow as text. Of a model that cannot be lowered yet its parameters only.
[[nodiscard]] std::string model_text(const Scenario& scenario);
[[nodiscard]] std::string schedule_text(const Job& job);
[[nodiscard]] std::string communicators_text(const Job& job, Rank rank);
[[nodiscard]] std::string program_text(const Job& job, Rank rank);
[[nodiscard]] std::string prices_text(const Job& job, Rank rank);

}  // namespace tidemark::scenarios
