#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/formats/input_error.hpp"

// What is shipped and questions take by its name: models, clusters, examples and studies.

namespace tidemark::cli {

/// One kind of it: its folder below the data root, what its files end in, and what options call one. `tidemark list`
/// takes the folder's name.
struct Shipped {
  const char* folder;
  const char* ending;
  const char* what;
};
inline constexpr Shipped models_shipped{"models", ".json", "model"};
inline constexpr Shipped clusters_shipped{"clusters", ".toml", "cluster"};
inline constexpr Shipped examples_shipped{"examples", ".toml", "scenario"};
inline constexpr Shipped studies_shipped{"studies", ".toml", "study"};

/// All names, in their order; those in a folder of the folder ("seeds/llama-2-7b-bf16") last.
[[nodiscard]] std::vector<std::string> shipped_names(const Shipped& kind);

/// The file that a name stands for; any other text, and the path of a file that there is, as it is.
[[nodiscard]] std::string shipped_file(const std::string& text, const Shipped& kind);

/// What a text that is no such name may have meant, and the command that tells all names.
[[nodiscard]] std::string hint_of_names(const std::string& text, const Shipped& kind);

/// What is wrong with a scenario or study that is asked about and is neither a file nor a name; nothing where it is
/// one.
[[nodiscard]] std::optional<Problem> unknown_name_problem(const std::string& text, const Shipped& kind);

/// A model or cluster, as scenarios name theirs: a path from here, or one below the data root. What is neither goes to
/// `problems`, as of `option`.
[[nodiscard]] std::string named_in_scenario(const std::string& option, const std::string& text, const Shipped& kind,
                                            std::vector<Problem>& problems);

/// The name of an example again, where a file is one that is shipped; any other file as it is.
[[nodiscard]] std::string as_typed(const std::string& file);

}  // namespace tidemark::cli
