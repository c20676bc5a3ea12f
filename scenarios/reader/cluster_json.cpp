#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/reader/detail/scenario_parts_json.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {

namespace {

using Json = nlohmann::ordered_json;

Json as_json(const Estimate& estimate) {
  return {{"bytes", text(estimate.bytes)},
          {"low", text(estimate.low)},
          {"high", text(estimate.high)},
          {"source", estimate.source}};
}

Json as_json(const PeakRates& peak) {
  Json json{{"bf16", text(peak.bf16)}, {"fp16", text(peak.fp16)}, {"tf32", text(peak.tf32)}, {"fp32", text(peak.fp32)}};
  if (peak.fp64 > OperationRate{}) json["fp64"] = text(peak.fp64);
  return json;
}

Json as_json(const Device& device) {
  const Version capability{device.compute_capability / 10, device.compute_capability % 10};
  Json json = {{"name", device.name},
               {"compute_capability", text(capability)},
               {"capacity", text(device.capacity)},
               {"multiprocessors", device.multiprocessors},
               {"memory_bandwidth", text(device.memory_bandwidth)},
               {"kernel_latency", text(device.kernel_latency)},
               {"peak", as_json(device.peak)},
               {"efficiency",
                {{"gemm", as_double(device.efficiency.gemm)},
                 {"attention", as_double(device.efficiency.attention)},
                 {"attention_backward", as_double(device.efficiency.attention_backward)},
                 {"sustained", as_double(device.efficiency.sustained)},
                 {"epilogue", as_double(device.efficiency.epilogue)},
                 {"memory", as_double(device.efficiency.memory)},
                 {"communication", as_double(device.efficiency.communication)},
                 {"kernel_error", as_double(device.efficiency.kernel_error)},
                 {"communication_error", as_double(device.efficiency.communication_error)},
                 {"source", device.efficiency.source}}},
               {"context", as_json(device.context)},
               {"modules", as_json(device.modules)},
               {"blas_handle", as_json(device.blas_handle)}};
  if (device.power)
    json["power"] = {{"limit", text(device.power->limit)},
                     {"sustained_at", text(device.power->sustained_at)},
                     {"exponent", as_double(device.power->exponent)},
                     {"source", device.power->source}};
  return json;
}

/// Without the keys that have no meaning for its link, as the cluster file leaves them out.
Json as_json(const Node& node) {
  Json json = {{"devices", node.devices}, {"link", word(node_link_names, node.link)}};
  if (node.job_devices > 0) json["job_devices"] = node.job_devices;
  if (node.link != NodeLink::Pcie) {
    json["bandwidth"] = text(node.bandwidth);
    json["latency"] = text(node.latency);
    json["collective_step"] = text(node.collective_step);
  }
  if (node.link == NodeLink::NvLink) json["nvlink_group"] = node.nvlink_group;
  json["nics"] = node.nics;
  json["nic_bandwidth"] = text(node.nic_bandwidth);
  json["collective_start"] = text(node.collective_start);
  return json;
}

Json fabric_json(const Cluster& cluster) {
  const FabricShape& shape = cluster.fabric;
  Json json = {{"kind", word(fabric_kind_names, shape.kind)}};
  if (shape.kind == FabricKind::LeafSpine) {
    json["rail_optimised"] = shape.rail_optimised;
    json["nodes_per_leaf"] = shape.nodes_per_leaf;
    json["oversubscription"] = as_double(shape.oversubscription);
  }
  json["latency"] = text(shape.latency);
  json["gpu_direct_rdma"] = cluster.node.gpu_direct_rdma;
  return json;
}

Json as_json(const NcclChannels& channels) {
  return {{"collective", channels.collective},
          {"nvls", channels.nvls},
          {"p2p", channels.p2p},
          {"per_peer", channels.per_peer}};
}

// What was measured of NCCL; an empty object where nothing was.
Json as_json(const NcclProfile& nccl) {
  Json json = Json::object();
  if (nccl.peer_access != PeerAccess::Everywhere) json["peer_access"] = word(peer_access_names, nccl.peer_access);
  if (!nccl.channels_source.empty()) {
    Json& channels = json["channels"] = {{"source", nccl.channels_source}};
    if (nccl.one_node) channels["one_node"] = as_json(*nccl.one_node);
    if (nccl.several_nodes) channels["several_nodes"] = as_json(*nccl.several_nodes);
    if (nccl.one_rank_a_node) channels["one_rank_a_node"] = as_json(*nccl.one_rank_a_node);
  }
  if (nccl.kernels) json["kernels"] = as_json(*nccl.kernels);
  for (const NcclProfile::Communicator& c : nccl.communicators) {
    Json its = as_json(c.memory);
    its["ranks"] = c.use.ranks;
    its["nodes"] = c.use.nodes;
    its["local"] = c.use.local;
    its["reduces"] = c.use.reduces;
    its["shards"] = c.use.shards;
    its["local_peers"] = c.use.local_peers;
    its["remote_peers"] = c.use.remote_peers;
    json["communicators"].push_back(std::move(its));
  }
  return json;
}

Json as_json(const Host& host) {
  Json json = {{"bandwidth", text(host.bandwidth)},
               {"latency", text(host.latency)},
               {"bridge_bandwidth", text(host.bridge_bandwidth)},
               {"launch", text(host.launch)},
               {"code_factor", as_double(host.code_factor)},
               {"memory_bandwidth", text(host.memory_bandwidth)},
               {"memory", host.memory > Bytes{} ? Json(text(host.memory)) : Json(nullptr)}};
  if (host.nvme_read_bandwidth) json["nvme_read_bandwidth"] = text(*host.nvme_read_bandwidth);
  if (host.nvme_write_bandwidth) json["nvme_write_bandwidth"] = text(*host.nvme_write_bandwidth);
  return json;
}

}  // namespace

nlohmann::ordered_json cluster_json(const Cluster& cluster) {
  Json json = {{"name", cluster.name},          {"device", as_json(cluster.device)}, {"host", as_json(cluster.host)},
               {"node", as_json(cluster.node)}, {"fabric", fabric_json(cluster)},    {"nccl", as_json(cluster.nccl)}};
  if (const Calibration* its = cluster.calibration.get())
    json["calibration"] = {{"name", its->name},
                           {"source", its->source},
                           {"kernels", its->kernels.size()},
                           {"collectives", its->collectives.size()},
                           {"messages", its->messages.size()},
                           {"copies", its->copies.size()}};
  if (cluster.dollars_per_gpu_hour) json["price_per_gpu_hour"] = as_double(*cluster.dollars_per_gpu_hour);
  return json;
}

}  // namespace tidemark::scenarios
