#include "tests/golden/kernel_rows.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "kernels/cost/attention_time.hpp"
#include "kernels/cost/product_time.hpp"
#include "kernels/cost/rates.hpp"
#include "kernels/cost/roofline.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "tests/golden/root.hpp"
#include "topology/collective.hpp"

namespace tidemark::tests::golden {
namespace {

using kernels::AttentionPass;
using kernels::Product;

double microseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

/// The entries of one row, one after another.
class Entries {
 public:
  explicit Entries(const toml::array& row) : row_(row) {}
  std::int64_t number() { return row_[next_++].value<std::int64_t>().value(); }
  std::string word() { return row_[next_++].value<std::string>().value(); }
  bool flag() { return row_[next_++].value<bool>().value(); }
  double measured() { return row_[next_++].value<double>().value(); }

 private:
  const toml::array& row_;
  std::size_t next_ = 0;
};

DType dtype_of(const std::string& name) { return name == "fp32" ? DType::FP32 : DType::BF16; }

KernelRow product_row(Entries row, const Device& device) {
  Product p;
  p.m = row.number(), p.k = row.number(), p.n = row.number();
  const std::string layout = row.word();
  p.accumulates = row.flag();
  const std::string result = row.word();
  p.result = dtype_of(result);
  return {fmt::format("{} {}x{}x{} {}", layout, p.m, p.k, p.n, result), "products", row.measured(),
          microseconds(kernels::product_time(p, device))};
}

// Four at a time, as fast as the host hands them over: measured by its clock.
KernelRow group_row(Entries row, const Device& device, double launch) {
  const std::int64_t groups = row.number(), m = row.number(), k = row.number(), n = row.number();
  const std::string stage = row.word(), main_gradients = row.word();
  Product p{m, n, k};
  if (stage == "bwd_grad_act") p = {m, k, n};
  if (stage == "bwd_grad_w") p = {n, k, m, DType::BF16, dtype_of(main_gradients), true};
  p.alike = static_cast<std::int32_t>(std::min<std::int64_t>(groups, 4));
  return {fmt::format("{} x {}x{}x{} {} {}", groups, m, k, n, stage, main_gradients), "groups", row.measured(),
          static_cast<double>(groups) * std::max(launch, microseconds(kernels::product_time(p, device)))};
}

View view(std::int64_t sequence, std::int64_t heads, std::int64_t width) {
  View made;
  made.dtype = DType::BF16;
  made.sizes = {1, sequence, heads, width};
  return made;
}

KernelRow attention_row(Entries row, const Device& device, kernels::TensorInstructions instructions) {
  const std::int64_t sequence = row.number(), heads = row.number(), kv = row.number();
  const std::int64_t keys = row.number(), values = row.number();
  const std::string pass = row.word();
  const Duration took = kernels::attention_time(
      view(sequence, heads, keys), view(sequence, kv, keys), view(sequence, kv, values), !pass.ends_with(" full"),
      pass.starts_with("forward") ? AttentionPass::Forward : AttentionPass::Backward, device, instructions);
  const bool flash2 = instructions == kernels::TensorInstructions::Ampere;
  return {fmt::format("{} of {}, {} heads of {} and {}", pass, sequence, heads, keys, values),
          flash2 ? "flash2" : "attention", row.measured(), microseconds(took)};
}

// A kernel bound by memory, by its bytes. Before it and behind it, the device writes down the time.
KernelRow memory_row(Entries row, const Device& device, double events) {
  const std::string name = row.word();
  const Bytes bytes{row.number()};
  return {fmt::format("{} of {} MiB", name, bytes.count() >> 20), "memory", row.measured(),
          events + microseconds(kernels::time_of(bytes, device))};
}

KernelRow collective_row(Entries row, const Fabric& fabric) {
  const std::string name = row.word();
  std::vector<std::int32_t> devices(static_cast<std::size_t>(row.number()));
  std::iota(devices.begin(), devices.end(), 0);
  const std::int64_t mib = row.number();
  const Bytes size{mib << 20};
  const bool several_nodes = static_cast<std::int32_t>(devices.size()) > fabric.node.devices;
  KernelRow made{fmt::format("{} of {} MiB, {} ranks", name, mib, devices.size()),
                 several_nodes ? "collectives of several nodes" : "collectives", row.measured(), 0};
  if (name == "send_recv") {  // each to the next: the last one of a node sends to the next node
    Duration slowest;
    for (const std::int32_t from : devices) {
      const std::int32_t to = (from + 1) % static_cast<std::int32_t>(devices.size());
      const TransferCost cost =
          message_cost(fabric, from, to, size, CollectiveCostModel::Routed, message_way(fabric, devices, from, to));
      slowest = std::max(slowest, alone(cost, fabric));
    }
    made.predicted_us = microseconds(slowest);
    return made;
  }
  constexpr auto kinds =
      std::to_array<std::pair<std::string_view, CollectiveKind>>({{"all_reduce", CollectiveKind::AllReduce},
                                                                  {"all_gather", CollectiveKind::AllGather},
                                                                  {"reduce_scatter", CollectiveKind::ReduceScatter},
                                                                  {"all_to_all", CollectiveKind::AllToAll}});
  const auto* const kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == name; });
  if (kind == kinds.end()) throw std::runtime_error(fmt::format("no collective is called {}", name));
  made.predicted_us = microseconds(alone(collective_cost(fabric, devices, kind->second, size), fabric));
  return made;
}

}  // namespace

std::vector<KernelRow> kernel_rows(const std::filesystem::path& file, Cluster cluster, std::string_view collectives) {
  const toml::table table = toml::parse_file(file.string());
  std::vector<KernelRow> rows;
  const auto read = [&](std::string_view list, auto row_of) {
    if (const toml::array* its = table[list].as_array())
      for (const toml::node& row : *its) rows.push_back(row_of(Entries(*row.as_array())));
  };
  if (table["under_load"].value_or(false)) cluster.device = kernels::under_load(std::move(cluster.device));
  const Device& device = cluster.device;
  using enum kernels::TensorInstructions;
  read("products", [&](Entries row) { return product_row(row, device); });
  const double launch = table["launch_us"].value_or(0.0);
  read("groups", [&](Entries row) { return group_row(row, device, launch); });
  read("attention", [&](Entries row) { return attention_row(row, device, OfDevice); });
  read("flash2", [&](Entries row) { return attention_row(row, device, Ampere); });
  read("memory", [&](Entries row) { return memory_row(row, device, table["events_us"].value<double>().value()); });
  // Of nccl-tests nothing is PyTorch's.
  if (table["nccl_tests"].value_or(false)) cluster.node.collective_start = Duration{8'400'000};
  const Fabric one_node = build_fabric(cluster, cluster.node.devices);
  const Fabric two_nodes = build_fabric(cluster, 2 * cluster.node.devices);
  if (const toml::array* const list = table[collectives].as_array())
    for (const toml::node& row : *list) {
      const toml::array& entries = *row.as_array();
      const bool fits = entries[1].value<std::int32_t>().value() <= cluster.node.devices;
      rows.push_back(collective_row(Entries(entries), fits ? one_node : two_nodes));
    }
  return rows;
}

std::vector<KernelRow> kernel_rows(const std::filesystem::path& file) {
  const toml::table table = toml::parse_file(file.string());
  return kernel_rows(file, scenarios::read_cluster(root / table["cluster"].value<std::string>().value()));
}

std::vector<std::filesystem::path> kernel_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests" / "golden" / "kernels"))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tidemark::tests::golden
