#include "scenarios/environment/nccl_environment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t most_channels = 64;
constexpr std::int64_t largest_buffer = std::int64_t{1} << 30;

/// A number with an effect on memory, or on ways: where it goes, and what it may be.
struct Number {
  std::string_view name;
  std::int64_t low = 0, high = 0;
  void (*set)(NcclSettings&, std::int64_t) = nullptr;
};

constexpr auto numbers = std::to_array<Number>({
    {"NCCL_BUFFSIZE", 1024, largest_buffer, [](NcclSettings& s, std::int64_t n) { s.simple_buffer = Bytes{n}; }},
    {"NCCL_LL_BUFFSIZE", 1024, largest_buffer, [](NcclSettings& s, std::int64_t n) { s.ll_buffer = Bytes{n}; }},
    {"NCCL_LL128_BUFFSIZE", 1024, largest_buffer, [](NcclSettings& s, std::int64_t n) { s.ll128_buffer = Bytes{n}; }},
    {"NCCL_NVLS_CHUNKSIZE", 1024, largest_buffer, [](NcclSettings& s, std::int64_t n) { s.nvls_chunk = Bytes{n}; }},
    {"NCCL_P2P_NET_CHUNKSIZE", 1024, largest_buffer,
     [](NcclSettings& s, std::int64_t n) { s.p2p_net_chunk = Bytes{n}; }},
    {"NCCL_P2P_NVL_CHUNKSIZE", 1024, largest_buffer,
     [](NcclSettings& s, std::int64_t n) { s.p2p_nvl_chunk = Bytes{n}; }},
    {"NCCL_P2P_PCI_CHUNKSIZE", 1024, largest_buffer,
     [](NcclSettings& s, std::int64_t n) { s.p2p_pci_chunk = Bytes{n}; }},
    {"NCCL_MIN_NCHANNELS", 1, most_channels, [](NcclSettings& s, std::int64_t n) { s.channels.min_channels = narrow(n); }},
    {"NCCL_MAX_NCHANNELS", 1, most_channels, [](NcclSettings& s, std::int64_t n) { s.channels.max_channels = narrow(n); }},
    {"NCCL_MIN_NRINGS", 1, most_channels, [](NcclSettings& s, std::int64_t n) { s.channels.min_channels = narrow(n); }},
    {"NCCL_MAX_NRINGS", 1, most_channels, [](NcclSettings& s, std::int64_t n) { s.channels.max_channels = narrow(n); }},
    {"NCCL_MIN_CTAS", 1, most_channels, [](NcclSettings& s, std::int64_t n) { s.channels.min_ctas = narrow(n); }},
    {"NCCL_MAX_CTAS", 1, most_channels, [](NcclSettings& s, std::int64_t n) { s.channels.max_ctas = narrow(n); }},
    {"NCCL_MIN_P2P_NCHANNELS", 1, most_channels,
     [](NcclSettings& s, std::int64_t n) { s.channels.min_p2p_channels = narrow(n); }},
    {"NCCL_MAX_P2P_NCHANNELS", 1, most_channels,
     [](NcclSettings& s, std::int64_t n) { s.channels.max_p2p_channels = narrow(n); }},
    {"NCCL_NCHANNELS_PER_NET_PEER", 1, most_channels,
     [](NcclSettings& s, std::int64_t n) { s.channels.channels_per_net_peer = narrow(n); }},
    {"NCCL_NVLS_NCHANNELS", 1, 32, [](NcclSettings& s, std::int64_t n) { s.channels.nvls_channels = narrow(n); }},
    {"NCCL_NVLS_ENABLE", 0, 2, [](NcclSettings& s, std::int64_t n) { s.nvls = n != 0; }},
    {"NCCL_PAT_ENABLE", 0, 2, [](NcclSettings& s, std::int64_t n) { s.algorithms.pat = n != 0; }},
    {"NCCL_P2P_DISABLE", 0, 1,
     [](NcclSettings& s, std::int64_t n) {
       if (n != 0) s.peer_access = PeerAccess::Nowhere;
     }},
    {"NCCL_SHM_DISABLE", 0, 1, [](NcclSettings& s, std::int64_t n) { s.shared_memory = n == 0; }},
    {"NCCL_P2P_READ_ENABLE", 0, 1, [](NcclSettings& s, std::int64_t n) { s.peer_read = n != 0; }},
    {"NCCL_NET_GDR_READ", 0, 1, [](NcclSettings& s, std::int64_t n) { s.gpu_direct_send = n != 0; }},
    {"NCCL_IB_DISABLE", 0, 1,
     [](NcclSettings& s, std::int64_t n) {
       if (n == 0) return;
       s.sockets = true;
       s.gpu_direct = false;
     }},
    {"NCCL_PXN_DISABLE", 0, 1,
     [](NcclSettings& s, std::int64_t n) {
       if (n != 0) s.pxn = Pxn::Never;
     }},
    {"NCCL_P2P_PXN_LEVEL", 0, 2,
     [](NcclSettings& s, std::int64_t n) { s.pxn = std::min(s.pxn, static_cast<Pxn>(n)); }},
    {"NCCL_CUMEM_ENABLE", 0, 1, [](NcclSettings& s, std::int64_t n) { s.virtual_memory = n != 0; }},
    {"NCCL_RUNTIME_CONNECT", 0, 1, [](NcclSettings& s, std::int64_t n) { s.connect_at_use = n != 0; }},
});

