#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// A whole number of a job, which grows as long as the job fits.
struct LargestQuestion {
  std::int64_t begin = 1;  ///< what the job has: with it, it can be asked about
  std::int64_t step = 1;   ///< other values are multiples of it
  /// Why there is no job with the value; empty where there is one.
  std::function<std::string(std::int64_t)> refusal;
  /// Of one that there is. InputError where it is more than can be simulated.
  std::function<bool(std::int64_t)> fits;
};

/// `value` fits and `next`, the next larger value that gives a job, does not: both were simulated. Of values between
/// others that were tried nothing is assumed but that one fits if a larger one does.
struct Largest {
  std::optional<std::int64_t> value;   ///< nothing: none fits
  std::optional<std::int64_t> next;    ///< nothing: all larger ones that were looked at give no job
  std::string refused;                 ///< then, why the first of those gives none; empty where none was looked at
  std::optional<std::int64_t> beyond;  ///< the search ended at this one, which is `refused`: more than can be simulated
  int simulated = 0;
};
[[nodiscard]] Largest largest_value(const LargestQuestion& question);

}  // namespace tidemark::scenarios
