#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/base/estimate.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "topology/calibration.hpp"
#include "topology/nccl_settings.hpp"
#include "topology/rates.hpp"

// Bandwidths are of one direction and as data sheets have them; what a device reaches of its peaks stands in its
// Efficiency. Values that are not given are those of an HGX H100.

namespace tidemark::topology {

/// Peak rates of dense matrix multiplication, by the type of the inputs; sums are FP32, or of FP64 inputs FP64.
struct PeakRates {
  OperationRate bf16{989'400'000'000'000};
  OperationRate fp16{989'400'000'000'000};
  OperationRate tf32{494'700'000'000'000};  ///< FP32 inputs on tensor cores: only where a framework allows it
  OperationRate fp32{66'900'000'000'000};   ///< FP32 inputs on the ordinary cores: PyTorch's default
  OperationRate fp64{66'900'000'000'000};   ///< by cuBLAS, on tensor cores where they take it; 0: not said

  bool operator==(const PeakRates&) const = default;
};

/// Fractions of peaks that well-shaped work reaches: fitted per device, on kernels alone (scripts/fit_kernels). Effects
/// of a shape (tiles, waves) are the price model's.
struct Efficiency {
  Ratio gemm{800'000};                ///< of matrix products, each measured by itself
  Ratio attention{700'000};           ///< of fused attention, products and exponentials
  Ratio attention_backward{500'000};  ///< of its products
  Ratio sustained = one;              ///< what is left of these three in a step: power lowers the clock within seconds
  Ratio epilogue{400'000};            ///< share of a product's result that no multiplication hides as it is written
  Ratio memory{850'000};
  Ratio communication{800'000};  ///< of every link's bandwidth
  /// How far kernels and collectives may be off, as a share of their time: what ranges of step times are made of.
  Ratio kernel_error{150'000}, communication_error{250'000};
  std::string source = "default: nothing fitted for this device";

  bool operator==(const Efficiency&) const = default;
};

/// What a limit on a device's power leaves of the rates of its cores in a step. Its memory keeps its rate.
struct PowerLimit {
  Power limit;         ///< of each device, as nvidia-smi has it (power.limit)
  Power sustained_at;  ///< the limit under which `sustained` was measured; no less than `limit`
  Ratio exponent;      ///< rates go as (limit / sustained_at) to this power: a clock, and the voltage that it needs
  std::string source;

  bool operator==(const PowerLimit&) const = default;
};

/// One accelerator.
struct Device {
  std::string name;
  std::int32_t compute_capability = 0;  ///< major * 10 + minor: 90 is Hopper, 100 is B200
  Bytes capacity;                       ///< what cudaMemGetInfo calls total
  Estimate context;                     ///< CUDA context of one process
  Estimate modules;                     ///< code that a training process loads lazily, NCCL's kernels apart
  std::int32_t multiprocessors = 132;
  PeakRates peak = {};
  Bandwidth memory_bandwidth{3'350'000'000'000};
  Duration kernel_latency;  ///< of kernels bound by memory, besides their bytes
  Efficiency efficiency = {};
  Estimate blas_handle = {};  ///< what one cuBLAS handle takes beside the workspace that a framework hands it
  std::optional<PowerLimit> power = {};  ///< nothing: as `sustained` was measured

  bool operator==(const Device&) const = default;
};

/// Whether a step is slower than `sustained` says, because devices may take less power.
[[nodiscard]] inline bool is_limited(const Device& device) {
  return device.power && device.power->limit < device.power->sustained_at;
}

/// The host side of a node.
struct Host {
  Bandwidth bandwidth{63'000'000'000};          ///< of one device's link to its host: PCIe, or NVLink-C2C
  Duration latency{500'000};                    ///< of that link
  Bandwidth bridge_bandwidth{307'200'000'000};  ///< of all that crosses the host: root complexes, sockets, memory
  Duration launch{5'000'000};  ///< what the host thread spends in the driver on handing one kernel to a device
  Ratio code_factor = one;     ///< what it spends in framework code, over the processor that was measured on
  Bandwidth memory_bandwidth{614'400'000'000};  ///< of the node's memory, read and written
  Bytes memory;                                 ///< of the node; 0: the cluster's file does not say
  /// Of all NVMe drives of the node together, where the cluster's file says so.
  std::optional<Bandwidth> nvme_read_bandwidth = {}, nvme_write_bandwidth = {};

  bool operator==(const Host&) const = default;
};

/// How the devices of a node reach each other.
enum class NodeLink : std::uint8_t { Pcie, NvLink, NvSwitch };

struct Node {
  std::int32_t devices = 8;
  NodeLink link = NodeLink::NvSwitch;
  std::int32_t nics = 8;  ///< spread evenly: a device uses the nearest
  bool gpu_direct_rdma = true;
  Bandwidth bandwidth{450'000'000'000};  ///< of one device, over all its NVLinks; of no meaning with Pcie
  Duration latency{600'000};             ///< from device to device by NVLink
  std::int32_t nvlink_group = 2;         ///< with NvLink: this many neighbours are joined pairwise, others by the host
  Bandwidth nic_bandwidth{50'000'000'000};  ///< of each
  Duration collective_start;                ///< what NCCL takes once for a collective
  Duration collective_step{2'800'000};      ///< what it takes for each step over NVLink, besides the wire's latency
  std::int32_t job_devices = 0;             ///< so many of `devices` are a job's that takes several nodes; 0: all

  bool operator==(const Node&) const = default;
};

/// What joins the nodes.
enum class FabricKind : std::uint8_t {
  Single,     ///< one switch, or a fabric as good as one
  LeafSpine,  ///< NICs to leaves, leaves to spines
};

struct FabricShape {
  FabricKind kind = FabricKind::Single;
  bool rail_optimised = false;      ///< the NICs at one place of several nodes share a leaf; else all NICs of a node do
  std::int32_t nodes_per_leaf = 1;  ///< how many nodes put NICs on one leaf
  Ratio oversubscription = one;     ///< what NICs bring to a leaf over what the leaf takes to the spines
  Duration latency{850'000};        ///< of each hop from NIC or switch to the next

  bool operator==(const FabricShape&) const = default;
};

/// What a job runs on: nodes of equal devices. Built from a cluster file.
struct Cluster {
  std::string name;
  Device device;
  Node node;
  Host host = {};
  FabricShape fabric = {};
  NcclProfile nccl = {};                           ///< what was measured of it there
  SharedCalibration calibration = {};              ///< measured times of its kernels and transfers, where there are any
  std::optional<Ratio> dollars_per_gpu_hour = {};  ///< where its file says so, in US dollars

  bool operator==(const Cluster&) const = default;
};

}  // namespace tidemark::topology