/// Variables that leave device memory as it is, whatever they say.
constexpr auto harmless_to_memory = std::to_array<std::string_view>({
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",  // in host memory
    "NCCL_CHECKS_DISABLE",
    "NCCL_CHECK_POINTERS",
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_CONNECT_ROUND_MAX_PEERS",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_TIMESTAMP_FORMAT",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GDR_FLUSH_DISABLE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_GRAPH_DUMP_FILE_RANK",
    "NCCL_GRAPH_HELPER_DISABLE",
    "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_GRAPH_REGISTER",
    "NCCL_HOSTID",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_ADDR_FAMILY",
    "NCCL_IB_ADDR_RANGE",
    "NCCL_IB_AR_THRESHOLD",
    "NCCL_IB_ECE_ENABLE",
    "NCCL_IB_FIFO_TC",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_MERGE_VFS",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_PKEY",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_RETRY_CNT",
    "NCCL_IB_RETURN_ASYNC_EVENTS",
    "NCCL_IB_ROCE_VERSION_NUM",
    "NCCL_IB_SL",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT",
    "NCCL_IB_USE_INLINE",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_IGNORE_DISABLED_P2P",
    "NCCL_LAUNCH_MODE",
    "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_LL128_NTHREADS",
    "NCCL_LOCAL_REGISTER",
    "NCCL_NET_FORCE_FLUSH",
    "NCCL_NET_OVERHEAD",
    "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE",
    "NCCL_NVTX_DISABLE",
    "NCCL_OOB_NET_ENABLE",
    "NCCL_OOB_NET_IFNAME",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_LL_THRESHOLD",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_PROGRESS_APPENDOP_FREQ",
    "NCCL_PROXY_APPEND_BATCH_SIZE",
    "NCCL_PROXY_CPUSET",
    "NCCL_RAS_ADDR",
    "NCCL_RAS_ENABLE",
    "NCCL_RAS_TIMEOUT_FACTOR",
    "NCCL_REPORT_CONNECT_PROGRESS",
    "NCCL_SET_THREAD_NAME",
    "NCCL_SHM_LOCALITY",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_SOCKET_RETRY_CNT",
    "NCCL_SOCKET_RETRY_SLEEP_MSEC",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_TOPO_DUMP_FILE_RANK",
    "NCCL_UID_STAGGER_RATE",
    "NCCL_UID_STAGGER_THRESHOLD",
    "NCCL_WORK_ARGS_BYTES",
    "NCCL_WORK_FIFO_BYTES",
});

