#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/shell/shell_cursor.hpp"

// The grammar of a shell script: which commands stand within which, before anything is expanded.

namespace tidemark::scenarios {

/// NAME=VALUE, NAME+=VALUE, NAME=(…), NAME[…]=VALUE.
struct ShellAssignment {
  std::string name;
  bool adds = false, element = false, array = false;
  ShellSpan value;                  ///< of one text
  std::vector<ShellSpan> elements;  ///< of an array
};

struct ShellRedirection {
  std::string sign;  ///< ">", ">>", "<", "<<", "<<<", "&>", …
  ShellSpan target;
  ShellSpan document;  ///< of <<: its lines
  bool quoted = false, without_tabs = false;
};

struct ShellNode;
using ShellNodePtr = std::shared_ptr<const ShellNode>;

struct ShellNode {
  enum class Kind : std::uint8_t {
    Simple,      ///< `assignments`, `words`; `export` and its like: `words` without assignments
    List,        ///< `parts`; '&' in `signs`: in the background
    AndOr,       ///< `parts`; `signs`: '&' for &&, '|' for ||
    Pipeline,    ///< `parts`; `inverted`: by !
    Group,       ///< { }: `parts`
    Subshell,    ///< ( ): `parts`
    If,          ///< `parts`: condition, body, condition, body, …, and the one of else
    Loop,        ///< `name` is for, while, until or select; `variable`; `words`; `parts`
    Case,        ///< `words`: the word and all patterns; `parts`: bodies; `signs`: 'p' for a pattern, then what ends
                 ///< its body: ';', '&' for ;& and '+' for ;;&
    Function,    ///< `name`; `parts`: its body
    Arithmetic,  ///< (( )): `words`: what stands within
    Test,        ///< [[ ]]: `words`; `signs`: its character where one is an operator, else a space
    Coprocess,   ///< `parts`
  };
  Kind kind = Kind::Simple;
  const ShellSource* source = nullptr;
  ShellSpan span;
  std::vector<ShellAssignment> assignments;
  std::vector<ShellSpan> words;
  std::vector<std::shared_ptr<ShellRedirection>> redirections;
  std::vector<ShellNodePtr> parts;
  std::string signs, name, variable;
  bool inverted = false;

  [[nodiscard]] Place place() const;
  [[nodiscard]] std::string_view text(const ShellSpan& part) const;
};

/// `export`, `declare` and their like, whose arguments may be assignments.
[[nodiscard]] bool is_declaration(std::string_view word);
[[nodiscard]] bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words);
/// Whether it may be a variable's name.
[[nodiscard]] bool is_name(std::string_view text);
/// Begins a variable's name, and goes on with it.
[[nodiscard]] bool begins_name(char c);
[[nodiscard]] bool is_of_name(char c);

/// The source lives longer than the node. Throws InputError where a shell would find its syntax wrong.
[[nodiscard]] ShellNodePtr parse_shell(const ShellSource& source);

}  // namespace tidemark::scenarios
