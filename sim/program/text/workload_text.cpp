#include "sim/program/text/workload_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "sim/program/text/program_text.hpp"

namespace tidemark::sim {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  return line.substr(0, line.find_last_not_of(blanks) + 1);
}

// Lines that say something, without the blanks around it, counted from 1.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) { advance(); }
  [[nodiscard]] bool at_end() const { return done_; }
  [[nodiscard]] std::string_view now() const { return line_; }
  [[nodiscard]] int number() const { return number_; }
  void advance() {
    do {
      done_ = rest_.empty();
      const std::string_view line = rest_.substr(0, rest_.find('\n'));
      rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
      line_ = trimmed(line);
      ++number_;
    } while (!done_ && (line_.empty() || line_.starts_with('#')));
  }

 private:
  std::string_view rest_, line_;
  int number_ = 0;
  bool done_ = false;
};

std::vector<std::string_view> words_of(std::string_view line, std::string_view between) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find_first_of(between));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::int32_t number(const Lines& lines, std::string_view word, std::int32_t least) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < least)
    throw ProgramTextError(lines.number(), fmt::format("'{}' is no number from {} on", word, least));
  return value;
}

Communicator communicator(const Lines& lines, const std::vector<std::string_view>& words) {
  if (words.size() < 2) throw ProgramTextError(lines.number(), "a communicator has a name");
  Communicator found{std::string(words[1]), {}, MessageRoute::Group};
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "pairs") {
      found.messages = MessageRoute::Pairs;
      continue;
    }
    if (words[i] == "copies") {
      found.messages = MessageRoute::CopyEngines;
      continue;
    }
    const std::vector<std::string_view> axis = words_of(words[i], "/");
    if (axis.size() != 3) throw ProgramTextError(lines.number(), "an axis is size/stride/step");
    found.axes.push_back({number(lines, axis[0], 1), number(lines, axis[1], 1), number(lines, axis[2], 1)});
  }
  return found;
}

// Every group that the communicators make of the ranks lies among them; and what the programs say to others, they say
// to a communicator that is there. Who asks for a group's members may rely on it.
void check_groups(const Workload& workload, const std::vector<int>& lines) {
  const std::int64_t world = workload.world_size();
  if (world == 0) return;
  for (std::size_t c = 0; c < workload.communicators.size(); ++c) {
    const Communicator& communicator = workload.communicators[c];
    std::int64_t size = 1, reach = 0;
    for (const GroupAxis& axis : communicator.axes) {
      const std::int64_t along = std::int64_t{axis.size - 1} * axis.step;
      size *= axis.size;
      if (along >= world || size > world || (along > 0 && axis.stride >= world)) {
        reach = world;
        break;
      }
      reach += along * axis.stride;
    }
    bool within = reach < world;
    for (std::int32_t r = 0; within && r < workload.world_size(); ++r) {
      if (!is_member(communicator, Rank{r})) continue;
      const std::int32_t leader = group_leader(communicator, Rank{r}).value;
      within = leader >= 0 && leader + reach < world;
    }
    if (!within)
      throw ProgramTextError(
          lines[c], fmt::format("the groups of communicator {} are not all within {} ranks", communicator.name, world));
  }
}

void check_slots(const Program& program, std::size_t communicators, int line) {
  for (const Op& op : program.ops) {
    const CommSlot slot = std::visit(
        [](const auto& o) {
          if constexpr (requires { o.comm; }) return o.comm;
          return CommSlot{};
        },
        op);
    if (slot.valid() && slot.index() >= communicators)
      throw ProgramTextError(
          line, fmt::format("the program names communicator g{}, and there are {}", slot.value, communicators));
  }
}

}  // namespace

std::string text(const Workload& workload) {
  std::string out;
  for (const Communicator& c : workload.communicators) {
    out += "communicator " + c.name;
    for (const GroupAxis& axis : c.axes) out += fmt::format(" {}/{}/{}", axis.size, axis.stride, axis.step);
    if (c.messages == MessageRoute::Pairs) out += " pairs";
    if (c.messages == MessageRoute::CopyEngines) out += " copies";
    out += '\n';
  }
  out += fmt::format("ranks {}\n", fmt::join(workload.program_of_rank, " "));
  for (const Program& program : workload.programs) out += "program\n" + text(program);
  return out;
}

Workload parse_workload(std::string_view text) {
  Workload workload;
  std::vector<int> communicator_lines;
  Lines lines(text);
  for (; !lines.at_end() && lines.now() != "program"; lines.advance()) {
    const std::vector<std::string_view> words = words_of(lines.now(), blanks);
    if (words.front() == "communicator") {
      communicator_lines.push_back(lines.number());
      workload.communicators.push_back(communicator(lines, words));
    } else if (words.front() == "ranks") {
      for (std::size_t i = 1; i < words.size(); ++i) workload.program_of_rank.push_back(number(lines, words[i], 0));
    } else {
      throw ProgramTextError(lines.number(), fmt::format("'{}' begins no line of a workload", words.front()));
    }
  }
  while (!lines.at_end()) {
    const int heading = lines.number();
    lines.advance();
    const int before = lines.number() - 1;
    const char* from = lines.now().data();
    const char* to = from;
    for (; !lines.at_end() && lines.now() != "program"; lines.advance()) to = lines.now().data() + lines.now().size();
    try {
      workload.programs.push_back(parse_program({from, static_cast<std::size_t>(to - from)}));
    } catch (const ProgramTextError& error) {
      const std::string what = error.what();  // "line 3: …"
      throw ProgramTextError(before + error.line(), what.substr(what.find(": ") + 2));
    }
    check_slots(workload.programs.back(), workload.communicators.size(), heading);
  }
  for (const std::int32_t program : workload.program_of_rank)
    if (program >= static_cast<std::int32_t>(workload.programs.size()))
      throw ProgramTextError(lines.number(), fmt::format("there is no program {}", program));
  check_groups(workload, communicator_lines);
  return workload;
}

}  // namespace tidemark::sim
