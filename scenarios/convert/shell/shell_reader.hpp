#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/shell/shell_effects.hpp"
#include "scenarios/convert/shell/shell_expansion.hpp"
#include "scenarios/convert/shell/shell_syntax.hpp"
#include "scenarios/convert/shell/shell_words.hpp"

namespace tidemark::scenarios {

/// How a command ends. Programs that nothing is known of are presumed to succeed: what stands behind && is run, and
/// what that assigns is not known.
enum class ShellStatus : std::uint8_t { Success, Failure, Presumed, Unknown };

/// One shell: a subshell has a copy.
struct ShellState {
  ShellExpansion expansion;
  std::set<std::string> exported;
  ShellFunctions functions;
  bool exits_on_failure = false, exports_all = false;
  bool ended = false;
};

/// While the words of a test are read.
class ReadingTest {
 public:
  explicit ReadingTest(ShellExpansion& expansion) : expansion_(expansion) { expansion_.in_test = true; }
  ReadingTest(const ReadingTest&) = delete;
  ReadingTest& operator=(const ReadingTest&) = delete;
  ~ReadingTest() { expansion_.in_test = false; }

 private:
  ShellExpansion& expansion_;
};

/// Follows a script through its syntax tree: what each command is called with, and what variables are then.
class ShellReader {
 public:
  ShellReader(std::shared_ptr<ShellShared> shared, const std::map<std::string, std::string>& given, FailingExits exits);

  ShellScript read(std::string_view text);

 private:
  using WordList = std::vector<ShellWord>;

  // What a command is given beside its words.
  struct Given {
    std::optional<std::string> document;    // <<, as it finds it
    std::string file;                       // >
    bool adds = false;                      // >>
    std::optional<std::string> before;      // what is known to stand in that file
    std::map<std::string, ShellValue> own;  // NAME=VALUE command: of its environment
  };

  // "./job.sh" is "job.sh".
  static std::string file_name(const std::string& path) { return path.starts_with("./") ? path.substr(2) : path; }
  static std::string program_of(const std::string& word) { return word.substr(word.rfind('/') + 1); }

  // ---- lists and branches: shell_flow.cpp

  ShellStatus list(const ShellNode& its);
  ShellStatus and_or(const ShellNode& its);
  bool is_test(const ShellNode& its);
  ShellStatus pipeline(const ShellNode& its);
  ShellStatus apart(const ShellNode& its);
  static bool ends(const ShellNode& its);
  ShellStatus conditional(const ShellNode& its);
  std::map<std::string, std::vector<std::string>> candidates(const ShellNode& its, std::size_t first,
                                                             const ShellEffects& all);
  bool held_behind(const ShellNode& body, const std::string& name, std::vector<std::string>& held);
  ShellStatus chosen(const ShellNode& its);
  void presume_behind();
  std::optional<std::string> known_text(const ShellNode& its, const ShellSpan& span, bool pattern);
  void leave_out(const ShellNode& its);
  ShellStatus arithmetic_command(const ShellNode& its);
  ShellStatus test(const ShellNode& its);

  // ---- loops, and arguments that they go through: shell_loops.cpp

  ShellStatus loop(const ShellNode& its);
  ShellStatus turns(const ShellNode& its, const std::string& what);
  ShellStatus for_each(const ShellNode& its, const std::string& what);
  ShellStatus shift(const WordList& words, int line);
  void take_arguments(WordList arguments);
  void lose_arguments(std::string why);

  // ---- what is not followed: shell_flow.cpp

  ShellFields expand(const ShellNode& its, const ShellSpan& word, ShellContext context);
  ShellEffects effects(const ShellNode& its);
  static void add(ShellEffects& to, const ShellEffects& more);
  void doubt(const ShellEffects& found, const std::string& why);
  void note(const std::string& what, Place place, const ShellEffects& found);
  ShellStatus skip(const ShellNode& its, const std::string& what);

  // ---- commands: shell_commands.cpp

  ShellStatus simple(const ShellNode& its);
  ShellValue value_of(const ShellNode& its, const ShellAssignment& one);
  ShellValue value_as_written(const ShellNode& its, const ShellAssignment& one);
  void set(const ShellNode& its, const ShellAssignment& one);
  void redirect(const ShellNode& its, const ShellRedirection& one, Given& given);
  ShellStatus called(const ShellNode& its, WordList words, Given given);
  ShellStatus unknown_command(const ShellNode& its, WordList words, const Given& given);
  ShellStatus function(const ShellNode& its, WordList words, const Given& given);
  static bool is_positional(const std::string& name);

  // ---- commands of the shell itself: shell_builtins.cpp

  ShellStatus declare(const ShellNode& its, const WordList& words);
  ShellStatus declare_local(const ShellNode& its, const WordList& words);
  std::optional<ShellStatus> builtin(const ShellNode& its, const WordList& words);
  ShellStatus leave(const WordList& words, Place place);
  ShellStatus unset(const WordList& words, int line);
  std::optional<ShellEffects> assigned_by_builtin(const ShellNode& its, const WordList& words);
  bool reads(const WordList& words, const Given& given);
  [[noreturn]] static void changes_reading(const ShellNode& its);
  ShellStatus set_options(const ShellNode& its, const WordList& words);

  // ---- scripts in scripts, and programs: shell_scripts.cpp

  ShellStatus evaluate(const WordList& words);
  ShellStatus run_text(const std::string& text, Place place);
  ShellStatus source(const ShellNode& its, const WordList& words);
  static std::optional<std::string> within_own_folder(const ShellWord& word);
  [[nodiscard]] std::optional<std::string> text_beside(const std::string& name) const;
  [[nodiscard]] std::optional<std::string> text_about(const std::string& name, Place place);
  static bool is_shell(const ShellWord& word);
  static std::optional<std::size_t> starts(const WordList& words, std::size_t i);
  ShellStatus program(WordList words, const Given& given);
  void forget_files(const std::string& text);
  ShellStatus child(const std::string& text, const WordList& words, std::size_t in_front, const Given& given,
                    bool arguments);
  void set_by_slurm(std::string_view text, std::optional<Place> within = {});

  // ---- what comes of it

  ShellStatus run(const ShellNode& its);
  void record(WordList words, const Given& given);
  [[nodiscard]] ShellWord shown(const std::string& name, const ShellValue& value) const;
  [[nodiscard]] std::shared_ptr<const ShellEnvironment> environment();

  std::shared_ptr<ShellShared> shared_;
  ShellState shell_;
  FailingExits exits_ = FailingExits::Followed;
  int conditions_ = 0;                                       // within which a failure ends nothing
  int functions_ = 0;                                        // that are being run
  bool returned_ = false;                                    // from the innermost of them
  std::set<std::string> entered_;                            // functions
  std::map<std::string, std::optional<ShellValue>> locals_;  // of the innermost, and what they hide
  std::map<std::string, std::string> files_;                 // that cat wrote
  std::set<std::string> presumed_;                           // variables that say which commands come (ShellValue)
  std::map<std::string, std::string> within_;                // exported by shells within
  std::shared_ptr<const ShellEnvironment> environment_;
  ShellScript script_;
};

}  // namespace tidemark::scenarios
