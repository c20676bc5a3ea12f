#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/formats.hpp"

// Which model Megatron's flags describe.

namespace tidemark::scenarios {

/// What the flags say, given or by default, as TOML writes it; nothing where it is left to others.
class Wanted {
 public:
  Wanted(Given& flags, const ShippedModels& models, bool hybrid_program);

  /// The model that the tokenizer is of, by its name; null: it says none.
  [[nodiscard]] const ShippedModel* of_tokenizer() const { return of_tokenizer_ ? &*of_tokenizer_ : nullptr; }
  [[nodiscard]] std::optional<std::string> tokenizer() const;

  [[nodiscard]] bool hybrid() const { return hybrid_; }
  [[nodiscard]] bool says(std::string_view flag) const { return flags_.has(flag); }
  [[nodiscard]] bool on(std::string_view flag) { return flags_.has(flag) && flags_.flag(flag).value_or(false); }
  std::int64_t number(std::string_view flag, std::int64_t usual) { return flags_.integer(flag).value_or(usual); }
  std::optional<std::string> text(std::string_view flag);

 private:
  std::string pattern();
  std::optional<std::string> vocabulary();

  Given& flags_;
  std::optional<ShippedModel> of_tokenizer_;
  bool hybrid_ = false;
};

struct Candidate {
  const ShippedModel* base = nullptr;
  std::vector<ConfigOverride> overrides;
  Model model;  ///< with them
};

/// Those that the flags are with the fewest changes, whatever the one says that they may differ in.
[[nodiscard]] std::vector<Candidate> nearest_models(const ShippedModels& models, Wanted& wanted, Given& flags,
                                                    std::string_view but_for = {});
/// The flags of which any one, left out, would make it a model of a family that is known: "--normalization LayerNorm".
[[nodiscard]] std::vector<std::string> at_fault(const ShippedModels& models, Wanted& wanted, Given& flags);
/// Of models of one shape, the one that the tokenizer or the base of rotary positions is of.
void prefer_alike(std::vector<Candidate>& found, const Wanted& wanted, const Given& flags);

}  // namespace tidemark::scenarios
