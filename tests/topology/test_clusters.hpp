#pragma once

#include "tests/namespace.hpp"
#include "topology/cluster.hpp"

// Clusters for tests: round figures, and an efficiency of one, so that times are what closed forms say.

namespace tidemark::tests {

inline Cluster hgx(std::int32_t compute_capability = 90) {
  Cluster cluster;
  cluster.name = "hgx";
  cluster.device.compute_capability = compute_capability;
  cluster.device.efficiency.communication = one;
  cluster.host = {Bandwidth{64'000'000'000},
                  Duration{500'000},
                  Bandwidth{256'000'000'000},
                  Duration{5'000'000},
                  one,
                  Bandwidth{512'000'000'000},
                  Bytes{}};
  cluster.node = {8,
                  NodeLink::NvSwitch,
                  8,
                  true,
                  Bandwidth{400'000'000'000},
                  Duration{600'000},
                  2,
                  Bandwidth{50'000'000'000},
                  Duration{},
                  Duration{2'800'000}};
  cluster.fabric = {FabricKind::Single, false, 1, one, Duration{850'000}};
  return cluster;
}

/// Leaves of `nodes_per_leaf` nodes.
inline Cluster leaf_spine(std::int32_t nodes_per_leaf, Ratio oversubscription = one) {
  Cluster cluster = hgx();
  cluster.fabric = {FabricKind::LeafSpine, false, nodes_per_leaf, oversubscription, Duration{850'000}};
  return cluster;
}

inline Cluster rails(std::int32_t nodes_per_leaf, Ratio oversubscription = one) {
  Cluster cluster = leaf_spine(nodes_per_leaf, oversubscription);
  cluster.fabric.rail_optimised = true;
  return cluster;
}

/// Four cards on PCIe, one slow NIC, data through host memory.
inline Cluster workstation() {
  Cluster cluster = hgx(86);
  cluster.host.bandwidth = Bandwidth{32'000'000'000};
  cluster.host.bridge_bandwidth = Bandwidth{64'000'000'000};
  cluster.node = {4,          NodeLink::Pcie,     1, false, Bandwidth{}, Duration{}, 2, Bandwidth{2'500'000'000},
                  Duration{}, Duration{2'800'000}};
  return cluster;
}

/// The same with the cards bridged in pairs.
inline Cluster bridged_workstation() {
  Cluster cluster = workstation();
  cluster.node.link = NodeLink::NvLink;
  cluster.node.bandwidth = Bandwidth{56'000'000'000};
  cluster.node.latency = Duration{600'000};
  return cluster;
}

}  // namespace tidemark::tests
