#include "scenarios/recordings/training_log.hpp"

#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

constexpr double mebibyte = 1 << 20, gibibyte = 1 << 30;
constexpr double most_bytes = 1LL << 50;  // a petabyte: more than any device has

// Terminals' colours, which torchtitan prints: ESC [ … m.
std::string without_colours(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      const std::size_t end = text.find('m', i);
      if (end == std::string_view::npos) break;
      i = end;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool is_space(char c) { return c == ' ' || c == '\t'; }

// A line, and how far it was read.
class LineReader {
 public:
  explicit LineReader(std::string_view text, std::size_t at = 0) : text_(text), at_(at) {}

  [[nodiscard]] std::size_t column() const { return at_ + 1; }

  bool skip(std::string_view word) {
    std::size_t at = at_;
    while (at < text_.size() && is_space(text_[at])) ++at;
    if (!text_.substr(at).starts_with(word)) return false;
    at_ = at + word.size();
    return true;
  }

  template <class T>
  std::optional<T> number() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) return std::nullopt;
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

 private:
  std::string_view text_;
  std::size_t at_;
};

class LogReader {
 public:
  LogReader(const std::string& file, Rank unnamed) : file_(file), unnamed_(unnamed) {}

  void read(std::string_view line, std::size_t number) {
    number_ = number;
    // Ranks write to one file, and what they write may share a line.
    for (std::size_t at = line.find("[Rank "); at != std::string_view::npos; at = line.find("[Rank ", at + 1))
      megatron(line, at);
    torchtitan(line);
  }

  std::vector<LoggedPeak> peaks() && {
    if (!problems_.empty()) throw InputError(problems_);
    if (peaks_.empty())
      throw InputError(Problem{.file = file_,
                               .message = "has no memory report of a rank",
                               .hint =
                                   "Megatron-LM writes \"[Rank 0] (after 2 iterations) memory (MB) | allocated: …\" "
                                   "after its first two logged iterations, torchtitan \"memory: 47.15GiB(49.59%)\" "
                                   "with each step that it logs"});
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
          read.column(), "the memory report of rank " + std::to_string(*rank) + " breaks off or is no number here",
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
      return add(is_size ? step_reader.column() : read.column(), "the memory of a step breaks off or is no number here",
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
  std::map<Rank, LoggedPeak> peaks_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<LoggedPeak> training_log(std::string_view text, const std::string& file, Rank unnamed) {
  LogReader reader(file, unnamed);
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    reader.read(without_colours(text.substr(at, end - at)), ++number);
    at = end + 1;
  }
  return std::move(reader).peaks();
}

}  // namespace tidemark::scenarios
