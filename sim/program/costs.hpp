#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/estimate.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// What drivers and libraries take from one rank's device, behind the framework's allocator.
struct DriverCosts {
  Estimate context;
  Estimate modules;
  Estimate nccl_kernels;
  std::vector<Estimate> communicators;  ///< by CommSlot
  Estimate blas_handle;                 ///< of each

  [[nodiscard]] const Estimate& of(DriverResource resource) const {
    switch (resource) {
      case DriverResource::Context:
        return context;
      case DriverResource::Modules:
        return modules;
      case DriverResource::NcclKernels:
        return nccl_kernels;
      case DriverResource::BlasHandle:
        return blas_handle;
    }
    return context;
  }
  [[nodiscard]] const Estimate& of(CommSlot comm) const { return communicators[comm.index()]; }
  bool operator==(const DriverCosts&) const = default;
};

/// The price list of a workload on a cluster. Ranks whose groups lie alike on the nodes share an entry.
struct Costs {
  std::vector<DriverCosts> entries;
  std::vector<std::int32_t> entry_of_rank;

  [[nodiscard]] const DriverCosts& of(Rank rank) const {
    return entries[static_cast<std::size_t>(entry_of_rank[rank.index()])];
  }
};

}  // namespace tidemark::sim
