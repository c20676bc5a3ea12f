#include "kernels/execute/gpu/device_ranks.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <fmt/format.h>

#include "kernels/execute/world/forked_world.hpp"
#include "kernels/execute/world/mpi_world.hpp"

namespace tidemark::execute {

int run_device_ranks(const char* program, std::int32_t ranks, std::chrono::seconds time_limit,
                     const std::function<int(World&)>& body) {
  constexpr int machine_failed = 3;
  const auto tell = [program](const RunFailure& failure) {
    fmt::print(stderr, "{}: the run ended early: {}\n", program, failure.what());
  };
  const auto guarded = [&](World& world) {
    try {
      try {
        if (ranks != world.size())
          throw std::runtime_error(fmt::format("the job has {} ranks, and {} were started", ranks, world.size()));
        return body(world);
      } catch (const RunFailure&) {
        throw;
      } catch (const std::exception& error) {
        world.report_failure(error.what());
      }
    } catch (const RunFailure& failure) {
      if (failure.teller() == world.rank()) tell(failure);
    }
    return machine_failed;
  };
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr && !mpi_version().empty())
    return guarded(*mpi_world(time_limit, tell));
  return run_forked(ranks, time_limit, guarded);
}

}  // namespace tidemark::execute
