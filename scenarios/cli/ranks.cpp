#include "scenarios/cli/ranks.hpp"

#include <chrono>
#include <exception>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "kernels/execute/world/mpi_world.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/output.hpp"

namespace tidemark::cli {

int on_ranks(std::int64_t time_limit, const std::function<int(World&)>& work) {
  const std::unique_ptr<World> world = mpi_world(std::chrono::seconds(time_limit), [](const RunFailure& failure) {
    complain(fmt::format("tidemark: the run ended early: {}", failure.what()));
  });
  try {
    return work(*world);
  } catch (const std::bad_alloc&) {
    world->report_failure("out of memory");
  } catch (const std::exception& error) {
    world->report_failure(error.what());
  }
  return machine_failed;
}

}  // namespace tidemark::cli
