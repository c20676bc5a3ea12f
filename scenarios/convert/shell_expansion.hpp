#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/shell_cursor.hpp"
#include "scenarios/convert/shell_words.hpp"

namespace tidemark::scenarios {

/// A variable: one text, or several where it is an array.
struct ShellValue {
  std::vector<ShellWord> words;
  bool array = false;
};

/// What a word comes to while it is read: unquoted expansions split it into several.
struct ShellFields {
  std::vector<ShellWord> words;
  bool open = false;  ///< the last word goes on
  bool quoted = false;

  void add(std::string_view text, Place place);
};

/// Begins a variable's name, and goes on with it.
[[nodiscard]] bool begins_name(char c);
[[nodiscard]] bool is_of_name(char c);

/// Quotes, variables, arrays, defaults ("${N:-8}") and arithmetic, expanded by what is known. What only running
/// something could tell stands in texts as a mark, until they are settled.
class ShellExpansion {
 public:
  std::map<std::string, ShellValue> variables;
  int depth = 0;  ///< of scripts in scripts, and of brackets

  /// Whether nothing in the text is left open.
  [[nodiscard]] static bool is_known(std::string_view text);
  /// With marks as ShellWord has what is not known.
  [[nodiscard]] ShellWord settled(ShellWord word) const;

  /// Reads a part of a word. `bare`: spaces are a part, too. Throws InputError where quotes or brackets do not close,
  /// or nest too deep.
  void part(ShellCursor& text, ShellFields& fields, bool bare);
  /// Reads a word.
  ShellFields word(ShellCursor& text, bool bare = false);

  /// One more script or bracket within.
  void enter(const ShellCursor& text, Place place);

 private:
  void quoted(ShellCursor& text, ShellFields& fields);
  void expand(ShellCursor& text, ShellFields& fields, bool quoted);
  void parameter(const ShellCursor& text, ShellFields& fields, const std::string& inside, bool quoted, Place place);
  ShellValue expanded(const ShellCursor& around, const std::string& text);
  void add_unknown(ShellFields& fields, const std::string& what, Place place);
  [[nodiscard]] const ShellValue* value_of(const std::string& name) const;

  std::vector<std::string> unknowns_;  // by number
};

}  // namespace tidemark::scenarios
