#include "scenarios/report/format_page.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/reader/scenario_keys.hpp"

namespace tidemark::scenarios {
namespace {

/// A table and what it is for.
struct Title {
  std::string_view table, what;
};
constexpr std::array titles{
    Title{"", "At the top"},
    Title{"layout", "How the job is cut over ranks"},
    Title{"train", "What a step is"},
    Title{"run", "How long the training is, and what it costs ([answers.md](answers.md#what-a-training-costs))"},
    Title{"offload", "What lies on hosts ([hosts.md](hosts.md))"},
    Title{"moe", "How experts get their tokens"},
    Title{"adapter", "LoRA ([pytorch.md](pytorch.md))"},
    Title{"quantization", "A frozen base of few bits ([pytorch.md](pytorch.md))"},
    Title{"rollout", "Generation on the devices that train ([rollout.md](rollout.md))"},
    Title{"runtime", "The framework"},
    Title{"runtime.versions", "Its releases, which select dated habits ([versions.md](versions.md))"},
};

// Within a cell of a table.
std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

std::string row(const ScenarioKey& key) {
  const std::string values = key.takes.empty() ? std::string("several kinds") : key.takes;
  const bool bare = key.values.empty();
  return fmt::format("| `{}` | {}{} | {} | {} |\n", key.name, cell(values), bare ? "" : ": " + cell(key.values),
                     key.usual.empty() ? "" : "`" + cell(key.usual) + "`", cell(meaning_of(key.path())));
}

std::string table_text(const std::vector<ScenarioKey>& keys, std::string_view table) {
  std::string text = "| key | takes | left out | meaning |\n|---|---|---|---|\n";
  for (const ScenarioKey& key : keys)
    if (key.table == table) text += row(key);
  return text;
}

std::string switches_text(const std::vector<ScenarioKey>& keys) {
  std::string text;
  for (const RuntimeKind& kind : runtimes()) {
    if (kind.id == RuntimeId::Megatron) continue;
    text += fmt::format("\n### Under {}\n\n| switch | takes | left out |\n|---|---|---|\n", kind.name);
    for (const ScenarioKey& key : keys) {
      if (!key.table.starts_with("runtime.switches")) continue;
      if (std::ranges::find(key.runtimes, kind.name) == key.runtimes.end()) continue;
      const std::string name = key.path().substr(std::string_view("runtime.switches.").size());
      const bool bare = key.values.empty();
      text += fmt::format("| `{}` | {}{} | {} |\n", name, cell(key.takes.empty() ? "several kinds" : key.takes),
                          bare ? "" : ": " + cell(key.values), key.usual.empty() ? "" : "`" + cell(key.usual) + "`");
    }
  }
  return text;
}

// Megatron's, which are its flags without their dashes.
std::string megatron_text() {
  using Kind = MegatronFlag::Kind;
  std::string own, repeats, unmodelled, bound;
  std::size_t plain = 0;
  std::vector<std::string> flags = megatron_flags();
  std::ranges::sort(flags);
  for (const std::string& flag : flags) {
    const std::optional<MegatronFlag> its = megatron_flag(flag);
    if (!its) continue;
    if (its->kind == Kind::Own) own += fmt::format("{}`{}`", own.empty() ? "" : ", ", flag);
    if (its->kind == Kind::Repeats)
      repeats += fmt::format("| `{}` | {} |\n", flag,
                             its->table == "model" ? fmt::format("the model's {}", its->key)
                                                   : fmt::format("`{}` in `[{}]`", its->key, its->table));
    if (its->kind == Kind::Unmodelled) unmodelled += fmt::format("| `{}` | {} |\n", flag, cell(its->why));
    if (its->kind == Kind::NoMatter) ++plain;
    if (its->kind == Kind::Bound) bound += fmt::format(" `{}` by a bound: {}.", flag, its->why);
  }
  return fmt::format(
      "\n### Under megatron\n\nMegatron-LM's own flags, without their dashes ([megatron.md](megatron.md)). Those that "
      "nothing else says:\n\n{}.\n\n"
      "Those that repeat a key have to agree with it:\n\n| flag | repeats |\n|---|---|\n{}\n"
      "Those that are not modelled are refused, unless they ask for nothing:\n\n| flag | what is not modelled "
      "|\n|---|---|\n{}\n"
      "Those that change neither memory nor time are taken: {} of them, each with its releases and the place where the "
      "newest of them reads it, in\n`scenarios/frameworks/megatron/megatron_flags.tsv` (`tidemark list switches` tells "
      "them, too).{}\n",
      own, repeats, unmodelled, plain, bound);
}

}  // namespace

std::string format_page(const std::filesystem::path& data_root) {
  const std::vector<ScenarioKey> keys = scenario_keys(data_root);
  std::string text =
      "# The scenario file\n\n"
      "<!-- written by TIDEMARK_WRITE_DOCS=1 convert_test --gtest_filter='FormatPage.*' -->\n\n"
      "TOML. Unknown keys are errors with a suggestion, and all problems are reported at once, with their places. What "
      "is "
      "left out is as the\n"
      "framework has it; where nothing stands under *left out*, it is required, follows from the rest, or each runtime "
      "has its own. Keys\n"
      "that a runtime has no use for are errors there. `tidemark list keys` and `tidemark list switches` say the same, "
      "`--json` too;\n"
      "`tidemark explain FILE --show scenario` shows a file with everything filled in. [convert.md](convert.md) makes "
      "such files of what you\n"
      "launch already.\n\n"
      "This page is what the reader of such files tells of itself: it is asked about every key, and a test holds the "
      "page to it.\n";
  for (const Title& title : titles)
    text += fmt::format("\n## {}{}\n\n{}", title.table.empty() ? "" : fmt::format("`[{}]`: ", title.table), title.what,
                        table_text(keys, title.table));
  for (const ScenarioKey& key : keys) {  // tables that are new
    const bool known = std::ranges::any_of(titles, [&](const Title& t) { return t.table == key.table; });
    if (!known && !key.table.starts_with("runtime.switches") &&
        text.find("`[" + key.table + "]`: ") == std::string::npos)
      text += fmt::format("\n## `[{}]`: \n\n{}", key.table, table_text(keys, key.table));
  }
  return text + "\n## `[runtime.switches]`: the framework's own words\n" + megatron_text() + switches_text(keys);
}

}  // namespace tidemark::scenarios
