#include "scenarios/recordings/logs/training_log.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/logs/log_line.hpp"
#include "scenarios/recordings/logs/logged_steps.hpp"

namespace tidemark::scenarios {
namespace {

constexpr double mebibyte = 1 << 20, gibibyte = 1 << 30;
constexpr double most_bytes = 1LL << 50;  // a petabyte: more than any device has

class LogReader {
 public:
  LogReader(const std::string& file, Rank unnamed) : file_(file), unnamed_(unnamed) {}

  void read(std::string_view line, std::size_t number) {
    number_ = number;
    // Ranks write to one file, and what they write may share a line.
    for (std::size_t at = line.find("[Rank "); at != std::string_view::npos; at = line.find("[Rank ", at + 1))
      megatron(line, at);
    torchtitan(line);
    older_megatron(line);
    deepspeed(line);
    gigabytes(line);
    nanotron(line);
    olmo_core(line);
    out_of_memory(line);
    nvidia_smi(line);
  }

  std::vector<LoggedPeak> peaks(bool or_none) && {
    if (!problems_.empty()) throw InputError(problems_);
    if (peaks_.empty() && !or_none)
      throw InputError(Problem{.file = file_,
                               .message = "has no memory report of a rank, and no step's time",
                               .hint =
                                   "Megatron-LM writes \"[Rank 0] (after 2 iterations) memory (MB) | allocated: …\" "
                                   "after its first two logged iterations, torchtitan \"memory: 47.15GiB(49.59%)\" "
                                   "with each step that it logs; docs/snapshots.md has the others"});
    std::vector<LoggedPeak> found;
    for (const auto& [rank, peak] : peaks_) found.push_back(peak);
    return found;
  }

 private:
  void megatron(std::string_view line, std::size_t at) {
    LineReader read(line, at);
    read.skip("[Rank ");
    const std::optional<std::int32_t> rank = read.number<std::int32_t>();
    if (!rank || *rank < 0 || !read.skip("]")) return;
    if (!read.skip("(after ")) return;  // reports around checkpoints, and other lines of a rank
    const std::optional<std::int64_t> step = read.number<std::int64_t>();
    if (!step || !read.skip("iterations)") || !read.skip("memory (MB)")) return;
    LoggedPeak peak{.rank = {*rank},
                    .framework = LoggedPeak::Framework::Megatron,
                    .step = *step,
                    .allocated = {},
                    .reserved = {},
                    .line = number_};
    const auto value = [&](std::string_view name) -> std::optional<Bytes> {
      const bool named = read.skip("|") && read.skip(name) && read.skip(":");
      const std::optional<double> megabytes = named ? read.number<double>() : std::nullopt;
      if (megabytes && *megabytes >= 0 && *megabytes * mebibyte < most_bytes)
        return Bytes{std::llround(*megabytes * mebibyte)};
      return std::nullopt;
    };
    const std::optional<Bytes> now = value("allocated"), allocated = now ? value("max allocated") : now;
    const std::optional<Bytes> held = allocated ? value("reserved") : now,
                               reserved = held ? value("max reserved") : held;
    if (!now || !allocated || !held || !reserved) {
      return add(
          read.column(), "the memory report of rank " + std::to_string(*rank) + " breaks off or is not a number here",
          "as in: [Rank 0] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3.0 "
          "| max reserved: 3.0");
    }
    peak.allocated = *allocated;
    peak.reserved = *reserved;
    peaks_[peak.rank] = peak;
  }

  void torchtitan(std::string_view line) {
    static constexpr std::string_view word = "memory:";
    const std::size_t at = line.find(word), step_at = line.find("step:");
    if (at == std::string_view::npos || step_at == std::string_view::npos || step_at > at) return;
    if (line.find("validate step:") != std::string_view::npos) return;  // not the training step's memory
    LineReader read(line, at + word.size());
    LineReader step_reader(line, step_at + 5);
    const std::optional<double> gib = read.number<double>();
    const std::optional<std::int64_t> step = step_reader.number<std::int64_t>();
    const bool is_size = gib && *gib >= 0 && *gib * gibibyte < most_bytes && read.skip("GiB(") &&
                         read.number<double>() && read.skip("%)");
    if (!is_size || !step)
      return add(is_size ? step_reader.column() : read.column(),
                 "the memory of a step breaks off or is not a number here",
                 "as in: step: 10  loss: 7.1  memory: 47.15GiB(49.59%)");
    Rank rank = unnamed_;
    if (const std::size_t named = line.find("[rank"); named < at) {
      const std::optional<std::int32_t> number = LineReader(line, named + 5).number<std::int32_t>();
      if (number && *number >= 0) rank = {*number};
    }
    const Bytes reserved{std::llround(*gib * gibibyte)};
    const auto [known, is_new] = peaks_.try_emplace(rank);
    if (!is_new && known->second.reserved >= reserved) return;
    known->second = {.rank = rank,
                     .framework = LoggedPeak::Framework::Torchtitan,
                     .step = *step,
                     .allocated = {},
                     .reserved = reserved,
                     .line = number_};
  }

