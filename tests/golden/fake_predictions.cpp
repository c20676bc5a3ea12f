#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/golden/fake_recordings.hpp"

// What is said here of trainings that were recorded.

namespace tidemark::tests::golden {
namespace {

// The recorder's category of an allocation.
Kind kind_of(Category category, Phase phase) {
  switch (category) {
    case Category::Parameters:
    case Category::Adapters:
    case Category::Quantization:
      return Kind::Parameter;
    case Category::Gradients:
    case Category::CommDp:
      return Kind::Gradient;
    case Category::OptimizerMoments:
      return Kind::OptimizerState;
    case Category::Recompute:
      return Kind::Activation;
    default:
      return phase == Phase::Forward ? Kind::Activation : Kind::Temporary;
  }
}

}  // namespace

std::vector<StepPeak> predicted_peaks(Scenario scenario, bool sums_in_place) {
  scenario.runtime.eager.fake_tensors = true;  // as the recorder's are that counts tensors
  Runtime runtime = runtime_of(scenario);
  runtime.eager->torch.sums_in_place = sums_in_place;
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  const LoweringInput input{built, scenario.layout, scenario.train, runtime};
  const Program program = lower_role(input, roles(input).front());

  std::vector<StepPeak> peaks(static_cast<std::size_t>(scenario.train.steps));
  StepPeak now;
  Mark mark;
  std::vector<std::pair<Kind, Bytes>> of_buffer(static_cast<std::size_t>(program.buffers));
  for (const Op& op : program.ops) {
    if (const Mark* next = std::get_if<Mark>(&op)) {
      if (program[next->label] == "zero_grad") peaks[static_cast<std::size_t>(next->step) - 1].after = now.total();
      mark = *next;
    } else if (const Alloc* alloc = std::get_if<Alloc>(&op)) {
      if (alloc->space != MemorySpace::Device) continue;
      const Bytes size{round_up(std::max<std::int64_t>(alloc->size.count(), 1), std::int64_t{512})};
      of_buffer[alloc->buffer.index()] = {kind_of(alloc->category, mark.phase), size};
      now[of_buffer[alloc->buffer.index()].first] += size;
      if (mark.step == 0) continue;
      StepPeak& peak = peaks[static_cast<std::size_t>(mark.step) - 1];
      if (now.total() <= peak.total()) continue;
      const Bytes after = peak.after;
      peak = now;
      peak.after = after;
      peak.where = std::string(name(mark.phase)) + ", " + program[alloc->label];
    } else if (const Free* free = std::get_if<Free>(&op)) {
      const auto& [kind, size] = of_buffer[free->buffer.index()];
      now[kind] = now[kind] - size;
    }
  }
  return peaks;
}

Program program_of(const Scenario& scenario, Rank rank) {
  const Runtime runtime = runtime_of(scenario);
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  const LoweringInput input{built, scenario.layout, scenario.train, runtime};
  const std::vector<Role> all = roles(input);
  const auto its = std::ranges::find_if(
      all, [&](const Role& role) { return std::ranges::find(role.ranks, rank) != role.ranks.end(); });
  return lower_role(input, *its);
}

std::vector<Bytes> requested_by_step(const Scenario& scenario, Rank rank) {
  const Program program = program_of(scenario, rank);
  // Of what is on the device.
  std::vector<Bytes> peaks(static_cast<std::size_t>(scenario.train.steps) + 1), sizes;
  sizes.resize(static_cast<std::size_t>(program.buffers));
  Bytes now;
  std::size_t step = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) {
      step = static_cast<std::size_t>(mark->step);
    } else if (const Alloc* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->space == MemorySpace::Device) {
      now += sizes[alloc->buffer.index()] = alloc->size;
      peaks[step] = std::max(peaks[step], now);
    } else if (const Free* free = std::get_if<Free>(&op)) {
      now = now - sizes[free->buffer.index()];
    }
  }
  return {peaks.begin() + 1, peaks.end()};
}

