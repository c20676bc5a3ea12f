#pragma once

#include <cstdint>
#include <string>

#include "sim/estimate.hpp"
#include "sim/units.hpp"

namespace tidemark {

/// One accelerator.
struct Device {
  std::string name;
  std::int32_t compute_capability = 0;  ///< major * 10 + minor: 90 is Hopper, 100 is B200
  Bytes capacity;                       ///< what cudaMemGetInfo calls total
  Estimate context;                     ///< CUDA context of one process
  Estimate modules;                     ///< code that a training process loads lazily, NCCL's kernels apart

  bool operator==(const Device&) const = default;
};

/// How the devices of a node reach each other.
enum class NodeLink : std::uint8_t { Pcie, NvLink, NvSwitch };

struct Node {
  std::int32_t devices = 8;
  NodeLink link = NodeLink::NvSwitch;
  std::int32_t nics = 8;
  bool gpu_direct_rdma = true;

  bool operator==(const Node&) const = default;
};

/// What a job runs on: nodes of equal devices. Built from a cluster file.
struct Cluster {
  std::string name;
  Device device;
  Node node;

  bool operator==(const Cluster&) const = default;
};

}  // namespace tidemark
