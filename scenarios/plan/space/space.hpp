#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/scenario.hpp"

// What is searched: a base scenario, and axes along which it varies. An axis is a key of the scenario format (or
// several that only make sense together) with the values it takes, so a new axis is a declaration: whatever a scenario
// can ask for can be searched.

namespace tidemark::scenarios {

/// Key of a scenario, from its top: {"layout", "tensor"}.
using KeyPath = std::vector<std::string>;
/// Of a key as it is written, such as train.micro_batch.
[[nodiscard]] KeyPath key_path(std::string_view key);

/// The value of a key of a document; nothing where it is left out.
[[nodiscard]] const TomlValue* value_at(const TomlTable& document, const KeyPath& key);
/// Gives it one, whichever it had.
void set_value(TomlTable& document, const KeyPath& key, const TomlValue& value);

/// One value of an axis: what it sets. Keys that other values of its axis set, and this one does not, are left out of
/// the scenario.
struct AxisValue {
  struct Setting {
    KeyPath key;
    TomlValue value;
  };
  std::string text;  ///< as answers show it
  std::vector<Setting> settings;
};

struct Axis {
  std::string name;
  std::vector<AxisValue> values;  ///< not empty

  [[nodiscard]] std::vector<KeyPath> keys() const;  ///< that its values set, each once
};

/// Every combination of one value per axis on top of a base scenario. Candidates are numbered in mixed radix, the last
/// axis running fastest; nothing is stored per candidate.
struct Space {
  std::string name;
  TomlTable base;
  ScenarioFolders folders;
  ScenarioFiles files;  ///< all that its candidates name
  std::vector<Axis> axes;
  bool headroom_by_default = false;  ///< nobody asked for one

  [[nodiscard]] std::int64_t size() const;
  /// By axis: which of its values the candidate has.
  [[nodiscard]] std::vector<std::size_t> values_of(std::int64_t candidate) const;
  /// The candidate as a scenario file has it.
  [[nodiscard]] TomlTable document(std::int64_t candidate) const;
};

/// Why a combination is no candidate.
struct NoCandidate {
  std::string reason;  ///< numbers left out, so that alike ones count as one
};

/// The scenario of a candidate, as the reader of scenario files makes it of `document(candidate)`, or why there is
/// none: the reader's own words, or that a combination before it is the same job.
[[nodiscard]] std::variant<Scenario, NoCandidate> candidate(const Space& space, std::int64_t index);

/// The base by itself, without what axes set; nothing where that is no job.
[[nodiscard]] std::optional<Scenario> base_scenario(const Space& space);

/// Where all runtimes are searched, stages of sharding are that only some of them have.
enum class Runtimes : std::uint8_t { One, All };
/// What a search keeps free on every device where neither its base nor an axis says: the fastest layouts are those that
/// fill devices, and one that has nothing left dies of the first thing that nobody counted. A choice, not a
/// measurement; the answer says it.
inline constexpr const char* default_headroom = "2 GiB";
void take_default_headroom(Space& space);
/// Whether the base or an axis says something of the key.
[[nodiscard]] bool says(const Space& space, const KeyPath& key);

/// Axes for a base scenario that says no more than model, cluster, devices, sequence and batch: everything that is
/// modelled and that a planner may choose. docs/planner.md lists them.
[[nodiscard]] std::vector<Axis> default_axes(const Scenario& base, Runtimes searched = Runtimes::One);

// Of them, and of those beyond them, what `advise` tries too.

/// Ways to share layers out to the stages of such pipelines, the first of them equally.
[[nodiscard]] Axis stages_axis(std::int64_t layers, const std::vector<std::int64_t>& pipelines);
/// Ranks that are worth a try for one sequence, of those greater than 1.
[[nodiscard]] std::vector<std::int64_t> context_degrees(std::int64_t sequence_length);
/// Where ranks stand, Megatron's default first.
[[nodiscard]] Axis order_axis();
/// Settings of PyTorch's allocator that are worth a try, the default first.
[[nodiscard]] Axis allocator_axis();
/// What a runtime may have in memory of its hosts, for a model of so many layers; without what has nothing there.
[[nodiscard]] std::vector<AxisValue> offload_values(RuntimeId runtime, std::int64_t layers);

/// An axis that is modelled and not in the default space, because it makes a search several times as large: whoever
/// wants it asks for it by `name`.
struct FurtherAxis {
  std::string name;
  Axis axis;
};
/// All there are, for a base. Their first value is what the default space has, unless the base says otherwise.
[[nodiscard]] std::vector<FurtherAxis> further_axes(const Space& space, Runtimes searched = Runtimes::One);

/// A space from a file: a scenario with a table [space], whose keys are axes. Without one, `default_axes`. `with` names
/// axes of `further_axes` that come before them, so that candidates of the space without these keep their numbers.
/// Throws InputError.
[[nodiscard]] Space read_space(const std::filesystem::path& path, const std::filesystem::path& data_root,
                               const std::vector<std::string>& with = {});
/// The same from a document. A key that is set beside the file (convert.hpp: set_overrides) is no axis by default, and
/// none of [space].
[[nodiscard]] Space space_of(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
                             const std::vector<std::string>& with = {});

}  // namespace tidemark::scenarios
