#include "parallel/schedule/schedule.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

namespace tidemark::parallel {
namespace {

bool has_weight_gradients(const Schedule& schedule) {
  return std::any_of(schedule.begin(), schedule.end(),
                     [](const Action& action) { return action.kind == ActionKind::WeightGradient; });
}

std::string_view letters(ActionKind kind, bool parted) {
  switch (kind) {
    case ActionKind::Forward:
      return "F";
    case ActionKind::InputGradient:
      return "B";
    case ActionKind::WeightGradient:
      return "W";
    case ActionKind::Backward:
      return parted ? "BW" : "B";
  }
  return {};
}

Action parse_action(std::string_view word) {
  Action action;
  const auto refuse = [&] { throw std::invalid_argument(fmt::format("\"{}\" is no action of a schedule", word)); };
  const std::size_t digits = word.find_first_of("0123456789");
  if (digits == std::string_view::npos) refuse();
  const std::string_view kind = word.substr(0, digits);
  if (kind == "F")
    action.kind = ActionKind::Forward;
  else if (kind == "B")
    action.kind = ActionKind::InputGradient;
  else if (kind == "W")
    action.kind = ActionKind::WeightGradient;
  else if (kind == "BW")
    action.kind = ActionKind::Backward;
  else
    refuse();
  const char* const end = word.data() + word.size();
  const auto number = [&](const char* from, std::int32_t& value) {
    const auto [to, error] = std::from_chars(from, end, value);
    if (error != std::errc{}) refuse();
    return to;
  };
  const char* at = number(word.data() + digits, action.micro_batch);
  if (at != end && *at == '.') at = number(at + 1, action.chunk);
  if (at != end) refuse();
  return action;
}

}  // namespace

std::string text(const Schedule& schedule) {
  const bool several = std::any_of(schedule.begin(), schedule.end(), [](const Action& a) { return a.chunk > 0; });
  const bool parted = has_weight_gradients(schedule);
  std::string out;
  bool joined = false;
  for (const Action& action : schedule) {
    if (!out.empty()) out += joined ? '+' : ' ';
    out += fmt::format("{}{}", letters(action.kind, parted), action.micro_batch);
    if (several) out += fmt::format(".{}", action.chunk);
    joined = action.joined;
  }
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \n", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" +\n", at), text.size());
    schedule.push_back(parse_action(text.substr(at, end - at)));
    schedule.back().joined = end < text.size() && text[end] == '+';
    at = end + (schedule.back().joined ? 1 : 0);
  }
  if (has_weight_gradients(schedule)) return schedule;
  for (Action& action : schedule)
    if (action.kind == ActionKind::InputGradient) action.kind = ActionKind::Backward;
  return schedule;
}

std::int32_t most_in_flight(const Schedule& schedule) {
  std::int32_t now = 0, most = 0;
  for (const Action& action : schedule) {
    if (is_forward(action.kind)) most = std::max(most, ++now);
    if (is_last_of_micro_batch(action.kind)) --now;
  }
  return most;
}

}  // namespace tidemark::parallel
