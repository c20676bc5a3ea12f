#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/draft.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_value.hpp"

// Tools that fine-tune with transformers' Trainer and PEFT, and say so in words of their own: LLaMA-Factory, axolotl,
// ms-swift. Each becomes TrainingArguments, with the defaults that the tool has where the Trainer has others.

namespace tidemark::scenarios {

/// The keys of such a tool, on their way to TrainingArguments. What nobody takes keeps its name.
class Rewritten {
 public:
  using Names = std::initializer_list<std::string_view>;

  /// `dashes`: what stands before a key as it is told, "--" or nothing.
  Rewritten(std::vector<TomlKey> keys, Draft& draft, std::string_view dashes = "")
      : keys_(std::move(keys)), draft_(&draft), dashes_(dashes) {}

  /// The last of that name.
  [[nodiscard]] const TomlKey* find(std::string_view name) const;
  std::optional<TomlKey> take(std::string_view name);
  /// Of a text itself, without quotes; empty: no key.
  [[nodiscard]] static std::string word(const std::optional<TomlKey>& key);
  [[nodiscard]] bool on(std::string_view name) const;
  [[nodiscard]] bool off(std::string_view name) const;
  bool take_on(std::string_view name);

  void set(std::string_view name, Content content, Place place = {});
  /// Where nothing says another.
  void usual(std::string_view name, Content content);
  void rename(std::string_view name, std::string_view as);

  void no_matter(std::span<const std::string_view> names, std::string_view why);
  void no_matter(Names names, std::string_view why) { no_matter(std::span(names.begin(), names.size()), why); }
  /// Keys of another use ("wandb_project").
  void no_matter_of(Names beginnings, std::string_view why);
  /// What is not modelled, unless it asks for nothing.
  void refuse(Names names, std::string_view what);
  void tell(RemarkKind kind, const TomlKey& key, const ProblemText& why);
  void bound(const TomlKey& key, std::string_view why, std::string_view name);
  /// InputError.
  [[noreturn]] void fail(const TomlKey& key, ProblemText message, std::string hint) const;
  [[nodiscard]] std::string written(const TomlKey& key) const;
  [[nodiscard]] std::vector<TomlKey> done() && { return std::move(keys_); }

 private:
  std::vector<TomlKey> keys_;
  Draft* draft_;
  std::string_view dashes_;
};

inline constexpr std::string_view of_data = "of data, checkpoints and logs";

/// Rows of several sequences: how many micro-batches and rows are packed is for the bound to say.
void pack(Rewritten& its, const TomlKey& key);
/// So many ranks on one row: no word for a number is none.
void part_rows(const Rewritten& its, const TomlKey& key, Draft& draft);
/// What is one of the tool's words for an attention.
void set_attention(Rewritten& its, const TomlKey& key, std::string_view kernel);

}  // namespace tidemark::scenarios