  static std::optional<Bytes> bytes_of(std::optional<double> number, double unit) {
    if (!number || *number < 0 || *number * unit >= most_bytes) return std::nullopt;
    return Bytes{std::llround(*number * unit)};
  }
  // "GiB", "MiB", as PyTorch writes sizes.
  static std::optional<Bytes> size_before(std::string_view line, std::string_view words) {
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos) return std::nullopt;
    std::size_t end = at;
    while (end > 0 && is_blank(line[end - 1])) --end;
    std::size_t unit = end;
    while (unit > 0 && std::isalpha(static_cast<unsigned char>(line[unit - 1])) != 0) --unit;
    std::size_t begin = unit;
    while (begin > 0 && is_blank(line[begin - 1])) --begin;
    while (begin > 0 && (std::isdigit(static_cast<unsigned char>(line[begin - 1])) != 0 || line[begin - 1] == '.'))
      --begin;
    const std::string_view name = line.substr(unit, end - unit);
    const double scale = name == "GiB" ? gibibyte : name == "MiB" ? mebibyte : name == "KiB" ? 1024 : 1;
    return bytes_of(LineReader(line, begin).number<double>(), scale);
  }
  [[nodiscard]] Rank rank_of(std::string_view line) const { return named_rank(line).value_or(unnamed_); }
  static std::int64_t step_of(std::string_view line) {
    for (const std::string_view word : {"iteration", "step="})
      if (const std::optional<double> found = number_behind(line, word)) return std::llround(*found);
    return -1;
  }
  // Of several lines of a rank, the highest of each.
  void raise(LoggedPeak peak) {
    const auto highest = [](std::optional<Bytes>& of, const std::optional<Bytes>& its) {
      if (its && (!of || *of < *its)) of = its;
    };
    peak.line = number_;
    const auto [known, is_new] = peaks_.try_emplace(peak.rank, peak);
    if (is_new) return;
    LoggedPeak& its = known->second;
    if (its.framework == LoggedPeak::Framework::Megatron && peak.framework != LoggedPeak::Framework::OutOfMemory &&
        peak.framework != LoggedPeak::Framework::Megatron)
      return;  // it says more
    highest(its.allocated, peak.allocated), highest(its.reserved, peak.reserved), highest(its.device, peak.device);
    its.line = peak.line, its.framework = peak.framework, its.step = peak.step;
  }

