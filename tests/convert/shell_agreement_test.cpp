#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/convert/shell/shell_words.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "tests/convert/recipes.hpp"

// The reader of shell scripts against bash: never another argument.

namespace tidemark::tests::shell_agreement_test {
namespace {

struct Snippet {
  std::string name, text;
  bool same = false;  ///< ours has to come to what bash does; else it may be refused
};

std::vector<Snippet> snippets() {
  const std::string all = read_text(convert_folder() / "shell_snippets.txt");
  std::vector<Snippet> found;
  for (std::size_t at = all.find("\n== "); at != std::string::npos;) {
    const std::size_t begin = at + 4, line = all.find('\n', begin), next = all.find("\n\n== ", begin);
    const std::string head = all.substr(begin, line - begin);
    const std::size_t sign = head.find(": ");
    found.push_back({head.substr(sign + 2), all.substr(line + 1, next == std::string::npos ? next : next - line),
                     head.substr(0, sign) == "same"});
    at = next == std::string::npos ? next : next + 1;
  }
  return found;
}

// Each start's arguments, a line each, with | between them.
using Starts = std::vector<std::string>;

std::string shown(const Starts& starts) { return fmt::format("{}", fmt::join(starts, "\n")); }

// By bash, which runs all of them, each in a shell and a folder of its own.
std::vector<Starts> by_bash(const std::vector<Snippet>& all, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "bin");
  std::ofstream(folder / "bin" / "torchrun") << "#!/bin/sh\n{ printf '%s|' \"$@\"; printf '\\036'; } >> \"$STARTS\"\n";
  std::filesystem::permissions(folder / "bin" / "torchrun", std::filesystem::perms::owner_all);
  std::ofstream driver(folder / "driver.sh");
  driver << "cd " << folder << " && exec </dev/null >/dev/null 2>&1\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::ofstream(folder / fmt::format("{}.sh", i)) << all[i].text;
    driver << fmt::format("mkdir {0}; (cd {0}; export STARTS=$PWD/../{0}.out; . ../{0}.sh)\n", i);
  }
  driver.close();
  const std::string run = fmt::format("env -i PATH='{}/bin:/usr/bin:/bin' HOME=/nowhere bash '{}/driver.sh'",
                                      folder.string(), folder.string());
  EXPECT_EQ(std::system(run.c_str()), 0);
  std::vector<Starts> starts(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::filesystem::path file = folder / fmt::format("{}.out", i);
    if (!std::filesystem::exists(file)) continue;
    const std::string text = read_text(file);
    for (std::size_t at = 0, end = text.find('\036'); end != std::string::npos;
         at = end + 1, end = text.find('\036', at))
      starts[i].push_back(text.substr(at, end - at));
  }
  return starts;
}

struct Ours {
  Starts starts;
  std::string refused;  ///< why
};

Ours by_reader(const Snippet& snippet) {
  Ours ours;
  try {
    const ShellScript script = read_shell(snippet.text, "snippet.sh");
    for (const ShellCommand& command : script.commands) {
      if (command.words.front().text != "torchrun") continue;
      // A file that is not there may assign them again, which the answer says: the job is not judged.
      if (!command.presumed.empty()) ours.refused = "$" + *command.presumed.begin();
      std::string words;
      for (std::size_t i = 1; i < command.words.size(); ++i) {
        if (!command.words[i].unknown.empty()) ours.refused = command.words[i].unknown;
        words += command.words[i].text + '|';
      }
      ours.starts.push_back(command.words.size() == 1 ? "|" : words);  // as printf has it
    }
    for (const ShellSkip& skip : script.skips)
      if (skip.trains) ours.refused = skip.what;
  } catch (const InputError& error) {
    ours.refused = error.what();
  }
  return ours;
}

TEST(ShellAgreement, TheReaderComesToTheArgumentsThatBashComesToOrRefuses) {
  const std::vector<Snippet> all = snippets();
  ASSERT_GE(all.size(), 150U);
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("shell_agreement.{}", ::getpid());
  const std::vector<Starts> bash = by_bash(all, folder);
  std::size_t same = 0;
  std::set<std::string> names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(names.insert(all[i].name).second) << all[i].name << " is there twice";
    const Ours ours = by_reader(all[i]);
    const bool refused = !ours.refused.empty();
    if (all[i].same || !refused) {
      EXPECT_EQ(shown(ours.starts), shown(bash[i])) << all[i].name << "\n" << all[i].text;
    }
    EXPECT_FALSE(all[i].same && refused) << all[i].name << ": " << ours.refused << "\n" << all[i].text;
    same += refused ? 0U : 1U;
  }
  EXPECT_GE(same, 100U) << "not all is refused";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tidemark::tests::shell_agreement_test
