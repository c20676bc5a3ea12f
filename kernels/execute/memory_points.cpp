#include "kernels/execute/memory_points.hpp"

#include <algorithm>
#include <map>

#include "sim/memory/replay.hpp"

namespace tidemark::execute {
namespace {

constexpr std::size_t samples_of_last_step = 32;
constexpr std::size_t samples_before = 16;

struct Curve {
  std::vector<MemoryPoint> after;  // by op of the program without frees
  std::vector<MemoryPoint> phases;
  MemoryPoint peak;
  Bytes reserved;
};

// A replay that counts pages beside blocks. What is in host memory is resident where blocks are, in a process.
Curve curve_of(const Program& predicted, PageScale scale, Holding holding) {
  // By op of the predicted program: blocks and their pages that come (positive) or go (negative), and segments after
  // it.
  std::vector<Bytes> blocks(predicted.ops.size()), pages(blocks), segments(predicted.ops.size(), Bytes{-1});
  DriverCosts nothing;  // host memory has no driver
  std::size_t slots = 0;
  for (const Op& op : predicted.ops)
    if (const auto* create = std::get_if<CreateCommunicator>(&op)) slots = std::max(slots, create->comm.index() + 1);
  nothing.communicators.resize(slots);
  const ObservedMemory observed = replay(predicted, nothing, {}, [&](const MemoryEvent& event) {
    if (const auto* tensor = std::get_if<TensorEvent>(&event.what)) {
      const bool comes = tensor->kind == TensorEvent::Kind::Alloc;
      blocks[event.at.op] = comes ? tensor->block : -tensor->block;
      pages[event.at.op] = comes ? scale.held(tensor->block) : -scale.held(tensor->block);
    }
    segments[event.at.op] = event.reserved;
  });

  std::map<BufferId, Bytes> on_host;
  for (std::size_t i = 0; i < predicted.ops.size(); ++i) {
    if (const auto* alloc = std::get_if<Alloc>(&predicted.ops[i]);
        alloc != nullptr && alloc->space != MemorySpace::Device)
      pages[i] = on_host[alloc->buffer] = scale.held(alloc->size);
    else if (const auto* free = std::get_if<Free>(&predicted.ops[i]); free != nullptr && on_host.contains(free->buffer))
      pages[i] = -on_host.at(free->buffer);
  }

  Curve curve;
  curve.reserved = observed.record.peak_reserved;
  PhasePeaks phases;
  MemoryPoint now;
  for (std::size_t i = 0; i < predicted.ops.size(); ++i) {
    const Op& op = predicted.ops[i];
    if (const auto* mark = std::get_if<Mark>(&op)) now.step = mark->step, now.phase = mark->phase;
    const bool is_free = std::holds_alternative<Free>(op);
    now.op = curve.after.size() - (is_free ? 1 : 0);
    if (holding == Holding::Blocks)
      now.resident += pages[i];
    else if (segments[i] >= Bytes{0})
      now.resident = segments[i];
    now.allocated += blocks[i];
    phases.note(now);
    if (now.resident > curve.peak.resident) curve.peak = now;
    if (is_free)
      curve.after.back() = now;
    else
      curve.after.push_back(now);
  }
  curve.phases = phases.all();
  return curve;
}

}  // namespace

void PhasePeaks::note(const MemoryPoint& point) {
  const auto same = std::find_if(phases_.rbegin(), phases_.rend(),
                                 [&](const MemoryPoint& p) { return p.step == point.step && p.phase == point.phase; });
  if (same == phases_.rend()) {
    phases_.push_back(point);
    return;
  }
  same->resident = std::max(same->resident, point.resident);
  same->allocated = std::max(same->allocated, point.allocated);
}

std::vector<std::size_t> sample_moments(const Program& predicted, PageScale scale, Holding holding) {
  const Curve curve = curve_of(predicted, scale, holding);
  const std::int32_t last = curve.after.back().step;
  const auto begin = static_cast<std::size_t>(
      std::find_if(curve.after.begin(), curve.after.end(), [&](const MemoryPoint& p) { return p.step == last; }) -
      curve.after.begin());
  std::vector<std::size_t> moments{curve.peak.op};
  const auto spread = [&](std::size_t from, std::size_t to, std::size_t count) {
    for (std::size_t k = 1; k <= count; ++k)
      if (const std::size_t past = (to - from) * k / count; past > 0) moments.push_back(from + past - 1);
  };
  spread(0, begin, samples_before);
  spread(begin, curve.after.size(), samples_of_last_step);
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  return moments;
}

MemoryPoints predicted_points(const Program& predicted, PageScale scale, const std::vector<std::size_t>& moments,
                              Holding holding) {
  const Curve curve = curve_of(predicted, scale, holding);
  MemoryPoints points{curve.phases, {}, curve.peak, curve.reserved};
  for (const std::size_t op : moments) points.samples.push_back(curve.after[std::min(op, curve.after.size() - 1)]);
  return points;
}

}  // namespace tidemark::execute
