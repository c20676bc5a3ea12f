#include "scenarios/predict/deadlock.hpp"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "sim/program/text/program_text.hpp"

namespace tidemark::scenarios {
namespace {

CommSlot communicator_of(const Op& op) {
  if (const auto* collective = std::get_if<Collective>(&op)) return collective->comm;
  if (const auto* exchange = std::get_if<Exchange>(&op)) return exchange->comm;
  return {};
}

// Of the class that is waited for, the one in the rank's own group.
Rank member_of_class(const Job& job, Rank rank, CommSlot comm, std::int32_t its) {
  if (comm.valid()) {
    const Communicator& communicator = job.communicators()[comm.index()];
    for (const Rank member : group_members(communicator, group_leader(communicator, rank)))
      if (job.folding.class_of_rank[member.index()] == its) return member;
  }
  return job.folding.classes[static_cast<std::size_t>(its)].first;
}

Phase phase_before(const Program& program, std::size_t op) {
  for (std::size_t i = op + 1; i-- > 0;)
    if (const auto* mark = std::get_if<Mark>(&program.ops[i])) return mark->phase;
  return Phase::Construction;
}

}  // namespace

std::optional<DeadlockReport> deadlock_of(const Job& job, const Trace& trace) {
  const auto* deadlock = std::get_if<Deadlock>(&trace.outcome);
  if (deadlock == nullptr) return std::nullopt;
  DeadlockReport report;
  for (const Stall& stall : deadlock->stalls) {
    const RankClass& its = job.folding.classes[static_cast<std::size_t>(stall.rank_class)];
    const Program program = job.program(static_cast<std::size_t>(its.program));
    const Op& op = program.ops[stall.op];
    StalledRank& stalled = report.stalls.emplace_back(StalledRank{its.first,
                                                                  its.size,
                                                                  text(program, op),
                                                                  std::string(name(phase_before(program, stall.op))),
                                                                  stall.waiting_for,
                                                                  {}});
    if (stall.waits_for_class >= 0)
      stalled.waits_for = member_of_class(job, its.first, communicator_of(op), stall.waits_for_class);
  }
  for (const std::int32_t rank_class : deadlock->cycle)
    report.cycle.push_back(job.folding.classes[static_cast<std::size_t>(rank_class)].first);
  return report;
}

std::string deadlock_text(const DeadlockReport& report) {
  std::string out =
      fmt::format("no, it deadlocks: {} of its classes of ranks never move again\n", report.stalls.size());
  constexpr std::size_t most_shown = 8;
  for (std::size_t i = 0; i < report.stalls.size() && i < most_shown; ++i) {
    const StalledRank& stall = report.stalls[i];
    out += fmt::format("  rank {}{} is at {} ({}) and waits for {}{}\n", stall.rank.value,
                       stall.alike > 1 ? fmt::format(" (and {} like it)", stall.alike - 1) : "", stall.op, stall.phase,
                       stall.waiting_for, stall.waits_for ? fmt::format(": rank {}", stall.waits_for->value) : "");
  }
  if (report.stalls.size() > most_shown) out += fmt::format("  and {} more\n", report.stalls.size() - most_shown);
  if (report.cycle.empty()) return out;
  out += "  in a circle: rank ";
  for (const Rank rank : report.cycle) out += fmt::format("{} -> ", rank.value);
  return out + fmt::format("{}\n", report.cycle.front().value);
}

}  // namespace tidemark::scenarios
