#include "scenarios/model_config/loads_reader.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t most_tokens = 1'000'000'000'000;  // of an expert: sums of them are doubles to the last digit

constexpr std::string_view space = " \t\r";

// One line, number by number; reports what is none.
std::vector<std::int64_t> numbers_of(std::string_view line, int at, Problems& problems) {
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    const std::size_t first = std::min(line.find_first_not_of(space, begin), end);
    const std::size_t last = end == first ? first : line.find_last_not_of(space, end - 1) + 1;
    const std::string_view word = line.substr(first, last - first);
    std::int64_t number = -1;
    const auto [stopped, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{} || stopped != word.data() + word.size() || number < 0 || number > most_tokens) {
      problems.add({at, static_cast<int>(first) + 1}, fmt::format("{} is not a number of tokens", in_quotes(word)),
                   fmt::format("0 to {} would do, with commas between them", most_tokens));
      return {};
    }
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

// A token chooses different experts: none is chosen by more than all of them.
void check_line(const std::vector<std::int64_t>& loads, int at, const Experts& experts, Problems& problems) {
  if (std::ssize(loads) != experts.count) {
    problems.add({at, 1}, fmt::format("{} numbers, and {} experts", loads.size(), experts.count),
                 "one for each expert of the layer");
    return;
  }
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  const auto largest = std::ranges::max_element(loads);
  if (*largest * experts.chosen <= all && all > 0) return;
  problems.add({at, 1},
               all == 0 ? "no expert is chosen at all"
                        : fmt::format("expert {} is chosen {} times of {}: more often than there are tokens, of which "
                                      "each chooses {} experts",
                                      largest - loads.begin(), *largest, all, experts.chosen),
               "count every token once for each expert that it chooses");
}

}  // namespace

ListedLoads parse_loads(std::string_view text, const std::filesystem::path& file, const Model& model) {
  Problems problems(file.string());
  ListedLoads loads;
  int at = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    line = line.substr(0, line.find('#'));
    begin = end + 1, ++at;
    if (line.find_first_not_of(space) == std::string_view::npos) continue;
    loads.of_layers.push_back(numbers_of(line, at, problems));
    if (!loads.of_layers.back().empty()) check_line(loads.of_layers.back(), at, *model.experts(), problems);
  }
  std::size_t layers = 0;
  for (std::int64_t layer = 0; layer < model.all_layers(); ++layer) layers += model.has_experts(layer) ? 1U : 0U;
  if (const std::size_t lines = loads.of_layers.size(); lines != 1 && lines != layers)
    problems.add({at, 1}, fmt::format("loads of {} layers, and {} have experts", lines, layers),
                 "a line for each of them would do, or one for all");
  problems.raise_if_any();
  return loads;
}

}  // namespace tidemark::scenarios