namespace {

MemoryRecord predicted_memory(const Scenario& scenario, Rank rank) {
  const Prediction prediction = predict(scenario, {}, {.frees = ReportedFrees::AtOnce});
  return std::ranges::find_if(
             prediction.groups,
             [&](const RankGroup& group) { return std::ranges::find(group.ranks, rank) != group.ranks.end(); })
      ->memory;
}

}  // namespace

HostPeaks predicted_host_peaks(const Scenario& scenario, Rank rank) {
  const MemoryRecord memory = predicted_memory(scenario, rank);
  return {memory.pinned.peak, memory.pageable.peak, memory.host.bytes};
}

std::vector<HostPeaks> predicted_host_by_step(const Scenario& scenario, Rank rank) {
  const Program program = program_of(scenario, rank);
  std::vector<HostPeaks> peaks(static_cast<std::size_t>(scenario.train.steps) + 1);
  std::vector<std::pair<Bytes HostPeaks::*, Bytes>> of_buffer(static_cast<std::size_t>(program.buffers));
  HostPeaks now;
  std::size_t step = 0;
  const auto note = [&] {
    for (Bytes HostPeaks::*const what : {&HostPeaks::pinned, &HostPeaks::pageable, &HostPeaks::both})
      peaks[step].*what = std::max(peaks[step].*what, now.*what);
  };
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) {
      step = static_cast<std::size_t>(mark->step);
      note();
    } else if (const Alloc* alloc = std::get_if<Alloc>(&op)) {
      if (alloc->space != MemorySpace::Pinned && alloc->space != MemorySpace::Pageable) continue;
      const bool pinned = alloc->space == MemorySpace::Pinned;
      const auto& [what, size] =
          of_buffer[alloc->buffer.index()] = {pinned ? &HostPeaks::pinned : &HostPeaks::pageable, alloc->size};
      now.*what += size;
      now.both += size;
      note();
    } else if (const Free* free = std::get_if<Free>(&op)) {
      const auto& [what, size] = of_buffer[free->buffer.index()];
      if (what == nullptr) continue;
      now.*what = now.*what - size;
      now.both = now.both - size;
    }
  }
  return peaks;
}

PlainRun predicted_plain_run(const Scenario& scenario, Rank rank) {
  const MemoryRecord memory = predicted_memory(scenario, rank);
  PlainRun run;
  // Construction comes first.
  run.allocated.assign(memory.peak_allocated_by_step.begin() + 1, memory.peak_allocated_by_step.end());
  run.reserved = memory.peak_reserved;
  return run;
}

std::size_t DrawnScore::equal() const {
  return static_cast<std::size_t>(std::count(off_at_peak.begin(), off_at_peak.end(), Bytes{}));
}

DrawnScore score(const std::vector<Recording>& recordings) {
  const auto share = [](Bytes predicted, Bytes recorded) {
    return static_cast<double>((predicted - recorded).count()) / static_cast<double>(recorded.count());
  };
  DrawnScore made;
  for (const Recording& r : recordings) {
    const std::vector<StepPeak> peaks = predicted_peaks(r.scenario, true);
    const PlainRun plain = predicted_plain_run(r.scenario);
    Bytes off;
    double allocated = 0;
    for (std::size_t step = 0; step < r.steps.size(); ++step) {
      const Bytes here = peaks[step].total() - r.steps[step].total();
      if (std::abs(here.count()) > std::abs(off.count())) off = here;
      const double of_step = share(plain.allocated[step], r.plain.allocated[step]);
      if (std::abs(of_step) > std::abs(allocated)) allocated = of_step;
    }
    made.names.push_back(r.name);
    made.off_at_peak.push_back(off);
    made.allocated.push_back(allocated);
    made.reserved.push_back(share(plain.reserved, r.plain.reserved));
  }
  return made;
}

}  // namespace tidemark::tests::golden
