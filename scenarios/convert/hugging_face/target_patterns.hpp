#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/model/model.hpp"
#include "scenarios/convert/draft.hpp"
#include "scenarios/namespace.hpp"

// Patterns by which PEFT finds modules.

namespace tidemark::scenarios {

/// A part of what Python's re takes: characters, `.`, classes, `\d` and `\w`, groups, `|`, `*`, `+`, `?`. No pattern
/// takes it long.
class ModulePattern {
 public:
  /// Nothing where it has anything else.
  [[nodiscard]] static std::optional<ModulePattern> parse(std::string_view pattern);
  /// Whether all of a path is meant (re.fullmatch).
  [[nodiscard]] bool matches(std::string_view path) const;

  struct Node;

 private:
  explicit ModulePattern(std::shared_ptr<const Node> root) : root_(std::move(root)) {}
  std::shared_ptr<const Node> root_;
};

/// Where target_modules is a pattern, the names of the linears that it means, if it means the same of every layer. Of a
/// model with a tower, as transformers has called its text model since 4.52.
void name_targets_of_pattern(const parallel::Model& model, bool has_tower, Draft& draft);

}  // namespace tidemark::scenarios
