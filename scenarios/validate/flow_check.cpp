#include "scenarios/validate/flow_check.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace tidemark::scenarios {
namespace {

bool alike(const FlowFinding& a, const FlowFinding& b) {
  const auto site = [](const FlowFinding& f) { return std::tie(f.kind, f.tensor, f.by, f.at, f.until); };
  return site(a) == site(b);
}

std::string place(const FlowPlace& its) { return fmt::format("{} ({})", its.label, name(its.phase)); }

}  // namespace

namespace {

bool generates(const Program& program) {
  return std::ranges::any_of(program.ops, [](const Op& op) {
    const auto* const mark = std::get_if<Mark>(&op);
    return mark != nullptr && mark->phase == Phase::Rollout;
  });
}

}  // namespace

std::vector<FlowNote> flow_check(const Workload& workload, FlowsOf framework) {
  std::vector<FlowNote> notes;
  for (std::size_t p = 0; p < workload.programs.size(); ++p) {
    const auto rank = std::ranges::find(workload.program_of_rank, static_cast<std::int32_t>(p));
    const bool has_rollouts = generates(workload.programs[p]);
    for (FlowFinding& found : data_flow(workload, p)) {
      const auto known = std::ranges::find_if(notes, [&](const FlowNote& note) { return alike(note.finding, found); });
      if (known != notes.end()) {
        known->finding.times += found.times;
        known->finding.largest = std::max(known->finding.largest, found.largest);
        continue;
      }
      const KnownFlow* reason = known_flow(found, framework);
      if (reason == nullptr && has_rollouts) reason = known_flow(found, FlowsOf::Rollouts);
      notes.push_back({std::move(found),
                       {static_cast<std::int32_t>(rank - workload.program_of_rank.begin())},
                       std::string(reason != nullptr ? reason->reason : "")});
    }
  }
  return notes;
}

FlowsOf flows_of(const Runtime& runtime) {
  if (runtime.eager) return FlowsOf::PyTorch;
  if (runtime.module_offload.any()) return FlowsOf::ModuleOffload;
  return runtime.offloaded_layers > 0 ? FlowsOf::OffloadedLayers : FlowsOf::Megatron;
}

std::string text(const FlowNote& note) {
  const FlowFinding& f = note.finding;
  const std::string begin =
      fmt::format("rank {}, step {}, {}: {} B ", note.rank.value, f.step, f.first, f.largest.count());
  switch (f.kind) {
    case FlowKind::Unwritten:
      return begin + fmt::format("are read by {} in {}, and nobody has written them", f.by, place(f.at));
    case FlowKind::Early:
      return begin +
             fmt::format("are read by {} in {}, whose stream has not waited for what writes them", f.by, place(f.at));
    case FlowKind::Unread:
      return begin + fmt::format("are written by {} in {}, and nobody reads them until they are gone in {}", f.by,
                                 place(f.at), place(f.until));
    case FlowKind::Kept:
      return begin + fmt::format("are used last by {} in {}, and held until {}{}", f.by, place(f.at), place(f.until),
                                 f.keeper.empty() ? "" : fmt::format(" as '{}'", f.keeper));
  }
  return begin;
}

}  // namespace tidemark::scenarios
