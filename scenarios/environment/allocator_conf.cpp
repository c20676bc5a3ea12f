#include "scenarios/environment/allocator_conf.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

struct Token {
  std::string text;
  std::size_t at = 0;
};

// ConfigTokenizer: , : [ ] stand for themselves; white space is nothing, within words too.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool mark = c == ',' || c == ':' || c == '[' || c == ']';
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    if (mark || !in_word) tokens.push_back({{}, i});
    tokens.back().text += c;
    in_word = !mark;
  }
  return tokens;
}

// Nothing after it makes sense.
struct SyntaxError {
  AllocatorConfProblem problem;
};

constexpr std::int64_t most_mebibytes = std::int64_t{1} << 40;

class ConfReader {
 public:
  explicit ConfReader(std::string_view text) : end_(text.size()), tokens_(tokens_of(text)) {}

  AllocatorConf read() {
    try {
      read_large_segment();
      while (next_ < tokens_.size()) {
        read_setting();
        if (next_ < tokens_.size()) expect(",");
      }
    } catch (const SyntaxError& error) {
      conf_.problems.push_back(error.problem);
    }
    check_combinations();
    return std::move(conf_);
  }

 private:
  AllocatorOptions& options() { return conf_.options; }

  // Others are checked against it, wherever it stands.
  void read_large_segment() {
    for (std::size_t i = 0; i + 2 < tokens_.size(); ++i) {
      if (tokens_[i].text != "large_segment_size_mb" || tokens_[i + 1].text != ":") continue;
      next_ = i + 2;
      const std::uint64_t mebibytes = number();
      const auto least = static_cast<std::uint64_t>(AllocatorOptions::min_large_alloc.count() >> 20);
      if (mebibytes <= least) {
        wrong(i + 2, fmt::format("CachingAllocator option large_segment_size_mb must be > {} MB", least));
      } else {
        options().large_segment = bytes(mebibytes);
      }
    }
    options().max_non_split_rounding = options().large_segment;
    next_ = 0;
  }

  void read_setting() {
    const std::size_t key = next_++;
    const std::string& name = tokens_[key].text;
    const auto known =
        std::find_if(std::begin(settings), std::end(settings), [&](const Setting& s) { return s.name == name; });
    if (known == std::end(settings)) {
      std::vector<std::string> names;
      for (const Setting& setting : settings) names.emplace_back(setting.name);
      const std::string meant = nearest(name, names);
      syntax(key, fmt::format("Unrecognized key '{}' in CUDA allocator config.", name),
             meant.empty() ? "keys are those of the PyTorch notes on PYTORCH_CUDA_ALLOC_CONF; values follow a colon"
                           : fmt::format("did you mean {}?", meant));
    }
    expect(":");
    key_ = key;
    (this->*known->read)();
  }

  // -- values ---------------------------------------------------------------------------------------------------------

  void skip_large_segment() { ++next_; }

  void max_split_size() {
    if (const auto size = at_least_a_segment("max_split_size_mb")) options().max_split_size = *size;
  }
  void max_non_split_rounding() {
    if (const auto size = at_least_a_segment("max_non_split_rounding_mb")) options().max_non_split_rounding = *size;
  }
  std::optional<Bytes> at_least_a_segment(std::string_view name) {
    const std::size_t value = next_;
    const std::uint64_t mebibytes = number();
    const auto least = static_cast<std::uint64_t>(options().large_segment.count() >> 20);
    if (mebibytes >= least) return bytes(mebibytes);
    wrong(value, fmt::format("CachingAllocator option {} too small, must be >= {}", name, least),
          "smaller requests are cut from segments of that size; leave it out for no limit");
    return std::nullopt;
  }