  // megatron/utils.py report_memory before the rank stood in it.
  void older_megatron(std::string_view line) {
    const std::size_t at = line.find("after ");
    if (at == std::string_view::npos) return;
    LineReader read(line, at + 6);
    const std::optional<std::int64_t> step = read.number<std::int64_t>();
    if (!step || !read.skip("iterations") || !read.skip("memory (MB)")) return;
    raise({.rank = rank_of(line),
           .framework = LoggedPeak::Framework::Megatron,
           .step = *step,
           .allocated = bytes_of(number_behind(line, "max allocated", at), mebibyte),
           .reserved = bytes_of(number_behind(line, "max reserved", at), mebibyte)});
  }
  // What see_memory_usage is given a name for: deepspeed/runtime/engine.py, and zero/ of it.
  static bool is_of_initialization(std::string_view name) {
    return std::ranges::any_of(
        std::array{"initializ", "Stage 3 initialize", " fp16 partitions", " fp32 partitions", "bf16_optimizer",
                   "bf16_ optimizer", "DeepSpeed Engine:", "Set Grad positions", "lattening", "param group",
                   "partitioning param", "converting"},
        [&](const char* its) { return name.find(its) != std::string_view::npos; });
  }
  // GB of 1024^3 bytes; the highest that the cache held is told in whole ones, so what it holds now counts, too.
  void deepspeed(std::string_view line) {
    const std::size_t at = line.find("Max_MA ");
    if (const std::size_t said = line.find("see_memory_usage]");
        said != std::string_view::npos && at == std::string_view::npos)
      initializes_ = is_of_initialization(line.substr(said));
    if (at == std::string_view::npos || line.find("Max_CA ") == std::string_view::npos) return;
    const std::optional<double> now = number_behind(line, " CA ", at), most = number_behind(line, "Max_CA ", at);
    constexpr double half = 0.5;
    const std::optional<double> held = now && most ? std::max(*now, *most - half) : now;
    raise({.rank = rank_of(line),
           .framework = LoggedPeak::Framework::DeepSpeed,
           .step = initializes_ ? 0 : step_of(line),
           .allocated = bytes_of(number_behind(line, "Max_MA ", at), gibibyte),
           .reserved = bytes_of(held, gibibyte)});
  }
  // NeMo (lightning/pytorch/strategies/megatron_strategy.py: bytes) and Megatron-Bridge (training/utils/train_utils.py:
  // thousands of millions of them).
  void gigabytes(std::string_view line) {
    constexpr double decimal = 1e9;
    if (const auto bytes = number_behind(line, "max_memory_allocated"))
      raise({.rank = rank_of(line),
             .framework = LoggedPeak::Framework::Nemo,
             .step = step_of(line),
             .allocated = bytes_of(bytes, 1),
             .reserved = bytes_of(number_behind(line, "max_memory_reserved"), 1)});
    if (const auto allocated = number_behind(line, "mem-max-allocated-gigabytes"))
      raise({.rank = rank_of(line),
             .framework = LoggedPeak::Framework::Bridge,
             .step = step_of(line),
             .allocated = bytes_of(allocated, decimal),
             .reserved = bytes_of(number_behind(line, "mem-max-reserved-gigabytes"), decimal)});
  }
  void nanotron(std::string_view line) {
    const std::optional<double> allocated = number_behind(line, "Peak allocated");
    if (!allocated || line.find("MiB") == std::string_view::npos) return;
    raise({.rank = rank_of(line),
           .framework = LoggedPeak::Framework::Nanotron,
           .step = step_of(line),
           .allocated = bytes_of(allocated, mebibyte),
           .reserved = bytes_of(number_behind(line, "Peak reserved"), mebibyte)});
  }
  void olmo_core(std::string_view line) {
    if (const auto reserved = number_behind(line, "GPU reserved mem (GiB)"))
      raise({.rank = rank_of(line),
             .framework = LoggedPeak::Framework::OlmoCore,
             .step = step_of(line),
             .allocated = {},
             .reserved = bytes_of(reserved, gibibyte)});
  }
  // c10/cuda/CUDACachingAllocator.cpp, since PyTorch 2.1 and before.
  void out_of_memory(std::string_view line) {
    if (line.find("CUDA out of memory.") == std::string_view::npos) return;
    std::optional<Bytes> allocated = size_before(line, "is allocated by PyTorch"), reserved;
    if (const auto cached = size_before(line, "is reserved by PyTorch but unallocated"); allocated && cached)
      reserved = *allocated + *cached;
    if (!allocated) {
      allocated = size_before(line, "already allocated");
      reserved = size_before(line, "reserved in total by PyTorch");
    }
    if (!allocated) return;
    raise({.rank = rank_of(line),
           .framework = LoggedPeak::Framework::OutOfMemory,
           .step = step_of(line),
           .allocated = allocated,
           .reserved = reserved,
           .device = size_before(line, "memory in use"),
           .capacity = size_before(
               line, line.find("total capacity;") == std::string_view::npos ? "of which" : "total capacity;")});
  }
  // nvidia-smi --query-gpu=index,memory.used --format=csv, with or without units.
  void nvidia_smi(std::string_view line) {
    std::vector<std::string_view> fields;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t end = std::min(line.find(',', at), line.size());
      std::string_view field = line.substr(at, end - at);
      while (!field.empty() && (is_blank(field.front()))) field.remove_prefix(1);
      while (!field.empty() && (is_blank(field.back()) || field.back() == '\r')) field.remove_suffix(1);
      fields.push_back(field);
      at = end + 1;
    }
    const auto column = [&](std::string_view name) -> std::size_t {
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (fields[i].starts_with(name)) return i;
      return fields.size();
    };
    if (const std::size_t used = column("memory.used"); used < fields.size()) {
      used_ = used;
      index_ = column("index");
      columns_ = fields.size();
      return;
    }
    if (columns_ == 0 || fields.size() != columns_) return;
    const std::optional<double> mebibytes = LineReader(fields[used_]).number<double>();
    if (!mebibytes || *mebibytes < 0) return;
    Rank rank = unnamed_;
    if (index_ < columns_) {
      const std::optional<std::int32_t> index = LineReader(fields[index_]).number<std::int32_t>();
      if (!index || *index < 0) return;
      rank = {*index};
    }
    raise({.rank = rank,
           .framework = LoggedPeak::Framework::NvidiaSmi,
           .step = -1,
           .allocated = {},
           .reserved = {},
           .device = bytes_of(mebibytes, mebibyte)});
  }

  void add(std::size_t column, std::string message, std::string hint) {
    constexpr std::size_t enough = 20;
    if (problems_.size() >= enough) return;
    problems_.push_back({.file = file_,
                         .line = static_cast<int>(number_),
                         .column = static_cast<int>(column),
                         .message = std::move(message),
                         .hint = std::move(hint)});
  }

  const std::string& file_;
  Rank unnamed_;
  std::size_t number_ = 0;
  bool initializes_ = false;                        // what DeepSpeed's next report of memory is of
  std::size_t used_ = 0, index_ = 0, columns_ = 0;  // of nvidia-smi's table; 0 columns: there is none
  std::map<Rank, LoggedPeak> peaks_;
  std::vector<Problem> problems_;
};

}  // namespace

std::string_view name(LoggedPeak::Framework framework) {
  static constexpr std::array<std::string_view, 9> names{
      "megatron", "torchtitan", "deepspeed", "nemo", "bridge", "nanotron", "olmo-core", "nvidia-smi", "out-of-memory"};
  return names.at(static_cast<std::size_t>(framework));
}

std::vector<LoggedPeak> training_log(std::string_view text, const std::string& file, Rank unnamed) {
  LogReader reader(file, unnamed);
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    reader.read(without_colours(text.substr(at, end - at)), ++number);
    at = end + 1;
  }
  return std::move(reader).peaks(!logged_steps(text).empty());
}

}  // namespace tidemark::scenarios
