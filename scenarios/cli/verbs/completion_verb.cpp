#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/reader/json_schema.hpp"

// What shells and man know of the program, from the same tree of options as its help.

namespace tidemark::cli {
namespace {

std::vector<const CLI::App*> questions(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<const CLI::Option*> options_of(const CLI::App& verb) {
  return verb.get_options(
      [](const CLI::Option* option) { return option->nonpositional() && !option->get_group().empty(); });
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

// "{host,cuda}" in what help says of an option's type: the values that it takes. Nothing where it takes any.
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  std::string values = type.substr(open + 1, close - open - 1);
  for (char& c : values)
    if (c == ',') c = ' ';
  return values;
}

std::string bash_text(const CLI::App& app) {
  std::string verbs, options, values;
  for (const CLI::App* verb : questions(app)) {
    verbs += (verbs.empty() ? "" : " ") + verb->get_name();
    std::vector<std::string> names;
    for (const CLI::Option* option : options_of(*verb)) {
      const std::vector<std::string> its = names_of(*option);
      names.insert(names.end(), its.begin(), its.end());
      if (const std::string words = values_of(*option); !words.empty())
        values += fmt::format("    {},{}) words=\"{}\" ;;\n", verb->get_name(), its.front(), words);
    }
    options += fmt::format("    {}) options=\"{}\" ;;\n", verb->get_name(), fmt::join(names, " "));
  }
  return fmt::format(R"bash(# Completion of tidemark in bash; zsh takes it after bashcompinit.
_tidemark() {{
  local program=${{COMP_WORDS[0]}} verb=${{COMP_WORDS[1]}} before=${{COMP_WORDS[COMP_CWORD-1]}} word=${{COMP_WORDS[COMP_CWORD]}}
  local options="" words="" kind=examples models=models
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{0} --help --version" -- "$word"))
    return
  fi
  case $verb in
{1}  esac
  case $verb,$before in
    *,--model)
      [[ $word != */* ]] || models=names
      words=$("$program" list $models 2> /dev/null | cut -d ' ' -f 1)
      ;;
    *,--cluster) words=$("$program" list clusters 2> /dev/null | cut -d ' ' -f 1) ;;
    list,list) words=$("$program" list 2> /dev/null | cut -d ' ' -f 3) ;;
{2}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  elif [[ $before != -* && $verb != list ]]; then
    [[ $verb != capacity ]] || kind=studies
    COMPREPLY=($(compgen -W "$("$program" list $kind 2> /dev/null | cut -d ' ' -f 1)" -- "$word") $(compgen -f -- "$word"))
  fi
}}
complete -o default -F _tidemark tidemark
)bash",
                     verbs, options, values);
}

// Between single quotes in zsh and fish.
std::string in_single_quotes(const std::string& text, bool zsh) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += zsh ? "'\\''" : "\\'";
    else if (zsh && (c == '[' || c == ']' || c == ':' || c == '\\'))
      out += std::string("\\") + c;
    else if (!zsh && c == '\\')
      out += "\\\\";
    else
      out += c;
  }
  return out;
}

// What a word may be that follows an option, by its name: a command of this program that lists names.
std::string_view lists_for(const std::string& option) {
  return option == "--model" ? "models" : option == "--cluster" ? "clusters" : "";
}

std::string zsh_text(const CLI::App& app) {
  std::string verbs, cases;
  for (const CLI::App* verb : questions(app)) {
    verbs += fmt::format("    '{}:{}'\n", verb->get_name(), in_single_quotes(verb->get_description(), true));
    cases += fmt::format("    {}) _arguments", verb->get_name());
    for (const CLI::Option* option : options_of(*verb)) {
      const std::string what = in_single_quotes(option->get_description(), true), words = values_of(*option);
      for (const std::string& name : names_of(*option)) {
        std::string action;
        if (option->get_type_size() != 0)
          action = !words.empty()                      ? fmt::format(":value:({})", words)
                   : !lists_for(name).empty()          ? fmt::format(":name:_tidemark_names {}", lists_for(name))
                   : option->get_type_name() == "FILE" ? std::string(":file:_files")
                                                       : std::string(":value: ");
        cases += fmt::format(" \\\n      '{}[{}]{}'", name, what, action);
      }
    }
    cases += fmt::format(" \\\n      '*:file:_tidemark_files {}' ;;\n",
                         verb->get_name() == "capacity" ? "studies" : "examples");
  }
  return fmt::format(R"zsh(#compdef tidemark
# Completion of tidemark in zsh: a file _tidemark in a folder of $fpath.
_tidemark_names() {{
  local -a names
  names=(${{(f)"$(tidemark list $1 2> /dev/null | cut -d ' ' -f 1)"}})
  compadd -a names
}}
_tidemark_files() {{
  _tidemark_names $1
  _files
}}
_tidemark() {{
  local -a verbs
  verbs=(
{0}  )
  if ((CURRENT == 2)); then
    _describe question verbs
    return
  fi
  local verb=$words[2]
  shift words
  ((CURRENT--))
  case $verb in
{1}  esac
}}
_tidemark "$@"
)zsh",
                     verbs, cases);
}

std::string fish_text(const CLI::App& app) {
  std::string out = "# Completion of tidemark in fish: ~/.config/fish/completions/tidemark.fish\n";
  for (const CLI::App* verb : questions(app)) {
    const std::string& name = verb->get_name();
    out += fmt::format("complete -c tidemark -n __fish_use_subcommand -f -a {} -d '{}'\n", name,
                       in_single_quotes(verb->get_description(), false));
    out += fmt::format(
        "complete -c tidemark -n '__fish_seen_subcommand_from {}' -a '(tidemark list {} 2>/dev/null | cut -d \" \" -f "
        "1)'\n",
        name, name == "capacity" ? "studies" : "examples");
    for (const CLI::Option* option : options_of(*verb)) {
      out += fmt::format("complete -c tidemark -n '__fish_seen_subcommand_from {}'", name);
      for (const std::string& its : option->get_lnames()) out += " -l " + its;
      for (const std::string& its : option->get_snames()) out += " -s " + its;
      out += fmt::format(" -d '{}'", in_single_quotes(option->get_description(), false));
      if (option->get_type_size() != 0) {
        out += " -r";
        const std::string lists(option->get_lnames().empty() ? "" : lists_for("--" + option->get_lnames().front()));
        if (const std::string words = values_of(*option); !words.empty())
          out += fmt::format(" -f -a '{}'", words);
        else if (!lists.empty())
          out += fmt::format(" -f -a '(tidemark list {} 2>/dev/null | cut -d \" \" -f 1)'", lists);
      }
      out += '\n';
    }
  }
  return out;
}

// As man takes it: dashes that stay dashes, and no line that is a command by chance.
std::string roff(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((i == 0 || text[i - 1] == '\n') && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string man_text(const CLI::App& app) {
  std::string out = fmt::format(
      ".TH TIDEMARK 1 \"\" \"tidemark {}\" \"User Commands\"\n.SH NAME\ntidemark \\- simulates the memory of "
      "distributed "
      "training\n.SH SYNOPSIS\n.B tidemark\n.I COMMAND\n[OPTIONS] ...\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      TIDEMARK_VERSION, roff(app.get_description()));
  for (const CLI::App* verb : questions(app)) {
    std::string called = "tidemark " + verb->get_name() + " [OPTIONS]";
    const auto positionals = verb->get_options([](const CLI::Option* option) { return option->get_positional(); });
    for (const CLI::Option* option : positionals) called += " " + option->get_name(true);
    out += fmt::format(".SS {}\n{}\n", roff(called), roff(verb->get_description()));
    for (const CLI::Option* option : positionals)
      out += fmt::format(".TP\n.I {}\n{}\n", roff(option->get_name(true)), roff(option->get_description()));
    for (const CLI::Option* option : options_of(*verb)) {
      const std::string type = option->get_type_size() == 0 ? "" : " " + option->get_type_name();
      out += fmt::format(".TP\n.B {}\n{}\n", roff(fmt::format("{}{}", fmt::join(names_of(*option), ", "), type)),
                         roff(option->get_description()));
    }
    if (!verb->get_footer().empty()) out += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(verb->get_footer()));
  }
  return out + R"roff(.SH EXIT STATUS
0: yes. 1: the answer is no. 2: the input, or how it was asked, is wrong. 3: the machine failed. 130: interrupted.
.SH ENVIRONMENT
.TP
.B TIDEMARK_DATA_ROOT
the folder that has models, clusters and examples
.TP
.B NO_COLOR
no colours on a terminal
.TP
.B COLUMNS
how wide text may be
)roff";
}

}  // namespace

Verb completion_verb(CLI::App& app) {
  const auto what = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("completion", "print shell completions, the manual page, or a JSON Schema of scenario files");
  verb->add_option("WHAT", *what, "bash, zsh, fish, man or schema")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man", "schema"}));
  add_examples(*verb, {{"completion bash > tidemark.bash", "source it in .bashrc (packages install it)"},
                       {"completion zsh > _tidemark", "for a folder in $fpath"},
                       {"completion fish > tidemark.fish", "for ~/.config/fish/completions"},
                       {"completion man > tidemark.1", "read it with man -l tidemark.1"},
                       {"completion schema > scenario.schema.json",
                        "for taplo or an editor: add #:schema scenario.schema.json"}});
  return {verb, [what, &app] {
            answer(*what == "bash"     ? bash_text(app)
                   : *what == "zsh"    ? zsh_text(app)
                   : *what == "fish"   ? fish_text(app)
                   : *what == "schema" ? scenario_json_schema(data_root())
                                       : man_text(app),
                   "", {});
            return yes;
          }};
}

}  // namespace tidemark::cli
