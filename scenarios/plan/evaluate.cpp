#include "scenarios/plan/evaluate.hpp"

#include <algorithm>
#include <limits>

#include "scenarios/formats/internal_error.hpp"
#include "scenarios/plan/bounds/step_parts.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/predict/prediction.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

// From any thread.
void lower(std::atomic<Bytes>& least, Bytes other) {
  Bytes known = least.load();
  while (other < known && !least.compare_exchange_weak(known, other)) {
  }
}

const std::string deadlocks = "it deadlocks: predict says who waits for whom";

// Whether estimates decide: at their central values it would fit.
bool straddles(const Scenario& scenario, const Figures& figures) {
  return figures.completed && !fits(scenario, figures) && memory_shortfall(scenario, figures.device) <= Bytes{0};
}

Scenario scenario_of_candidate(const Space& space, std::int64_t index) {
  const auto made = candidate(space, index);
  const auto* scenario = std::get_if<Scenario>(&made);
  ensure(scenario != nullptr, "what survived the screen is a candidate");
  return *scenario;
}

Evaluated failed(std::int64_t candidate, std::string why) {
  Evaluated found;
  found.verdict = Evaluated::Verdict::Failed;
  found.failed = {candidate, std::move(why)};
  return found;
}

// What `judge` says of the candidate. That Tidemark is wrong about one says nothing of the others.
template <class Judge>
Evaluated judged(std::int64_t candidate, const Judge& judge) {
  try {
    return judge();
  } catch (const InternalError& error) {
    return failed(candidate, error.what());
  }
}

}  // namespace

bool beats(const Point& point, Bytes memory_low, double throughput_high) {
  return point.memory <= memory_low && point.throughput >= throughput_high &&
         (point.memory < memory_low || point.throughput > throughput_high);
}

bool Bar::beats(Bytes memory_low, double throughput_high) const {
  return throughput_high < throughput && std::any_of(front.begin(), front.end(), [&](const Point& p) {
           return scenarios::beats(p, memory_low, throughput_high);
         });
}

void keep_nearest(std::vector<Miss>& misses, std::size_t most) {
  const auto all = [](const Miss& m) { return std::max(m.lacks, Bytes{}) + std::max(m.host_lacks, Bytes{}); };
  std::sort(misses.begin(), misses.end(), [&](const Miss& a, const Miss& b) {
    return all(a) != all(b) ? all(a) < all(b) : a.candidate < b.candidate;
  });
  misses.resize(std::min(misses.size(), most));
}

Screened Evaluator::screen(std::int64_t first, std::int64_t count, std::size_t nearest) {
  Screened screened;
  for (std::int64_t index = first; index < first + count; ++index) {
    const auto made = candidate(space_, index);
    if (const auto* dropped = std::get_if<NoCandidate>(&made)) {
      ++screened.dropped[dropped->reason];
      continue;
    }
    const auto& scenario = std::get<Scenario>(made);
    ++screened.candidates;
    const auto reject = [&](Bytes lacks) {
      ++screened.rejected;
      screened.nearest.push_back({index, lacks, {}, false, false, 0});
      if (screened.nearest.size() <= 4 * nearest) return;
      keep_nearest(screened.nearest, nearest);
      lower(farthest_near_, screened.nearest.back().lacks);
    };
    // Of what cannot fit, and lacks more than all near misses, nothing more is asked.
    const Bytes lacks_at_least =
        Bounder::has_bounds(scenario) ? memory_shortfall(scenario, bounder_.held(scenario)) : Bytes{};
    if (lacks_at_least > std::max(farthest_near_.load(), Bytes{})) {
      ++screened.rejected;
      continue;
    }
    const std::optional<Bounder::Ground> ground = bounder_.proof_of(scenario);
    if (!ground && lacks_at_least > Bytes{}) {
      reject(lacks_at_least);
      continue;
    }
    if (!ground) {
      ++screened.unbounded;
      screened.survivors.push_back({index, Bytes{}, Duration{}, for_ever, std::numeric_limits<double>::infinity()});
      continue;
    }
    const MemoryBounds memory = bounder_.memory(scenario, *ground);
    if (const Bytes lacks = memory_shortfall(scenario, memory.device_upper); lacks > Bytes{0}) {
      reject(lacks);
      continue;
    }
    const DurationBounds step = bounder_.step(scenario, *ground);
    screened.survivors.push_back({index, memory.device_upper, step.low, step.high,
                                  tokens_per_s_per_device(scenario, std::max(step.low, Duration{1}))});
  }
  keep_nearest(screened.nearest, nearest);
  if (nearest > 0 && screened.nearest.size() == nearest) lower(farthest_near_, screened.nearest.back().lacks);
  for (Miss& miss : screened.nearest) {
    const Scenario scenario = scenario_of_candidate(space_, miss.candidate);
    const std::optional<Bounder::Ground> ground = bounder_.proof_of(scenario);
    miss.throughput =
        ground ? tokens_per_s_per_device(scenario, std::max(bounder_.step(scenario, *ground).low, Duration{1}))
               : std::numeric_limits<double>::infinity();
  }
  return screened;
}

