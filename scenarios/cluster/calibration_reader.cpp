#include "scenarios/cluster/calibration_reader.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cost/rates.hpp"
#include "scenarios/cluster/calibration_names.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/named_files.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

using namespace literals;

constexpr IntegerRange extents{1, std::int64_t{1} << 40}, several_ranks{2, 1 << 20}, node_count{1, 1 << 20};
// Of a peak that a data sheet has: no measurement, but what tells slips of a unit from devices that run above their
// data sheet's clock, and from caches, which are faster than the memory behind them.
constexpr Ratio least_fraction{1}, most_of_peak{1'250'000}, most_of_caches{2'000'000};
constexpr Bytes largest_cache = 128_MiB;  // B200's second level has 126 MB
constexpr Duration most_time{picoseconds_per_second * 3600};

std::vector<std::string> kernel_kinds() {
  std::vector<std::string> all;
  for (const OperationFacts& facts : all_operations()) all.emplace_back(facts.name);
  return all;
}

std::optional<Operation> read_kind(TomlReader& entry) {
  const std::optional<std::string> kind = entry.string("kind", Presence::Required);
  if (!kind) return std::nullopt;
  const std::span<const OperationFacts> all = all_operations();
  for (std::size_t o = 0; o < all.size(); ++o)
    if (all[o].name == *kind) return static_cast<Operation>(o);
  const std::string meant = nearest(*kind, kernel_kinds());
  entry.problem("kind", fmt::format("kind = {} is not an operation", in_quotes(*kind)),
                meant.empty() ? "docs/operations.md lists them: such as \"matmul\", \"attention\" or \"rms_norm\""
                              : fmt::format("did you mean {}?", in_quotes(meant)));
  return std::nullopt;
}

Duration read_time(TomlReader& entry, Presence presence = Presence::Required) {
  const std::optional<Duration> time = entry.duration("time", presence);
  if (time && (*time <= Duration{} || *time > most_time))
    entry.problem("time", fmt::format("time = {} is out of range", text(*time)),
                  fmt::format("more than 0 s, up to {} would do", text(most_time)));
  return time.value_or(Duration{1});
}

Bytes read_size(TomlReader& entry) {
  const Bytes size = entry.bytes("bytes", Presence::Required).value_or(Bytes{1});
  if (entry.sound("bytes") && (size <= Bytes{} || size.count() > extents.high))
    entry.problem("bytes", fmt::format("bytes = {} is out of range", text(size)), "1 B to 1 TiB would do");
  return size;
}

// The sizes of a kernel, as its operation goes (kernels/cost/calibrated_kernel.hpp), and its operations or bytes, of
// whose peak a fraction is.
struct Sizes {
  std::vector<std::int64_t> all;
  double work = 0;
  bool of_peak = false;
};

Sizes read_sizes(TomlReader& entry, Operation operation) {
  const auto extent = [&](std::string_view key, Presence presence = Presence::Required) {
    return entry.integer(key, extents, presence).value_or(1);
  };
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  if (operation == Operation::Matmul) {
    const std::int64_t batches = extent("batches", Presence::Optional);
    const std::int64_t m = extent("m"), n = extent("n"), k = extent("k");
    return {{batches, m, n, k}, 2 * number(batches) * number(m) * number(n) * number(k), true};
  }
  if (operation == Operation::Attention || operation == Operation::AttentionBackward) {
    const std::int64_t batch = extent("batch"), heads = extent("heads"), queries = extent("queries"),
                       keys = extent("keys"), width = extent("width");
    const bool causal = entry.boolean("causal", Presence::Required).value_or(false);
    if (causal && entry.sound("keys") && entry.sound("queries") && keys < queries)
      entry.problem("keys", fmt::format("{} causal queries of {} keys", queries, keys),
                    "as many keys as queries would do, or more");
    const double scores =
        number(batch) * number(heads) * number(queries) * (number(keys) - (causal ? number(queries) / 2 : 0));
    const int products = operation == Operation::Attention ? 2 : 5;
    return {{batch, heads, queries, keys, width, causal ? 1 : 0}, 2 * scores * number(width) * products, true};
  }
  const Bytes bytes = read_size(entry);
  return {{bytes.count()}, number(bytes.count()), false};
}

// Nothing that moves bytes is so much faster than the memory, a core's nearest cache included; slips of a unit are a
// thousand.
constexpr std::int64_t most_times_the_memory = 20;

