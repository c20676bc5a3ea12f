#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_reader.hpp"
#include "scenarios/convert/shell/slurm_variables.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::uintmax_t most_of_a_file = std::uintmax_t{1} << 20;
bool is_readable(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) <= most_of_a_file;
}

}  // namespace

ShellStatus ShellReader::evaluate(const WordList& words) {
  std::string text;
  const std::size_t first = words.size() > 1 && words[1].text == "--" ? 2 : 1;
  for (std::size_t i = first; i < words.size(); ++i) text += (i > first ? " " : "") + words[i].text;
  const Place place = words.front().place;
  // What is not known may be a word, or end one: `eval "$(tool)"`.
  const bool known = ShellExpansion::is_known(text);
  const ShellStatus last = run_text(text, place);
  if (!known) shell_.expansion.doubt_all(fmt::format("eval in line {} may assign it", place.line));
  return last;
}

ShellStatus ShellReader::run_text(const std::string& text, Place place) {
  presume_behind();
  shared_->enter(place);
  shared_->spend_bytes(text.size(), place);
  const ShellSource& source = shared_->sources.emplace_back(ShellSource{text, shared_->file, place});
  const ShellNodePtr tree = parse_shell(source);
  const ShellStatus last = run(*tree);
  --shared_->depth;
  return last;
}

ShellStatus ShellReader::source(const ShellNode& its, const WordList& words) {
  const Place place = its.place();
  const std::string why = fmt::format("{} in line {} may assign it", words.front().text, place.line);
  if (words.size() > 1)
    if (const auto file = files_.find(file_name(words[1].text)); file != files_.end() && words.size() == 2) {
      const std::string text = file->second;
      const ShellStatus last = run_text(text, place);
      if (shell_.ended) shell_.ended = text.find("return") == std::string::npos;
      if (text.find("return") != std::string::npos) shell_.expansion.doubt_all(why);
      return last;
    }
  const ShellWord named = words.size() == 2 ? shell_.expansion.resolved_scenario(words[1]) : ShellWord{};
  if (const std::optional<std::string> name = named.unknown.empty() ? named.text : within_own_folder(named);
      words.size() == 2 && name)
    if (const std::optional<std::string> text = text_beside(*name)) {
      const ShellStatus last = run_text(*text, place);
      if (shell_.ended) shell_.ended = text->find("return") == std::string::npos;
      return last;
    }
  const std::string file = words.size() > 1 ? shell_.expansion.resolved_scenario(words[1]).text : std::string();
  if (words.size() == 2)
    if (const std::optional<std::string> text = text_about(file, place)) {
      const ShellStatus last = run_text(*text, place);
      if (shell_.ended) shell_.ended = text->find("return") == std::string::npos;
      return last;
    }
  ShellSkip& skipped = script_.skips.emplace_back(fmt::format("{} {}", words.front().text, file), place);
  // What sets up an environment of Python or of modules says nothing of a training's arguments.
  constexpr std::array<std::string_view, 5> environments{"/activate", "conda.sh", "/modules.sh", ".bashrc", "/profile"};
  if (std::ranges::any_of(environments, [&](std::string_view ending) { return file.ends_with(ending); }))
    return ShellStatus::Presumed;
  // Slurm's own variables are of the job, which nothing that is sourced changes.
  std::map<std::string, ShellValue> of_slurm;
  for (const auto& [name, value] : shell_.expansion.variables)
    if (name.starts_with("SLURM_")) of_slurm.emplace(name, value);
  skipped.assigns = true;
  shell_.expansion.presume_all(why);
  for (const auto& [name, value] : of_slurm) shell_.expansion.variables[name] = value;
  return ShellStatus::Presumed;
}

// "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/common.sh" is "../common.sh".
std::optional<std::string> ShellReader::within_own_folder(const ShellWord& word) {
  const std::string& how = word.unknown;
  const bool own = how.find("dirname") != std::string::npos && word.text.starts_with("?/") &&
                   word.text.find('?', 1) == std::string::npos &&
                   (how.find("$0") != std::string::npos || how.find("BASH_SOURCE") != std::string::npos);
  if (!own) return std::nullopt;
  std::string above;
  for (std::size_t at = how.find("/.."); at != std::string::npos; at = how.find("/..", at + 3)) above += "../";
  return above + word.text.substr(2);
}

// Of a file that is there, from where the script is, or from where it is started.
std::optional<std::string> ShellReader::text_beside(const std::string& name) const {
  const std::filesystem::path script(shared_->file);
  for (const std::filesystem::path& path : {script.parent_path() / name, std::filesystem::path(name)})
    if (is_readable(path)) return read_text(path);
  return std::nullopt;
}

// Where a repository lies elsewhere than a script says, a file of it is still there: "/home/me/repo/params/7b.sh" is
// "params/7b.sh" above the script. The longest end of two parts or more that is there counts.
std::optional<std::string> ShellReader::text_about(const std::string& name, Place place) {
  const std::filesystem::path script(shared_->file);
  std::vector<std::string> parts;
  for (const std::filesystem::path& part : std::filesystem::path(name)) parts.push_back(part.string());
  const auto unknown = std::find_if(parts.rbegin(), parts.rend(), [](const std::string& part) {
    return part.find('?') != std::string::npos || part == "..";
  });
  const std::size_t known = static_cast<std::size_t>(parts.rend() - unknown);
  if (known == 0 && !name.starts_with('/')) return std::nullopt;
  constexpr std::size_t fewest = 2;
  for (std::size_t first = std::max<std::size_t>(known, 1); first + fewest <= parts.size(); ++first) {
    std::filesystem::path end;
    for (std::size_t i = first; i < parts.size(); ++i) end /= parts[i];
    std::filesystem::path above = script.parent_path();
    while (true) {
      if (is_readable(above / end)) {
        script_.found.push_back({fmt::format("{}", (above / end).string()), place});
        return read_text(above / end);
      }
      if (above.empty() || !above.has_relative_path()) break;
      above = above.parent_path();
    }
  }
  return std::nullopt;
}

