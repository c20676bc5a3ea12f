#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_value.hpp"

// A scenario in the making, and what became of everything that an input says.

namespace tidemark::scenarios {

enum class RemarkKind : std::uint8_t {
  NoMatter,      ///< changes neither memory nor time as they are simulated
  Beside,        ///< is said beside the file: an argument of the script, or of what launches it
  Assumed,       ///< the input does not say it, and something had to be taken
  NotExpressed,  ///< the other side has no word for it, or it says which job this is and cannot be read
  Bounded,       ///< is not simulated, and takes no more than a bound: that goes to the answer's upper ends
  NotJudged,     ///< a name in no table, or one that is not modelled: the rest is answered, without yes or no
};

/// What became of a part of the input that is not a key of the scenario.
struct Remark {
  RemarkKind kind{};
  std::string file;
  Place place;
  std::string what;  ///< as the input writes it
  std::string why;
  bool is_slip = false;                      ///< NotExpressed: a name that is nearly a known one
  ProblemKind problem = ProblemKind::Wrong;  ///< NotExpressed: what is the matter
  std::string bound = {};  ///< Bounded: what the bound is called (scenarios/scenario/memory_bounds.hpp)
  bool is_length = false;  ///< NotJudged: rows are as long as the data's, which nobody says
  /// Whether who asks may say that it has no effect.
  [[nodiscard]] bool may_be_ignored() const {
    return kind == RemarkKind::NotJudged || kind == RemarkKind::Bounded || is_slip;
  }
  /// NotExpressed: nothing is wrong with it, and it is not modelled, so that there are no figures without it.
  [[nodiscard]] bool is_not_modelled() const;
  bool operator==(const Remark& other) const { return kind == other.kind && what == other.what && why == other.why; }
};

/// The bare name of what an input writes, as --ignore takes it: "use-mpi" of "--use_mpi = true".
[[nodiscard]] std::string bare_name(std::string_view what);

/// "--lr", "1e-4"; and variables of the environment.
struct KeptArguments {
  std::vector<std::vector<std::string>> flags;
  std::map<std::string, std::string> environment;
  bool describes_model = false;  ///< by its own flags, so that no config.json has a say in them
};

using Content = decltype(TomlValue::value);

/// What a training learns from: rows; pairs of answers (DPO and its like); rows that a frozen model judges, too (KTO);
/// pairs of which a reward model ranks one above the other.
enum class LearnsFrom : std::uint8_t { Rows, Pairs, JudgedRows, RankedPairs };

class Draft {
 public:
  TomlTable document;
  std::vector<Remark> remarks;
  std::string file;                          ///< that is being read
  std::filesystem::path folder;              ///< where files that it names are
  std::optional<std::int64_t> accumulation;  ///< micro-batches of a step, where that is what an input says
  std::set<std::string> automatic;           ///< keys of DeepSpeed's that are left to transformers
  bool trainer = false;                      ///< transformers' Trainer runs it
  /// Flags and variables that change neither memory nor time, as a script writes them: another one keeps them.
  KeptArguments kept;
  bool trl = false;         ///< and it is one of TRL's scripts
  bool names_lora = false;  ///< or one whose name says that it trains LoRA
  /// Who starts a process on each device of a node where nobody says on how many ("axolotl train").
  std::string starts_all;
  std::int64_t starts_nodes = 1;  ///< and on how many nodes
  std::string nodes_from;         ///< a variable of the environment that says it, with 1 in its place
  std::int64_t each_node = 0;     ///< devices of each of several nodes that the launcher takes; 0: nothing says it
  /// ms-swift's: as many micro-batches as give a step that many sequences; 0: not so.
  std::int64_t at_least_sequences = 0;
  /// LitGPT's: sequences of a step, of which each device takes what whole micro-batches hold; 0: not so.
  std::int64_t sequences_shared = 0;
  Place shares_sequences;     ///< where it is said
  bool hybrid = false;        ///< Megatron-LM's program for layers of Mamba, attention and MLPs
  bool alone = false;         ///< TrainingArguments in a file, and nothing that starts them
  bool own_defaults = false;  ///< of a tool, which says all that differs from the Trainer's: none are TRL's
  bool type_said = false;     ///< in which a model is loaded
  /// A key that would say how long rows are; where nobody does, they are as long as the data's. Empty: of no such tool.
  std::string rows_of_data;
  LearnsFrom learns_from = LearnsFrom::Rows;
  Remark lesson;              ///< what says that it is other than rows, and where
  bool judges_whole = false;  ///< a tool of its own loss, by logits that are whole in fp32
  /// Ranks that work on one row, each on a part of it, and hold what all ranks share (Ulysses, ring attention); 1: one.
  std::int64_t row_parts = 1;
  Remark parts_rows;                 ///< what says so
  std::optional<bool> trains_tower;  ///< for images, where the model has one and a tool says it
  bool mixed_precision = false;      ///< accelerate's: autocast, or FSDP's MixedPrecision
  /// Where FSDP's configuration and TrainingArguments ask for checkpointing.
  std::optional<Place> fsdp_checkpoints, trainer_checkpoints;
  bool shards_as_loaded = false;  ///< of a tool that wraps by itself: accelerate, which makes shards fp32, is not there