Evaluated Evaluator::allocate(const Survivor& survivor, const Bar& bar) {
  const Scenario scenario = scenario_of_candidate(space_, survivor.candidate);
  if (!bounder_.covers(scenario)) {
    Evaluated found = in_full(survivor.candidate);
    found.found.step_low = survivor.step_low;
    found.found.step_high = survivor.step_high;
    return found;
  }
  return judged(survivor.candidate, [&] {
    // Once a rank leaves nothing to win, or does not fit, the others make no difference.
    Evaluated found;
    const ExactMemory::Answer answer = memory_.of(scenario, [&](Bytes memory) {
      const bool beaten = bar.beats(memory, survivor.throughput_high);
      if (beaten) found.found.figures.device_upper = std::max(found.found.figures.device_upper, memory);
      return beaten;
    });
    if (answer.dominated) return found;
    const Figures& figures = answer.figures;
    if (!fits(scenario, figures)) {
      found.verdict = Evaluated::Verdict::DoesNotFit;
      found.miss = {survivor.candidate,
                    memory_shortfall(scenario, figures.device_upper),
                    host_memory_shortfall(scenario, figures),
                    false,
                    straddles(scenario, figures),
                    survivor.throughput_high};
      return found;
    }
    found.verdict = Evaluated::Verdict::Fits;
    found.asks_the_clock = answer.asks_the_clock;
    found.found = {survivor.candidate, figures, survivor.step_low, survivor.step_high, false};
    return found;
  });
}

Evaluated Evaluator::time(const Found& fitting) {
  const Scenario scenario = scenario_of_candidate(space_, fitting.candidate);
  return judged(fitting.candidate, [&] {
    const std::optional<Duration> step = time_.step(scenario);
    if (!step) return failed(fitting.candidate, deadlocks);
    Evaluated found{Evaluated::Verdict::Fits, true, false, fitting, {}, {}};
    found.found.figures.step = *step;
    found.found.figures.throughput = tokens_per_s_per_device(scenario, *step);
    return found;
  });
}

StepParts Evaluator::parts(std::int64_t candidate, Duration step) {
  try {
    return step_parts(scenario_of_candidate(space_, candidate), step);
  } catch (const InternalError&) {
    return {};  // told where it ran
  }
}

Evaluated Evaluator::in_full(std::int64_t index) {
  const Scenario scenario = scenario_of_candidate(space_, index);
  return judged(index, [&] {
    const Figures figures = whole_run_(scenario);
    if (figures.deadlocks) return failed(index, deadlocks);
    Evaluated found;
    found.verdict = fits(scenario, figures) ? Evaluated::Verdict::Fits : Evaluated::Verdict::DoesNotFit;
    found.timed = true;
    found.found = {index, figures, figures.step, figures.step, false};
    found.miss = {index,
                  memory_shortfall(scenario, figures.device_upper),
                  host_memory_shortfall(scenario, figures),
                  true,
                  straddles(scenario, figures),
                  figures.throughput};
    return found;
  });
}

}  // namespace tidemark::scenarios
