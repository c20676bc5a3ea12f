#include "scenarios/plan/largest.hpp"

#include <map>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

// Of neighbours of a value that is none of a job: enough to find the next multiple of what ranks share.
constexpr std::int64_t looked_at = 1024;
constexpr std::int64_t no_larger = std::int64_t{1} << 50;

class LargestSearch {
 public:
  explicit LargestSearch(const LargestQuestion& question) : question_(question) {}

  Largest run() {
    Largest found;
    std::optional<std::int64_t> fitting, failing;
    const auto simulate = [&](std::int64_t value) {
      ++found.simulated;
      const bool fits = question_.fits(value);
      (fits ? fitting : failing) = value;
      return fits;
    };
    if (simulate(question_.begin)) {
      while (!failing && *fitting < no_larger) {
        const std::optional<std::int64_t> larger = job_near(2 * *fitting, *fitting, 4 * *fitting);
        if (!larger) break;
        try {
          simulate(*larger);
        } catch (const InputError& error) {
          found.value = fitting;
          found.beyond = *larger;
          found.refused = error.problems().front().message;
          return found;
        }
      }
    } else {
      while (!fitting) {
        const std::optional<std::int64_t> smaller = job_near(*failing / 2, 0, *failing);
        if (!smaller) break;
        simulate(*smaller);
      }
    }
    while (fitting && failing) {
      const std::optional<std::int64_t> between = job_near((*fitting + *failing) / 2, *fitting, *failing);
      if (!between) break;
      simulate(*between);
    }
    found.value = fitting;
    found.next = failing;
    if (fitting && !failing) found.refused = refusal(*fitting + question_.step - *fitting % question_.step);
    return found;
  }

 private:
  const std::string& refusal(std::int64_t value) {
    const auto [at, is_new] = refusals_.try_emplace(value);
    if (is_new) at->second = question_.refusal(value);
    return at->second;
  }

  // The job whose value is nearest to `target`, between both ends without them.
  std::optional<std::int64_t> job_near(std::int64_t target, std::int64_t above, std::int64_t below) {
    const std::int64_t middle = target - target % question_.step;
    for (std::int64_t away = 0; away < looked_at; ++away)
      for (const std::int64_t value : {middle - away * question_.step, middle + away * question_.step})
        if (value > above && value < below && refusal(value).empty()) return value;
    return std::nullopt;
  }

  const LargestQuestion& question_;
  std::map<std::int64_t, std::string> refusals_;
};

}  // namespace

Largest largest_value(const LargestQuestion& question) { return LargestSearch(question).run(); }

}  // namespace tidemark::scenarios