  /// `path` as in "layout.tensor".
  void set(std::string_view path, Content content, Place place = {});
  void erase(std::string_view path);
  [[nodiscard]] const TomlValue* find(std::string_view path) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view path) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view path) const;

  void remark(RemarkKind kind, std::string what, ProblemText why, Place place = {});
  /// So many ranks work on one row.
  void part_rows(std::int64_t parts, std::string what, Place place);
  /// What is not simulated, and takes no more than the bound of that name.
  void remark_bounded(std::string what, std::string why, std::string bound, Place place = {});
  /// A name that nobody knows: not judged, or, where it is one slip away from one of `known`, refused.
  void remark_unknown(std::string what, std::string_view name, std::string why, const std::vector<std::string>& known,
                      Place place = {});

 private:
  std::set<std::string> reported_;  // of `remarks`
};

/// The keys of an input. Each is taken by somebody who knows what it means; what is left at the end is not known.
class Given {
 public:
  /// `prefix`: of the names as they are told, "training." or "--".
  Given(std::vector<TomlKey> keys, std::string prefix, Draft& draft);

  /// What the key `of` says, as an argument of another tool, at the place of that key.
  [[nodiscard]] TomlKey made(std::string_view name, Content content, std::string_view of) const;

  /// "bf16" or "fp16"; `otherwise` where nobody says one. Any other is refused.
  std::string half_type(std::string_view name, std::string_view otherwise);

  /// Nothing where it is not there; "auto" and null are not.
  const TomlValue* take(std::string_view name);
  /// The same, and leaves it to others.
  [[nodiscard]] const TomlValue* look_at(std::string_view name) const;
  /// InputError where it is of another type.
  std::optional<std::int64_t> integer(std::string_view name);
  std::optional<bool> flag(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  std::optional<double> number(std::string_view name);
  Given table(std::string_view name);
  [[nodiscard]] bool has(std::string_view name) const;
  /// "auto": transformers and accelerate see to it.
  [[nodiscard]] bool left_to_others(std::string_view name) const;
  [[nodiscard]] bool is_taken(std::string_view name) const { return taken_.contains(name); }
  [[nodiscard]] Place place(std::string_view name) const;
  [[nodiscard]] const std::vector<TomlKey>& keys() const { return keys_; }
  [[nodiscard]] Draft& draft() const { return *draft_; }

  /// Takes keys that change nothing.
  template <class Names>
  void no_matter(const Names& names, std::string_view why = "changes neither memory nor time") {
    for (const std::string_view name : names)
      if (has(name) && !taken_.contains(name)) tell(RemarkKind::NoMatter, name, std::string(why));
  }
  /// Takes a key that is not modelled, unless it says `neutral`.
  void refuse(std::string_view name, std::string_view what, const std::vector<std::string>& neutral);
  void tell(RemarkKind kind, std::string_view name, ProblemText why);
  void tell_bounded(std::string_view name, std::string why, std::string bound);
  /// What nobody took is not judged, and refused where it is one slip away from a name that somebody asked for, or from
  /// one of `known`.
  void refuse_the_rest(std::string_view why, std::vector<std::string> known = {});
  /// Refuses the key's value.
  [[noreturn]] void wrong(const TomlKey& key, std::string_view wanted) const;

 private:
  [[nodiscard]] const TomlKey* find(std::string_view name) const;
  [[nodiscard]] std::string written(const TomlKey& key) const;
  std::vector<TomlKey> keys_;
  std::map<std::string, std::size_t, std::less<>> last_;  // where the last one of a name stands
  std::string prefix_;
  std::set<std::string, std::less<>> taken_;
  mutable std::set<std::string, std::less<>> requested_;  // names that somebody knows, given or not
  Draft* draft_;
};

/// Of numbers that an input gives: the largest there is where it would be larger, which readers refuse.
[[nodiscard]] std::int64_t product(std::initializer_list<std::int64_t> factors);

/// What a word of a command line is: a number, true or false, or a text.
[[nodiscard]] Content typed(const std::string& word);

}  // namespace tidemark::scenarios