/// Variables that change device memory in ways that are not modelled, unless they have this value.
struct UnmodelledVariable {
  std::string_view name;
  std::string_view neutral;
  std::string_view why;
};
constexpr auto unmodelled = std::to_array<UnmodelledVariable>({
    {"NCCL_COLLNET_ENABLE", "0", "SHARP has buffers of its own"},
    {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "0", "communicators would share buffers"},
    {"NCCL_COMM_SHRINK_SHARE_RESOURCES", "0", "communicators would share buffers"},
    {"NCCL_GDRCOPY_ENABLE", "0", "queues would be on the device"},
    {"NCCL_GRAPH_FILE", "", "it determines the channels: give them in [nccl.channels] of the cluster"},
    {"NCCL_MNNVL_ENABLE", "0", "nodes joined by NVLink are not modelled"},
    {"NCCL_NET_DISABLE_INTRA", "1", "the network is not used inside a node"},
    {"NCCL_NET_SHARED_BUFFERS", "1", "every peer would have a buffer of its own"},
    {"NCCL_NVB_DISABLE", "1", "detours by NVLink put buffers on other devices"},
    {"NCCL_P2P_USE_CUDA_MEMCPY", "0", "copy engines have buffers of their own"},
    {"NCCL_SET_STACK_SIZE", "0", "every context would grow"},
    {"NCCL_SHM_USE_CUDA_MEMCPY", "0", "copy engines have buffers of their own"},
    {"NCCL_TOPO_FILE", "", "it determines the channels: give them in [nccl.channels] of the cluster"},
    {"NCCL_TUNER_PLUGIN", "", "it determines which algorithms connect"},
});

constexpr auto algorithm_names =
    std::to_array<std::string_view>({"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"});
constexpr auto protocol_names = std::to_array<std::string_view>({"ll", "ll128", "simple"});
// From near to far: "LOC" or 0 is never.
constexpr auto distance_names =
    std::to_array<std::string_view>({"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"});

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

/// As strtoll with base 0 reads it (misc/param.cc), all of it.
std::optional<std::int64_t> number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.front() == '0') {
    base = 8;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A list such as "ring,tree", or "^pat" for all but those (graph/tuning.cc, parseList). Names that it has, or nothing
/// where one is not known.
template <std::size_t N>
std::optional<std::vector<bool>> chosen(std::string_view list, const std::array<std::string_view, N>& names) {
  const bool inverted = list.starts_with('^');
  if (inverted) list.remove_prefix(1);
  std::vector<bool> has(N, inverted);
  while (!list.empty()) {
    const std::string name = lower_case(std::string(list.substr(0, list.find(','))));
    list.remove_prefix(std::min(name.size() + 1, list.size()));
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    has[static_cast<std::size_t>(found - names.begin())] = !inverted;
  }
  return has;
}

/// Since NCCL 2.24.
bool chooses_by_collective(TomlReader& table, std::string_view name, const std::string& value,
                           std::string_view example) {
  if (value.find(':') == std::string::npos) return false;
  table.problem(
      name,
      not_modelled(fmt::format("{} = {} chooses per collective, which is not modelled yet", name, in_quotes(value))),
      fmt::format("one list for all, such as {}, or leave it out", in_quotes(example)));
  return true;
}

/// Buffers of all protocols are there, whichever are used.
void read_protocols(TomlReader& table, const std::string& value, NcclSettings& settings) {
  constexpr std::string_view name = "NCCL_PROTO";
  if (value.empty() || chooses_by_collective(table, name, value, "ll,simple")) return;
  const std::optional<std::vector<bool>> has = chosen(value, protocol_names);
  if (!has)
    return table.problem(name, fmt::format("{} = {} names a protocol that NCCL does not have", name, in_quotes(value)),
                         fmt::format("{} would do", fmt::join(protocol_names, ", ")));
  settings.protocols = {.ll = (*has)[0], .ll128 = (*has)[1], .simple = (*has)[2]};
}

void read_algorithms(TomlReader& table, const std::string& value, NcclSettings& settings) {
  constexpr std::string_view name = "NCCL_ALGO";
  if (chooses_by_collective(table, name, value, "ring,tree")) return;
  const std::optional<std::vector<bool>> has = chosen(value, algorithm_names);
  if (!has)
    return table.problem(name,
                         fmt::format("{} = {} names an algorithm that NCCL does not have", name, in_quotes(value)),
                         fmt::format("{} would do", fmt::join(algorithm_names, ", ")));
  if (value.empty()) return;
  const bool pat = settings.algorithms.pat;
  settings.algorithms = {
      .ring = (*has)[1], .tree = (*has)[0], .nvls = (*has)[4], .nvls_tree = (*has)[5], .pat = pat && (*has)[6]};
}

void read_distance(TomlReader& table, const std::string& name, const std::string& value, NcclSettings& settings) {
  const std::optional<std::int64_t> level = number(value);  // the older form
  const bool known = std::find(distance_names.begin(), distance_names.end(), value) != distance_names.end();
  if (!known && !(level && *level >= 0 && *level <= 5))
    return table.problem(name, fmt::format("{} = {} is not a distance", name, in_quotes(value)),
                         fmt::format("{} would do", fmt::join(distance_names, ", ")));
  const bool never = value == "LOC" || (level && *level == 0);
  if (name == "NCCL_NET_GDR_LEVEL")
    settings.gpu_direct = settings.gpu_direct && !never;
  else if (never)
    settings.peer_access = PeerAccess::Nowhere;
  else if (value == "NVL" || (level && *level == 1))
    settings.peer_access = std::max(settings.peer_access, PeerAccess::NvLink);
}

std::vector<std::string> known_names() {
  std::vector<std::string> names{"NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"};
  for (const Number& n : numbers) names.emplace_back(n.name);
  for (const UnmodelledVariable& u : unmodelled) names.emplace_back(u.name);
  names.insert(names.end(), harmless_to_memory.begin(), harmless_to_memory.end());
  return names;
}

}  // namespace

