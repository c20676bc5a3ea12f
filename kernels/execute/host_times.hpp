#pragma once

#include <string>
#include <vector>

#include "kernels/execute/page_scale.hpp"
#include "kernels/execute/world/world.hpp"
#include "sim/base/time.hpp"
#include "sim/program/workload.hpp"

// How long a step takes on the host back end, from rates measured on the spot: the engine's answer for the programs as
// that back end runs them, one op after the other.

namespace tidemark::execute {

/// What things take on one rank while all ranks do them.
struct HostRates {
  Duration op;            ///< an op that does nothing
  Duration touch_page;    ///< a page comes to be resident
  Duration release_page;  ///< … and goes
  Duration read_page;     ///< its stamps are looked at
  Duration write_page;    ///< … or written
  Duration message;       ///< a message without payload, to the next rank and from the one before
  Duration move_page;     ///< a page in a large message
  Duration add_page;      ///< a page added to another one
};

/// Measures for a fraction of a second; all ranks take part. Rank 0 gets the means over ranks, the others zeros.
[[nodiscard]] HostRates measured_host_rates(World& world);

/// How long each step of each rank should take, construction first. `workload` holds frees.
[[nodiscard]] std::vector<std::vector<Duration>> host_step_times(const Workload& workload, PageScale scale,
                                                                 const HostRates& rates);

}  // namespace tidemark::execute
