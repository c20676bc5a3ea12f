#include "scenarios/cli/arguments.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::cli {
namespace {

std::vector<std::string> between_commas(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

std::optional<std::int32_t> number(const std::string& text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Numbers and ranges from `first` to `last`, or all of them. `what` is one of them.
std::vector<std::int32_t> requested_numbers(const std::string& option, const std::string& what, const std::string& text,
                                            std::int32_t first, std::int32_t last, const std::string& hint) {
  std::vector<std::int32_t> found;
  if (text == "all") {
    for (std::int32_t n = first; n <= last; ++n) found.push_back(n);
    return found;
  }
  for (const std::string& word : between_commas(text)) {
    const std::size_t dash = word.find('-', 1);
    const std::optional<std::int32_t> from = number(word.substr(0, dash));
    const std::optional<std::int32_t> to = dash == std::string::npos ? from : number(word.substr(dash + 1));
    if (!from || !to || *from > *to)
      refuse(option, fmt::format("{} is not a {}", in_quotes(word), what), hint + "; as in 0, 2,3, 0-3 or all");
    for (const std::int32_t n : {*from, *to})
      if (n < first || n > last) refuse(option, fmt::format("there is no {} {}", what, n), hint);
    for (std::int32_t n = *from; n <= *to; ++n) found.push_back(n);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

void refuse(std::string option, std::string message, std::string hint) {
  throw InputError(Problem{.file = std::move(option), .message = std::move(message), .hint = std::move(hint)});
}

std::vector<Rank> requested_ranks(const std::string& text, const Scenario& scenario) {
  const std::int32_t last = scenario.layout.world_size() - 1;
  std::vector<Rank> ranks;
  for (const std::int32_t r :
       requested_numbers("--rank", "rank", text, 0, last, fmt::format("the job has ranks 0 to {}", last)))
    ranks.push_back({r});
  return ranks;
}

std::vector<std::int32_t> requested_steps(const std::string& text, const Scenario& scenario) {
  const auto last = static_cast<std::int32_t>(scenario.train.steps);
  return requested_numbers("--step", "step", text, 0, last,
                           fmt::format("the job has steps 1 to {}, and 0 to set up", last));
}

std::vector<Category> requested_categories(const std::string& text) {
  std::vector<Category> found;
  const std::vector<std::string> names(category_names.begin(), category_names.end());
  for (const std::string& word : between_commas(text)) {
    const std::optional<Category> category = category_of(word);
    if (!category) {
      const std::string meant = nearest(word, names);
      refuse("--category", fmt::format("{} is not a category of memory", in_quotes(word)),
             meant.empty() ? one_of(names) : fmt::format("did you mean {}?", meant));
    }
    found.push_back(*category);
  }
  return found;
}

Bytes requested_size(const std::string& option, const std::string& text) {
  const ParsedBytes parsed = parse_bytes(text);
  if (parsed.bytes) return *parsed.bytes;
  if (parsed.below) return *parsed.below;
  refuse(option, parsed.why, "such as \"79.1 GiB\", \"512 MiB\" or \"8519680 B\"");
}

LinkModel requested_link_model(const std::string& text) {
  if (text == "max-min") return LinkModel::MaxMin;
  if (text == "alpha-beta") return LinkModel::AlphaBeta;
  refuse("--link-model", fmt::format("{} is not a model of links", in_quotes(text)),
         "max-min (transfers share links) or alpha-beta (they do not)");
}

}  // namespace tidemark::cli