bool ShellReader::is_shell(const ShellWord& word) { return is_one_of(program_of(word.text), {"bash", "sh"}); }

/// How many words stand before what runs the file at `i`, where anything does.
std::optional<std::size_t> ShellReader::starts(const WordList& words, std::size_t i) {
  const std::string front = program_of(words.front().text);
  if (i == 0 || front == "sbatch") return 0;
  std::size_t shell = i;
  while (shell > 0 && words[shell - 1].text.starts_with('-')) --shell;
  if (shell > 0 && is_shell(words[shell - 1])) return shell - 1;
  return front == "srun" || front == "mpirun" ? std::optional(i) : std::nullopt;
}

// A program, unless it is a shell that is given another script.
ShellStatus ShellReader::program(WordList words, const Given& given) {
  const std::string front = program_of(words.front().text);
  const bool writes = front == "cat" && words.size() == 1 && given.document && !given.file.empty();
  if (writes && shell_.expansion.unsure.empty() && (!given.adds || given.before))
    files_[given.file] = given.before.value_or("") + *given.document;
  if (given.document && front == "sbatch") return child(*given.document, words, 0, given, false);
  for (std::size_t i = 0; i < words.size(); ++i) {
    // What starts a shell stays in front: srun … bash -c "…"
    if (const auto file = files_.find(file_name(words[i].text)); file != files_.end())
      if (const std::optional<std::size_t> in_front = starts(words, i))
        return child(std::string(file->second), words, *in_front, given, i + 1 < words.size());
    if (!is_shell(words[i])) continue;
    std::size_t next = i + 1;
    while (next < words.size() && words[next].text.starts_with('-')) ++next;
    if (next < words.size() && next > i + 1 && words[next - 1].text.ends_with('c'))
      return child(words[next].text, words, i, given, next + 1 < words.size());
    if (given.document && next == words.size()) return child(*given.document, words, i, given, false);
  }
  if (!is_one_of(front, {"chmod", "cat", "echo", "ls"}))
    for (const ShellWord& word : words) forget_files(word.text);
  const ShellStatus said = front == "echo" || front == "printf" ? ShellStatus::Success
                           : is_one_of(front, {"grep", "command", "which", "type", "hash", "diff", "pgrep", "!"})
                               ? ShellStatus::Unknown
                               : ShellStatus::Presumed;
  record(std::move(words), given);
  return said;
}

// Programs that are given a file may write it.
void ShellReader::forget_files(const std::string& text) {
  std::erase_if(files_, [&](const auto& file) { return text.find(file.first) != std::string::npos; });
}

// A shell of its own behind the first `in_front` words, which has what is exported.
ShellStatus ShellReader::child(const std::string& text, const WordList& words, std::size_t in_front, const Given& given,
                               bool arguments) {
  const Place place = words.front().place;
  shared_->spend_bytes(shell_.expansion.variables.size() * sizeof(ShellValue), place);
  ShellState outer = shell_;
  std::erase_if(shell_.expansion.variables, [&](const auto& its) {
    return !shell_.exported.contains(its.first) && !shell_.expansion.fixed.contains(its.first);
  });
  shell_.functions.clear(), shell_.expansion.odd.clear();
  shell_.exits_on_failure = shell_.exports_all = false;
  shell_.expansion.arguments.clear();
  shell_.expansion.arguments_doubt = arguments ? fmt::format("line {} gives them", place.line) : std::string();
  for (const auto& [name, value] : given.own) {
    shell_.exported.insert(name);
    if (!shell_.expansion.fixed.contains(name)) shell_.expansion.variables[name] = value;
  }
  if (program_of(words.front().text) == "sbatch") {  // what it is told itself goes before the script's lines
    std::string reported;
    for (std::size_t i = 1; i < words.size(); ++i)
      if (words[i].text.starts_with('-'))
        reported += fmt::format("#SBATCH {} {}\n", words[i].text, i + 1 < words.size() ? words[i + 1].text : "");
    set_by_slurm(reported + text + '\n' + reported, place);
  }
  const std::size_t first = script_.commands.size();
  const ShellStatus last = run_text(text, place);
  for (std::size_t i = first; i < script_.commands.size() && in_front > 0; ++i) {
    WordList& its = script_.commands[i].words;
    its.insert(its.begin(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(in_front));
    for (std::size_t w = 0; w < in_front; ++w) its[w] = shell_.expansion.resolved_scenario(its[w]);
  }
  for (const auto& [name, word] : *environment())
    if (word.unknown.empty() && shell_.exported.contains(name) && !outer.exported.contains(name))
      within_[name] = word.text;
  shell_ = std::move(outer);
  return last == ShellStatus::Failure ? ShellStatus::Failure : ShellStatus::Presumed;
}

void ShellReader::set_by_slurm(std::string_view text, std::optional<Place> within) {
  for (const auto& [name, value] : slurm_variables(text, shared_->file, within)) {
    if (!shell_.expansion.fixed.contains(name)) shell_.expansion.variables[name] = {{{value, {}}}};
    shell_.exported.insert(name);
  }
}

}  // namespace tidemark::scenarios
