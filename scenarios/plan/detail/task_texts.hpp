#pragma once

#include <cstdint>
#include <string>

#include "scenarios/plan/evaluate.hpp"

namespace tidemark::scenarios {

enum class TaskKind : std::uint8_t { Screen, Allocate, Time, Full, Parts };

[[nodiscard]] std::string screen_task(std::int64_t first, std::int64_t count, std::size_t nearest);
[[nodiscard]] std::string allocate_task(const Survivor& survivor, const Bar& bar);
[[nodiscard]] std::string time_task(const Found& fitting);
[[nodiscard]] std::string full_task(std::int64_t candidate);
[[nodiscard]] std::string parts_task(std::int64_t candidate, Duration step);

[[nodiscard]] std::string text_of(const Screened& screened);
[[nodiscard]] Screened screened_from(const std::string& text);
[[nodiscard]] std::string text_of(const StepParts& parts);
[[nodiscard]] StepParts parts_from(const std::string& text);
[[nodiscard]] std::string text_of(const Evaluated& evaluated);
[[nodiscard]] Evaluated evaluated_from(const std::string& text);

}  // namespace tidemark::scenarios
