#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/cli/namespace.hpp"

// What the page's form says, as a job.

namespace tidemark::cli {

/// Names of form fields and what is in them. An empty field is not in it.
using Fields = std::map<std::string, std::string, std::less<>>;

enum class Control : std::uint8_t { Name, Number, Choice, Check };

/// A field of the form.
struct FormField {
  std::string_view name, label, hint;
  Control control = Control::Number;
  std::vector<std::string> choices =
      {};                     ///< of Choice, as scenarios write them; the first is what an empty field means
  std::string_view key = {};  ///< of a scenario; where a launch file comes with it, it is set there
};
[[nodiscard]] const std::vector<FormField>& form_fields();

/// The pasted text, and what kind of file it is by its ending.
inline constexpr std::string_view pasted_text = "file", pasted_kind = "kind";
/// A model's and a cluster's file that were pasted.
inline constexpr std::string_view pasted_model = "model_file", pasted_cluster = "cluster_file";
[[nodiscard]] const std::vector<std::string>& pasted_kinds();

/// Without empty fields. InputError where a field is not one of the form, or is too long.
[[nodiscard]] Fields checked(Fields fields);

/// Questions that differ in one field from this one, the likeliest next ones first; none where a job's file is pasted.
[[nodiscard]] std::vector<Fields> neighbours(const Fields& fields);

/// "model=llama-3.1-8b&gpus=8": the same question again, without what was pasted.
[[nodiscard]] std::string query_of(const Fields& fields);

}  // namespace tidemark::cli
