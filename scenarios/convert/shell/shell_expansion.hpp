#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/shell/shell_cursor.hpp"
#include "scenarios/convert/shell/shell_syntax.hpp"
#include "scenarios/convert/shell/shell_words.hpp"

namespace tidemark::scenarios {

/// A variable: one text, or several where it is an array.
struct ShellValue {
  std::vector<ShellWord> words;
  bool array = false;
  std::string doubt = {};  ///< why it is not known: "a loop (for) in line 3 may assign it"
  /// Variables that it was made of and that a file may have assigned since which is not there.
  std::set<std::string> presumed = {};
};

/// What a word comes to while it is read: unquoted expansions split it into several.
struct ShellFields {
  std::vector<ShellWord> words;
  bool open = false;  ///< the last word goes on
  bool quoted = false;
  std::set<std::size_t> patterns;  ///< words that stand for the files that they match

  void add(std::string_view text, Place place);
  /// The same, of what stands between no quotes.
  void add_bare(std::string_view text, Place place);

 private:
  std::size_t opened_ = 0;  // the word of an open bracket, counted from 1
};

/// Where a word stands: among arguments it may become several, or names of files; as a value it stays one text.
enum class ShellContext : std::uint8_t { Arguments, Value };

/// What all shells within one script share.
struct ShellShared {
  std::string file;
  std::deque<ShellSource> sources = {};  ///< that stay where they are
  std::vector<std::string> unknowns = {};
  std::set<std::string> left_out = {};  ///< variables that branches assign which are not taken
  std::set<std::string> unset = {};     ///< variables that tests asked about and nothing assigned
  std::set<std::string> presumed = {};  ///< that the command which is being read was made of (ShellValue)
  /// Of variables that an if may assign or not: all that they may hold.
  std::map<std::string, std::vector<std::string>> candidates = {};
  std::int64_t steps = 0, bytes = 0;
  int depth = 0;  ///< of scripts in scripts, and of brackets

  /// Counts what is done against what is let be done: scripts that say themselves twice over have no end. Throws
  /// InputError.
  void spend_step(Place place);
  void spend_bytes(std::size_t count, Place place);
  void enter(Place place);
};

/// Quotes, variables, arrays, defaults ("${N:-8}") and arithmetic, expanded by what is known. What only running
/// something could tell stands in texts as a mark, until they are settled.
class ShellExpansion {
 public:
  explicit ShellExpansion(std::shared_ptr<ShellShared> shared) : shared_(std::move(shared)) {}

  std::map<std::string, ShellValue> variables;
  std::set<std::string> fixed;  ///< said from outside: assignments change nothing
  bool in_test = false;  ///< a variable that nothing assigns is empty, as bash has it, and goes to `shared().unset`
  std::set<std::string> odd;         ///< what is assigned to them is not what they hold: `declare -i`
  std::string all_doubt;             ///< why a variable that is assigned nowhere may hold something
  std::string arguments_doubt;       ///< why $1 and $@ are not known
  std::vector<ShellWord> arguments;  ///< $@, within a function
  std::string unsure;                ///< why assignments may not come to pass
  std::string opaque;                ///< why nothing that is assigned is known any more

  /// Whether nothing in the text is left open.
  [[nodiscard]] static bool is_known(std::string_view text);
  /// With marks as ShellWord has what is not known.
  [[nodiscard]] ShellWord resolved_scenario(ShellWord word) const;
  [[nodiscard]] ShellShared& shared() const { return *shared_; }

  /// NAME=VALUE, or NAME+=VALUE where it `adds`.
  void assign(const std::string& name, ShellValue value, bool adds = false);
  /// Something may have assigned it, or all of them.
  void doubt(const std::string& name, const std::string& why);
  void doubt_all(const std::string& why);
  /// A file that is not there may have assigned any of them: they stand as they are, and are presumed to.
  void presume_all(const std::string& why);
  /// From here on, what is assigned is not known either.
  void lose_track(const std::string& why);

  /// Expands a word. Throws InputError where quotes or brackets do not close, or nest too deep.
  ShellFields word(const ShellSource& source, const ShellSpan& span, ShellContext context);
  /// The lines of a here-document.
  std::string document(const ShellSource& source, const ShellSpan& span);

 private:
  void part(ShellCursor& text, ShellFields& fields, ShellContext context);
  void quoted(ShellCursor& text, ShellFields& fields);
  // What an expansion stands between; a value is not cut at spaces either.
  enum class Quotes : std::uint8_t { None, Value, Double };
  void value_part(ShellCursor& text, ShellFields& fields);
  void in_one(ShellCursor& text, ShellFields& fields, Quotes quotes);
  void dollar(ShellCursor& text, ShellFields& fields, Quotes quotes);
  void parameter(ShellFields& fields, const std::string& inside, Quotes quotes, Place place);
  void otherwise(ShellFields& fields, const std::string& text, Quotes quotes, Place place);
  void count(ShellFields& fields, const ShellValue* value, const std::string& inside, bool all, Place place);
  std::optional<std::int64_t> calculated(std::string_view command);
  void sum(ShellCursor& text, ShellFields& fields, Place place);
  ShellValue expanded(const std::string& text, Place place);
  void add_value(ShellFields& fields, const ShellValue& value, bool quoted, bool each, Place place);
  /// "2" of a variable that holds nothing but $2, which nobody gives the script; else empty.
  [[nodiscard]] std::string argument_held_by(const ShellValue& value) const;
  void add_unknown(ShellFields& fields, const std::string& what, Place place);
  [[nodiscard]] const ShellValue* value_of(const std::string& name) const;
  [[nodiscard]] std::string doubt_of(const std::string& name) const;

  std::shared_ptr<ShellShared> shared_;
};

/// Variables that an arithmetic expression may assign ("i++", "TP *= 2"); all names in it where it assigns any.
[[nodiscard]] std::set<std::string> assigned_by_arithmetic(std::string_view expression);

}  // namespace tidemark::scenarios