  void garbage_collection_threshold() {
    const std::size_t value = next_;
    const double threshold = real();
    if (threshold > 0 && threshold < 1) {
      options().garbage_collection_threshold = threshold;
    } else {
      wrong(value, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)", "such as 0.8; leave it out for none");
    }
  }
  void memory_fraction() {
    const std::size_t value = next_;
    const double fraction = real();
    if (fraction >= 0 && fraction <= 1) {
      options().memory_fraction = fraction;
    } else {
      wrong(value, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
    }
  }
  void expandable_segments() { options().expandable_segments = boolean(); }

  void roundup_divisions() {
    std::array<std::uint64_t, 16>& divisions = options().roundup_divisions;
    divisions = {};
    if (peek() != "[") {
      const std::size_t value = next_;
      const std::uint64_t everywhere = number();
      if (!std::has_single_bit(everywhere))
        return wrong(value, "For roundups, the divisions has to be power of 2", "0 goes with a list, such as [256:0]");
      divisions.fill(everywhere);
      return;
    }
    ++next_;
    std::size_t last = 0;
    for (bool first = true; peek() != "]"; first = false) {
      const std::size_t key = next_++;
      expect(":");
      const std::size_t value = next_;
      const std::uint64_t parts = number();
      if (parts != 0 && !std::has_single_bit(parts))
        wrong(value, "For roundups, the divisions has to be power of 2 or 0 to disable roundup");
      if (tokens_[key].text == ">") {
        std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(last) + 1, divisions.end(), parts);
      } else {
        const std::uint64_t boundary = number_at(key);
        if (!std::has_single_bit(boundary)) {
          wrong(key, "For roundups, the intervals have to be power of 2", "in MiB, such as 256; > for all above");
          last = 0;
        } else {
          last = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(boundary)) - 1, divisions.size() - 1);
          if (first) std::fill_n(divisions.begin(), last, parts);
          divisions[last] = parts;
        }
      }
      if (peek() != "]") expect(",");
    }
    ++next_;
  }

  void backend() {
    const std::size_t value = next_++;
    const std::string& name = token(value).text;
    if (name == "cudaMallocAsync") {
      wrong(value,
            scenarios::not_modelled(
                "backend:cudaMallocAsync is not modelled: its pool is the driver's, with rules of its own"),
            "leave it out for the native allocator");
    } else if (name != "native") {
      wrong(value, "Unknown allocator backend, options are native and cudaMallocAsync");
    }
  }

  // -- settings that leave device memory as it is ---------------------------------------------------------------------

  void timing_only() {
    (void)boolean();
    remark("changes how long cudaMalloc blocks other threads, not its requests");
  }
  void host_only() {
    (void)boolean();
    remark("is about pinned host memory");
  }
  void register_threads() {
    const std::size_t value = next_;
    const std::uint64_t threads = number();
    if (!std::has_single_bit(threads))
      return wrong(value, fmt::format("Number of register threads has to be power of 2, got {}", threads));
    if (threads > 128)
      return wrong(value,
                   fmt::format("Number of register threads should be less than or equal to 128, got {}", threads));
    remark("is about pinned host memory");
  }
  void reserve_segment() {
    const std::size_t value = next_;
    if (number() == 0) return wrong(value, "Pinned reserve segment size has to be greater than 0");
    remark("is about pinned host memory");
  }
  void capture_reuse() {
    if (boolean()) remark("changes what is reused while a graph is captured, which is not modelled");
  }
  void not_modelled() {
    const std::size_t value = next_++;
    if (token(value).text != "False")
      wrong(key_,
            scenarios::not_modelled(fmt::format("{} is newer than PyTorch 2.11 and not modelled", tokens_[key_].text)),
            "leave it out");
  }

  struct Setting {
    std::string_view name;
    void (ConfReader::*read)();
  };
  static constexpr Setting settings[] = {
      {"large_segment_size_mb", &ConfReader::skip_large_segment},
      {"max_split_size_mb", &ConfReader::max_split_size},
      {"max_non_split_rounding_mb", &ConfReader::max_non_split_rounding},
      {"garbage_collection_threshold", &ConfReader::garbage_collection_threshold},
      {"roundup_power2_divisions", &ConfReader::roundup_divisions},
      {"expandable_segments", &ConfReader::expandable_segments},
      {"per_process_memory_fraction", &ConfReader::memory_fraction},
      {"backend", &ConfReader::backend},
      {"release_lock_on_cudamalloc", &ConfReader::timing_only},
      {"release_lock_on_hipmalloc", &ConfReader::timing_only},
      {"pinned_use_cuda_host_register", &ConfReader::host_only},
      {"pinned_use_hip_host_register", &ConfReader::host_only},
      {"pinned_use_background_threads", &ConfReader::host_only},
      {"pinned_free_catch_all", &ConfReader::host_only},
      {"pinned_num_register_threads", &ConfReader::register_threads},
      {"pinned_reserve_segment_size_mb", &ConfReader::reserve_segment},
      {"graph_capture_record_stream_reuse", &ConfReader::capture_reuse},
      {"throw_on_cudamalloc_oom", &ConfReader::not_modelled},
      {"expandable_segments_reserve", &ConfReader::not_modelled},
      {"expandable_segments_reserve_by_class", &ConfReader::not_modelled},
  };

  // What PyTorch takes, and CUDA then does not.
  void check_combinations() {
    const AllocatorOptions& o = options();
    if (o.expandable_segments && o.large_segment % AllocatorOptions::small_segment != Bytes{})
      conf_.problems.push_back(
          {0,
           fmt::format("expandable_segments with large_segment_size_mb:{}: CUDA maps multiples of 2 MiB",
                       o.large_segment.count() >> 20),
           "an even number of MiB"});
    if (o.garbage_collection_threshold > 0 && o.memory_fraction >= 1)
      conf_.remarks.emplace_back(
          "garbage_collection_threshold has no effect without a memory fraction below 1 "
          "(per_process_memory_fraction, or torch.cuda.set_per_process_memory_fraction)");
  }

  // -- tokens ---------------------------------------------------------------------------------------------------------

  [[nodiscard]] const Token& token(std::size_t i) const {
    if (i >= tokens_.size())
      throw SyntaxError{
          {end_,
           tokens_.empty() ? "Error, expecting a value" : fmt::format("Error, expecting {} value", tokens_[key_].text),
           "settings are key:value, separated by commas"}};
    return tokens_[i];
  }
  [[nodiscard]] const std::string& peek() const { return token(next_).text; }

  void expect(std::string_view mark) {
    if (next_ >= tokens_.size() || tokens_[next_].text != mark)
      throw SyntaxError{{next_ < tokens_.size() ? tokens_[next_].at : end_,
                         fmt::format("Error parsing CachingAllocator settings, expected {}", mark),
                         "settings are key:value, separated by commas"}};
    ++next_;
  }

  // As std::stoull reads it: what follows the digits does not count, and a minus sign counts from the other end.
  [[nodiscard]] std::uint64_t number_at(std::size_t i) const {
    const std::string& text = token(i).text;
    try {
      return std::stoull(text);
    } catch (const std::logic_error&) {
      throw SyntaxError{
          {tokens_[i].at, fmt::format("{} takes a whole number, not {}", tokens_[key_].text, in_quotes(text)), {}}};
    }
  }
  std::uint64_t number() { return number_at(next_++); }

  double real() {
    const std::string& text = token(next_).text;
    try {
      const double value = std::stod(text);
      ++next_;
      return value;
    } catch (const std::logic_error&) {
      throw SyntaxError{
          {tokens_[next_].at, fmt::format("{} takes a number, not {}", tokens_[key_].text, in_quotes(text)), {}}};
    }
  }

  bool boolean() {
    const std::size_t value = next_++;
    const std::string& text = token(value).text;
    if (text != "True" && text != "False")
      wrong(value, fmt::format("Expected 'True' or 'False' at index {} in ConfigTokenizer but got '{}'", value, text),
            "capitalized, as Python writes them");
    return text == "True";
  }

  static Bytes bytes(std::uint64_t mebibytes) {
    if (mebibytes >= static_cast<std::uint64_t>(most_mebibytes)) return AllocatorOptions::unlimited;
    return Bytes{static_cast<std::int64_t>(mebibytes) << 20};
  }

  void remark(std::string_view why) {
    conf_.remarks.push_back(fmt::format("{} has no effect here: it {}", tokens_[key_].text, why));
  }
  void wrong(std::size_t i, ProblemText message, std::string hint = {}) {
    conf_.problems.push_back({tokens_[i].at, std::move(message.text), std::move(hint), message.kind});
  }
  [[noreturn]] void syntax(std::size_t i, std::string message, std::string hint) const {
    throw SyntaxError{{tokens_[i].at, std::move(message), std::move(hint)}};
  }

  std::size_t end_;
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  std::size_t key_ = 0;  // of the setting that is being read
  AllocatorConf conf_;
};

}  // namespace

AllocatorConf parse_allocator_conf(std::string_view text) { return ConfReader(text).read(); }

std::string read_allocator_text(TomlReader& table, std::string_view key) {
  std::string text = table.string(key).value_or("");
  for (const AllocatorConfProblem& problem : parse_allocator_conf(text).problems)
    table.problem(key, {fmt::format("character {}: {}", problem.at + 1, problem.message), problem.kind}, problem.hint);
  return text;
}

AllocatorConf read_allocator_conf(std::string_view text, const std::string& source) {
  AllocatorConf conf = parse_allocator_conf(text);
  std::vector<Problem> problems;
  for (const AllocatorConfProblem& problem : conf.problems)
    problems.push_back({.file = source,
                        .line = 1,
                        .column = static_cast<int>(problem.at) + 1,
                        .message = problem.message,
                        .hint = problem.hint,
                        .kind = problem.kind});
  if (!problems.empty()) throw InputError(std::move(problems));
  return conf;
}

}  // namespace tidemark::scenarios
