// What no scenario asks for yet, under mpirun: uneven collectives, and buffers that go to the host and back. As many
// ranks as mpirun starts, in groups of two and across them; what they run is read from the workload's text. Exit code 0
// where memory and payloads agree on every rank.

#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "kernels/execute/world/mpi_world.hpp"
#include "scenarios/validate/validation.hpp"
#include "sim/program/text/workload_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/kernels/uneven_workload.hpp"

using namespace tidemark::tests;

int main() {
  const std::unique_ptr<World> world = mpi_world(std::chrono::seconds(120), [](const RunFailure& failure) {
    fmt::print("the run ended early: {}\n", failure.what());
  });
  const std::int32_t ranks = world->size();
  const Workload workload = parse_workload(text(uneven_workload(7, ranks, 2, (64 << 20) / ranks)));
  for (const std::string& wrong : verify(workload)) fmt::print("{}\n", wrong);
  bool all_agree = ranks > 2;
  for (const RankAgreement& rank : run_and_compare(workload, *world, {})) {
    all_agree = all_agree && rank.agrees();
    if (world->rank().value != 0) continue;
    fmt::print("rank {}: measured peak {} MiB, difference {} KiB, {} wrong payloads\n", rank.rank.value,
               rank.measured.peak.resident.count() >> 20, rank.difference().count() >> 10, rank.findings.count);
    for (const std::string& finding : rank.findings.first) fmt::print("  {}\n", finding);
  }
  return all_agree ? EXIT_SUCCESS : EXIT_FAILURE;
}