void check_rate(TomlReader& entry, Bytes size, Duration time, const Device& device) {
  const Bandwidth memory = device.memory_bandwidth;
  if (memory <= Bandwidth{} || !entry.sound("time") || !entry.sound("bytes") ||
      size / (memory * most_times_the_memory) <= time)
    return;
  entry.problem(
      "time",
      fmt::format("time = {}: that is {:.3g} GB/s, and the device's memory moves {:.0f}", text(time),
                  static_cast<double>(size.count()) / seconds(time) / 1e9, static_cast<double>(memory.count()) / 1e9),
      "a longer time would do, or fewer bytes");
}

// Of what no device does.
void check_speed(TomlReader& entry, const Calibration::Kernel& kernel, const Sizes& sizes, const Device& device) {
  const auto peak = static_cast<double>(kernels::peak_rate(device, kernel.dtype).count());
  const double most = peak * static_cast<double>(most_of_peak.count()) / static_cast<double>(one.count());
  const double seconds = static_cast<double>(kernel.time.count()) / static_cast<double>(picoseconds_per_second);
  if (!sizes.of_peak) return check_rate(entry, Bytes{sizes.all.front()}, kernel.time, device);
  if (peak <= 0 || !entry.sound("time") || sizes.work <= most * seconds) return;
  entry.problem("time",
                fmt::format("time = {}: that is {:.0f} TFLOP/s, and the device's peak is {:.0f}", text(kernel.time),
                            sizes.work / seconds / 1e12, peak / 1e12),
                "a longer time would do, or smaller sizes");
}

std::optional<Calibration::Kernel> read_kernel(TomlReader entry, const Device& device) {
  const std::optional<Operation> operation = read_kind(entry);
  const std::optional<DType> dtype = read_name(entry, "dtype", calibrated_types, {}, Presence::Required);
  if (!operation) {
    // What else it may say depends on that.
    for (const TomlKey& key : entry.keys()) entry.raw(key.name);
    return std::nullopt;
  }
  const Sizes sizes = read_sizes(entry, *operation);
  Calibration::Kernel kernel{*operation, dtype.value_or(DType::BF16), sizes.all, {}};
  const bool timed = entry.has("time"), fraction = entry.has("fraction");
  if (fraction) {
    const bool may_be_cached = !sizes.of_peak && Bytes{sizes.all.front()} <= largest_cache;
    const std::optional<Ratio> reached =
        entry.ratio("fraction", least_fraction, may_be_cached ? most_of_caches : most_of_peak);
    const double peak = static_cast<double>(sizes.of_peak ? kernels::peak_rate(device, kernel.dtype).count()
                                                          : device.memory_bandwidth.count());
    const double share = static_cast<double>(reached.value_or(one).count()) / static_cast<double>(one.count());
    const double picoseconds = sizes.work / (peak * share) * static_cast<double>(picoseconds_per_second);
    if (peak <= 0 || picoseconds > static_cast<double>(most_time.count()))
      entry.problem("fraction", "that takes more than an hour", "a time would do");
    else
      kernel.time = Duration{std::max<std::int64_t>(static_cast<std::int64_t>(picoseconds), 1)};
  }
  if (timed && fraction) {
    (void)entry.raw("time");
    entry.problem("fraction", "time and fraction are two ways to say the same", "leave one of them out");
  } else if (!fraction) {
    kernel.time = read_time(entry);
    check_speed(entry, kernel, sizes, device);
  }
  entry.refuse_unknown_keys();
  return kernel;
}

Calibration::Collective read_collective(TomlReader entry, const Device& device) {
  Calibration::Collective c;
  c.kind = read_name(entry, "kind", collective_kind_names, {}, Presence::Required).value_or(c.kind);
  c.ranks = narrow(entry.integer("ranks", several_ranks, Presence::Required).value_or(2));
  c.nodes = narrow(entry.integer("nodes", node_count).value_or(1));
  if (entry.sound("nodes") && entry.sound("ranks") && c.nodes > c.ranks)
    entry.problem("nodes", fmt::format("{} ranks do not fill {} nodes evenly", c.ranks, c.nodes),
                  "a node for each rank would do, or fewer");
  c.size = read_size(entry);
  c.time = read_time(entry);
  check_rate(entry, c.size, c.time, device);
  entry.refuse_unknown_keys();
  return c;
}

Calibration::Message read_message(TomlReader entry, const Device& device) {
  Calibration::Message m;
  m.between_nodes = entry.boolean("between_nodes").value_or(false);
  m.size = read_size(entry);
  m.time = read_time(entry);
  check_rate(entry, m.size, m.time, device);
  entry.refuse_unknown_keys();
  return m;
}

