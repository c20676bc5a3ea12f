#include "scenarios/convert/script/inner_script.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Where "bash" stands in "mpirun … bash train.sh", or the script itself in "srun train.sh".
std::optional<std::size_t> script_in(const std::vector<ShellWord>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = last_part(words[i].text);
    if ((name == "bash" || name == "sh") && i + 1 < words.size() && words[i + 1].text.ends_with(".sh")) return i + 1;
    if (i > 0 && name.ends_with(".sh") && last_part(words[0].text) == "srun") return i;
  }
  return std::nullopt;
}

// What the launcher before it says, as if it started a program.
std::optional<std::int64_t> devices_before(const ShellCommand& command, std::size_t script, const std::string& file) {
  ShellScript alone;
  ShellCommand started = command;
  started.words.resize(script);
  if (!started.words.empty() && last_part(started.words.back().text).ends_with("sh")) started.words.pop_back();
  ShellWord program = command.words[script];
  program.text = "train.py";
  started.words.push_back(std::move(program));
  alone.commands.push_back(std::move(started));
  const std::vector<LaunchLine> lines = launch_lines(alone, file);
  return lines.empty() ? std::nullopt : lines.front().gpus;
}

}  // namespace

std::optional<InnerScript> inner_script(const ShellScript& script, const std::string& file) {
  for (const ShellCommand& command : script.commands) {
    const std::optional<std::size_t> at = script_in(command.words);
    if (!at) continue;
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    const std::string inner = last_part(command.words[*at].text);
    const std::filesystem::path above = folder.has_filename() ? folder.parent_path() / inner : folder / ".." / inner;
    const std::filesystem::path beside = is_there(folder / inner) ? folder / inner : above;
    if (!is_there(beside) || beside == std::filesystem::path(file)) continue;
    InnerScript found{beside, {}, devices_before(command, *at, file), command.words[*at].place};
    for (const auto& [name, value] : *command.environment)
      if (value.unknown.empty()) found.variables.emplace(name, value.text);
    for (std::size_t i = 0; i + 1 < *at; ++i) {
      const std::string& its = command.words[i + 1].text;
      const std::size_t sign = its.find('=');
      if (command.words[i].text == "-x" && sign != std::string::npos && command.words[i + 1].unknown.empty())
        found.variables.insert_or_assign(its.substr(0, sign), its.substr(sign + 1));
    }
    for (std::size_t i = *at + 1; i < command.words.size(); ++i)
      if (command.words[i].unknown.empty()) found.variables.emplace(std::to_string(i - *at), command.words[i].text);
    return found;
  }
  return std::nullopt;
}

}  // namespace tidemark::scenarios