bool is_nccl_variable(std::string_view name) { return name.starts_with("NCCL_"); }
bool is_harmless_nccl_variable(std::string_view name) {
  return std::find(harmless_to_memory.begin(), harmless_to_memory.end(), name) != harmless_to_memory.end();
}

void read_nccl_variable(TomlReader& table, const std::string& name, const std::string& value, NcclSettings& settings) {
  if (is_harmless_nccl_variable(name)) return;
  const auto* const numeric =
      std::find_if(numbers.begin(), numbers.end(), [&](const Number& n) { return n.name == name; });
  if (numeric != numbers.end()) {
    if (value.empty()) return;  // as if unset
    const std::optional<std::int64_t> n = number(value);
    if (!n || *n < numeric->low || *n > numeric->high)
      return table.problem(name, fmt::format("{} = {} is out of range", name, in_quotes(value)),
                           fmt::format("{} to {} would do", numeric->low, numeric->high));
    return numeric->set(settings, *n);
  }
  const auto* const refused =
      std::find_if(unmodelled.begin(), unmodelled.end(), [&](const UnmodelledVariable& u) { return u.name == name; });
  if (refused != unmodelled.end()) {
    if (value == refused->neutral) return;
    return table.problem(
        name, not_modelled(fmt::format("{} = {} is not modelled: {}", name, in_quotes(value), refused->why)),
        refused->neutral.empty() ? "leave it out"
                                 : fmt::format("leave it out, or set {}", in_quotes(refused->neutral)));
  }
  if (name == "NCCL_ALGO") return read_algorithms(table, value, settings);
  if (name == "NCCL_PROTO") return read_protocols(table, value, settings);
  if (name == "NCCL_NET_GDR_LEVEL" || name == "NCCL_P2P_LEVEL") return read_distance(table, name, value, settings);
  if (name == "NCCL_NET") {
    if (lower_case(value) != "socket") return;
    settings.sockets = true;
    settings.gpu_direct = false;
    return;
  }
  const std::string meant = nearest(name, known_names());
  table.problem(name, fmt::format("{} is not a variable of NCCL 2.30 or older that is known here", in_quotes(name)),
                meant.empty() ? "leave it out, if it does not change memory" : fmt::format("did you mean {}?", meant));
}

}  // namespace tidemark::scenarios
