#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/predict/prediction.hpp"

// What options say, read: InputError, with a hint, where they say nothing possible.

namespace tidemark::cli {

/// Throws InputError about an option.
[[noreturn]] void refuse(std::string option, std::string message, std::string hint);

/// "3", "0,4-7" or "all".
[[nodiscard]] std::vector<Rank> requested_ranks(const std::string& text, const Scenario& scenario);
/// The same; steps count from 1, and 0 is construction.
[[nodiscard]] std::vector<std::int32_t> requested_steps(const std::string& text, const Scenario& scenario);
/// "gradients,comm_dp".
[[nodiscard]] std::vector<Category> requested_categories(const std::string& text);
/// "79.1 GiB": of what is written for people a part of a byte is dropped.
[[nodiscard]] Bytes requested_size(const std::string& option, const std::string& text);
/// "max-min" or "alpha-beta".
[[nodiscard]] LinkModel requested_link_model(const std::string& text);

}  // namespace tidemark::cli