Calibration::Copy read_copy(TomlReader entry, const Device& device) {
  Calibration::Copy c;
  c.to_device =
      read_name(entry, "direction", copy_direction_names, {}, Presence::Required).value_or(CopyDirection::ToDevice) ==
      CopyDirection::ToDevice;
  c.size = read_size(entry);
  c.time = read_time(entry);
  check_rate(entry, c.size, c.time, device);
  entry.refuse_unknown_keys();
  return c;
}

/// Calls `read(entry)` for each table of a list, and refuses what is none.
template <class Read>
void each_entry(TomlReader& top, std::string_view key, Problems& problems, Read&& read) {
  const TomlValue* const given = top.raw(key);
  if (given == nullptr) return;
  const auto* const list = std::get_if<std::vector<TomlValue>>(&given->value);
  if (list == nullptr)
    return top.problem(key, fmt::format("{} takes a list of tables", key),
                       "docs/calibration.md has a line of each kind");
  for (const TomlValue& one_of_them : *list) {
    const auto* const table = std::get_if<TomlTable>(&one_of_them.value);
    if (table == nullptr)
      problems.add(one_of_them.place, fmt::format("an entry of {} is a table", key),
                   "docs/calibration.md has a line of each kind");
    else
      read(TomlReader(table, one_of_them.place, std::string(key), problems), one_of_them.place);
  }
}

/// Refuses to hear of one thing twice.
class Said {
 public:
  explicit Said(Problems& problems) : problems_(problems) {}
  template <class... Key>
  void once(Place place, std::string_view what, Key... key) {
    std::string text;
    ((text += fmt::format("{} ", key)), ...);
    if (!said_.insert(std::move(text)).second)
      problems_.add(place, fmt::format("{} that was said before", what), "leave one of them out");
  }

 private:
  Problems& problems_;
  std::set<std::string> said_;
};

}  // namespace

Calibration parse_calibration(std::string_view file_text, const std::filesystem::path& file, const Device& device) {
  Problems problems(file.string());
  const TomlTable document = parse_toml(file_text, problems.file());
  TomlReader top(&document, {}, "", problems);
  Calibration calibration;
  calibration.name = file.filename().string();
  calibration.text = file_text;
  calibration.source = top.string("source", Presence::Required).value_or("");
  Said kernels(problems), collectives(problems), messages(problems), copies(problems);
  each_entry(top, "kernels", problems, [&](TomlReader entry, Place place) {
    std::optional<Calibration::Kernel> k = read_kernel(std::move(entry), device);
    if (!k) return;
    kernels.once(place, "a kernel", name(k->operation), name(k->dtype), fmt::format("{}", fmt::join(k->sizes, "x")));
    calibration.kernels.push_back(*std::move(k));
  });
  each_entry(top, "collectives", problems, [&](TomlReader entry, Place place) {
    const Calibration::Collective c = read_collective(std::move(entry), device);
    collectives.once(place, "a collective", name(c.kind), c.ranks, c.nodes, c.size.count());
    calibration.collectives.push_back(c);
  });
  each_entry(top, "messages", problems, [&](TomlReader entry, Place place) {
    const Calibration::Message m = read_message(std::move(entry), device);
    messages.once(place, "a message", m.between_nodes, m.size.count());
    calibration.messages.push_back(m);
  });
  each_entry(top, "copies", problems, [&](TomlReader entry, Place place) {
    const Calibration::Copy c = read_copy(std::move(entry), device);
    copies.once(place, "a copy", c.to_device, c.size.count());
    calibration.copies.push_back(c);
  });
  top.refuse_unknown_keys();
  problems.raise_if_any();
  return calibration;
}

SharedCalibration read_calibration_key(TomlReader& top, const ScenarioFolders& folders, Problems& problems,
                                       const Device& device, const ScenarioFiles& read_before) {
  constexpr std::string_view key = "calibration";
  const std::optional<std::string> name = top.string(key);
  if (!name) return {};
  try {
    if (const auto read = read_before.texts.find(*name); read != read_before.texts.end())
      return parse_calibration(read->second.text, read->second.path, device);
    if (const std::optional<std::filesystem::path> path = resolved(*name, folders))
      return parse_calibration(read_text(*path), *path, device);
  } catch (const InputError& error) {
    problems.add(error);
    top.refuse_to_judge(key);
    return {};
  }
  const std::string near = near_file(*name, folders);
  top.problem(key, fmt::format("calibration = {} is not a file next to this one", in_quotes(*name)),
              near.empty() ? "tidemark calibrate writes one, docs/calibration.md says what is in it"
                           : fmt::format("did you mean {}?", in_quotes(near)));
  return {};
}

}  // namespace tidemark::scenarios
