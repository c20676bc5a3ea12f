#include "scenarios/cli/terminal/terminal.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include "scenarios/formats/format.hpp"

namespace tidemark::cli {
namespace {

constexpr std::string_view bold = "1", red = "1;31", green = "1;32", cyan = "36";

std::string in(std::string_view colour, std::string_view text) {
  return "\033[" + std::string(colour) + 'm' + std::string(text) + "\033[0m";
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// mpirun gives ranks a terminal, wherever what they say goes then. Looked at before the program begins: a process that
// sets MPI up by itself gets these variables from its library.
const bool started_by_mpi = std::ranges::any_of(std::array{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"},
                                                [](const char* name) { return std::getenv(name) != nullptr; });

std::size_t columns_of(int descriptor, bool is_terminal) {
  const std::string requested = variable("COLUMNS");
  std::size_t columns = 0;
  const auto [end, error] = std::from_chars(requested.data(), requested.data() + requested.size(), columns);
  if (error == std::errc{} && end == requested.data() + requested.size() && columns > 0) return columns;
  winsize size{};
  return is_terminal && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// The first word where it answers: "yes", "no".
std::string answered(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(",: "), line.size());
  const std::string word = line.substr(0, end);
  if (word != "yes" && word != "no") return line;
  return in(word == "yes" ? green : red, word) + line.substr(end);
}

template <class Styled>
std::string by_line(const std::string& text, Styled&& styled) {
  std::string out, before;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    out += styled(line, start == 0, before) + (end < text.size() ? "\n" : "");
    before = line;
    start = end + 1;
  }
  return out;
}

}  // namespace

Terminal terminal(int descriptor) {
  const bool is_terminal = isatty(descriptor) != 0 && !started_by_mpi;
  return {is_terminal, is_terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb",
          columns_of(descriptor, is_terminal)};
}

std::string answer_on(const Terminal& terminal, const std::string& text) {
  if (!terminal.is_one) return text;
  const std::string fitting = folded(text, terminal.columns);
  if (!terminal.colours) return fitting;
  return by_line(fitting, [](const std::string& line, bool first, const std::string& before) {
    if (first) return answered(line);
    const bool heading = before.empty() && !line.empty() && line.front() != ' ';
    return heading ? in(bold, line) : line;
  });
}

std::string complaint_on(const Terminal& terminal, const std::string& text) {
  if (!terminal.is_one) return text;
  const std::string fitting = folded(text, terminal.columns);
  if (!terminal.colours) return fitting;
  return by_line(fitting, [](std::string line, bool, const std::string&) {
    for (const auto& [word, colour] : {std::pair("error: ", red), std::pair("  hint: ", cyan)})
      if (const std::size_t at = line.find(word); at != std::string::npos)
        return line.replace(at, std::string_view(word).size(), in(colour, word));
    return line;
  });
}

}  // namespace tidemark::cli
