#include "scenarios/convert/shell/shell_words.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_reader.hpp"

namespace tidemark::scenarios {

ShellReader::ShellReader(std::shared_ptr<ShellShared> shared, const std::map<std::string, std::string>& given,
                         FailingExits exits)
    : shared_(std::move(shared)), shell_{ShellExpansion(shared_), {}, {}}, exits_(exits) {
  for (const auto& [name, value] : given) {
    shell_.expansion.variables[name] = {{{value, {}}}};
    shell_.expansion.fixed.insert(name);
  }
  // $1, $2 … as far as they go without a gap are all that the script is given.
  for (std::size_t i = 1; given.contains(std::to_string(i)); ++i)
    shell_.expansion.arguments.push_back({given.at(std::to_string(i)), {}});
}

ShellScript ShellReader::read(std::string_view text) {
  set_by_slurm(text);
  const ShellSource& source = shared_->sources.emplace_back(ShellSource{std::string(text), shared_->file});
  (void)run(*parse_shell(source));
  for (const auto& [name, word] : *environment())
    if (word.unknown.empty()) script_.exported[name] = word.text;
  script_.exported.insert(within_.begin(), within_.end());
  script_.taken_for_unset = shared_->unset;
  script_.candidates = shared_->candidates;
  return std::move(script_);
}

ShellStatus ShellReader::run(const ShellNode& its) {
  if (shell_.ended) return ShellStatus::Success;
  if (Given ignored; its.kind != ShellNode::Kind::Simple && its.kind != ShellNode::Kind::Function)
    for (const auto& redirection : its.redirections) redirect(its, *redirection, ignored);
  switch (its.kind) {
    case ShellNode::Kind::Simple:
      return simple(its);
    case ShellNode::Kind::List:
      return list(its);
    case ShellNode::Kind::AndOr:
      return and_or(its);
    case ShellNode::Kind::Pipeline:
      return pipeline(its);
    case ShellNode::Kind::Group:
      return run(*its.parts.front());
    case ShellNode::Kind::Subshell:
      return apart(*its.parts.front());
    case ShellNode::Kind::If:
      return conditional(its);
    case ShellNode::Kind::Loop:
      return loop(its);
    case ShellNode::Kind::Case:
      return chosen(its);
    case ShellNode::Kind::Coprocess:
      return skip(its, "a coprocess");
    case ShellNode::Kind::Function:
      shell_.functions[its.name] = {its.parts.front()};
      if (!shell_.expansion.unsure.empty()) shell_.functions[its.name].push_back(its.parts.front());
      return ShellStatus::Success;
    case ShellNode::Kind::Arithmetic:
      return arithmetic_command(its);
    case ShellNode::Kind::Test:
      return test(its);
  }
  return ShellStatus::Unknown;
}

void ShellReader::record(WordList words, const Given& given) {
  for (ShellWord& word : words) word = shell_.expansion.resolved_scenario(std::move(word));
  std::shared_ptr<const ShellEnvironment> its = environment();
  if (!given.own.empty() || program_of(words.front().text).starts_with("mpi")) {
    ShellEnvironment more = *its;
    for (const auto& [name, value] : given.own) more[name] = shown(name, value);
    for (std::size_t i = 0; i + 1 < words.size(); ++i)  // mpirun -x NAME=VALUE
      if (const std::string& text = words[i + 1].text; words[i].text == "-x" && text.find('=') != std::string::npos)
        more[text.substr(0, text.find('='))] = {text.substr(text.find('=') + 1), words[i + 1].place,
                                                words[i + 1].unknown};
    its = std::make_shared<const ShellEnvironment>(std::move(more));
  }
  std::set<std::string> presumed = presumed_;
  presumed.insert(shared_->presumed.begin(), shared_->presumed.end());
  script_.commands.push_back({std::move(words), std::move(its), std::move(presumed)});
}

ShellWord ShellReader::shown(const std::string& name, const ShellValue& value) const {
  if (!value.doubt.empty()) return {"?", {}, fmt::format("${} ({})", name, value.doubt)};
  return value.words.empty() ? ShellWord{} : shell_.expansion.resolved_scenario(value.words.front());
}

// The same one where nothing has changed since.
std::shared_ptr<const ShellEnvironment> ShellReader::environment() {
  ShellEnvironment made;
  for (const std::string& name : shell_.exported)
    if (const auto found = shell_.expansion.variables.find(name); found != shell_.expansion.variables.end()) {
      made[name] = shown(name, found->second);
      shared_->spend_bytes(made[name].text.size() + sizeof(ShellWord), {});
    }
  if (environment_ && std::ranges::equal(*environment_, made, [](const auto& a, const auto& b) {
        return a.first == b.first && a.second.text == b.second.text && a.second.unknown == b.second.unknown;
      }))
    return environment_;
  environment_ = std::make_shared<const ShellEnvironment>(std::move(made));
  return environment_;
}

ShellScript read_shell(std::string_view text, const std::string& file, const std::map<std::string, std::string>& given,
                       FailingExits exits) {
  return ShellReader(std::make_shared<ShellShared>(ShellShared{.file = file}), given, exits).read(text);
}

}  // namespace tidemark::scenarios
