#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/host_backend.hpp"
#include "kernels/execute/mutation/mutation.hpp"
#include "sim/program/liveness.hpp"
#include "tests/kernels/thread_world.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {

/// Ranks that are threads share their process's memory: only what back ends count can be looked at.
struct NoProbe {
  [[nodiscard]] Bytes now() { return {}; }
  [[nodiscard]] Bytes peak() { return {}; }
  void step_ended() {}
};

inline Workload without_frees(Workload workload) {
  for (Program& program : workload.programs) program = without_frees(std::move(program));
  return workload;
}

struct RankRun {
  MemoryPoints predicted;
  RunRecord record;
  std::string end;  ///< as `on_ranks` says
};

/// Runs a workload's programs, given with frees, on threads. `executed(rank, program)` and `groups(rank, groups)` may
/// spoil what runs.
template <class Spoil>
std::vector<RankRun> run_on_threads(const Workload& workload, PageScale scale, Spoil&& spoil,
                                    std::chrono::milliseconds time_limit = long_enough) {
  const Workload written = without_frees(workload);
  const Expectation expectation(written, scale);
  std::vector<RankRun> runs(static_cast<std::size_t>(workload.world_size()));
  const std::vector<std::string> ends = on_ranks(
      workload.world_size(),
      [&](World& world) {
        const Rank me = world.rank();
        const std::vector<std::size_t> moments = sample_moments(workload.program(me), scale);
        runs[me.index()].predicted = predicted_points(workload.program(me), scale, moments);
        Program program = written.program(me);
        std::vector<Group> groups = groups_of(written, me);
        spoil(written, me, program, groups);
        HostBackend backend(
            world, program.buffers, scale,
            {[&](std::size_t op, BufferId b) { return describe(program, b) + " read by " + describe(program, op); },
             [&](std::uint64_t word) { return expectation.author(word); }});
        NoProbe probe;
        Executor executor(program, groups, expectation, me, backend, probe);
        runs[me.index()].record = executor.run(moments);
      },
      time_limit);
  for (std::size_t r = 0; r < runs.size(); ++r) runs[r].end = ends[r];
  return runs;
}
inline std::vector<RankRun> run_on_threads(const Workload& workload, PageScale scale) {
  return run_on_threads(workload, scale, [](const Workload&, Rank, Program&, std::vector<Group>&) {});
}

}  // namespace tidemark::tests
