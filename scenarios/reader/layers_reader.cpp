#include "scenarios/reader/layers_reader.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/model_config/detail/config_format.hpp"

namespace tidemark::scenarios {
namespace {

using parallel::DenseMlp;
using parallel::FeedForward;
using parallel::Layer;
using parallel::LayerList;
using parallel::Mixer;
using parallel::NoMixer;
using parallel::NoMlp;

constexpr std::string_view layers_example = R"(["3 dense", "58 experts"])";

// What a model's layers may be made of: what its configuration has in any layer, and the MLP that stands in place of
// experts where a layer has none. (Families whose layers all have windows have one mask for all of them.)
struct Parts {
  std::vector<Mixer> mixers;
  std::vector<FeedForward> mlps;
  bool one_mixer = false, one_mlp = false;  ///< that its layers have, where nothing is said
  bool hybrid = false;                      ///< a layer has one of both
  std::int64_t ffn = 0;                     ///< of an MLP that says no other width

  explicit Parts(const Model& model) {
    const auto add = [](auto& parts, const auto& part) {
      if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
    };
    for (const Layer& layer : model.layers.kinds()) {
      add(mixers, layer.mixer);
      add(mlps, layer.mlp);
    }
    hybrid = model.hybrid();
    ffn = model.ffn;
    if (hybrid) {
      std::erase(mixers, Mixer{NoMixer{}});
      std::erase(mlps, FeedForward{NoMlp{}});
      return;
    }
    one_mixer = mixers.size() == 1;
    one_mlp = mlps.size() == 1;
    if (model.ffn > 0) add(mlps, FeedForward{DenseMlp{}});
  }

  [[nodiscard]] std::vector<std::string> words() const {
    std::vector<std::string> all;
    for (const Mixer& its : mixers) all.push_back(in_quotes(word_of(its)));
    for (const FeedForward& its : mlps) all.push_back(in_quotes(word_of(its)));
    return all;
  }
};

// Entries of a list: so many layers, and what each is.
struct Entry {
  std::int64_t count = 1;
  Layer layer;
};

class LayersReader {
 public:
  LayersReader(TomlReader& top, const Model& model) : top_(top), model_(model), parts_(model) {}

  std::optional<LayerList> read(const std::vector<TomlValue>& values) {
    LayerList once;
    for (const TomlValue& value : values) {
      const auto* words = std::get_if<std::string>(&value.value);
      if (words == nullptr) {
        wrong(fmt::format("layers takes a list of texts, and {} is none", text(value)),
              fmt::format("such as {}", layers_example));
        return std::nullopt;
      }
      const std::optional<Entry> entry = entry_of(*words);
      if (!entry) return std::nullopt;
      once.append(entry->count, entry->layer);
    }
    const std::int64_t all = model_.layers.size();
    if (once.empty() || once.size() > all || all % once.size() != 0) {
      wrong(fmt::format("layers: a list of {} layers cannot be repeated to make {}", once.size(), all),
            fmt::format("num_hidden_layers = {} in [model_override], or a list of {}",
                        std::max<std::int64_t>(once.size(), 1), all));
      return std::nullopt;
    }
    LayerList list;
    while (list.size() < all)
      for (std::int64_t i = 0; i < once.size(); ++i) list.append(1, once[i]);
    return list;
  }

 private:
  void wrong(std::string message, std::string hint) { top_.problem(layers_key, std::move(message), std::move(hint)); }

  std::optional<Entry> entry_of(const std::string& line) {
    std::istringstream words(line);
    Entry entry;
    std::optional<Mixer> mixer;
    std::optional<FeedForward> mlp;
    bool first = true;
    for (std::string word; words >> word; first = false) {
      if (first && word.find_first_not_of("0123456789") == std::string::npos) {
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), entry.count);
        if (error == std::errc() && entry.count >= 1 && entry.count <= model_.layers.size()) continue;
        wrong(fmt::format("layers: {} begins with {}, and the model has {} layers", in_quotes(line), word,
                          model_.layers.size()),
              fmt::format("1 to {} would do", model_.layers.size()));
        return std::nullopt;
      }
      const bool known = take(parts_.mixers, word, mixer) || take(parts_.mlps, word, mlp) ||
                         take_absence(word, mixer, mlp) || take_width(word, mlp);
      if (known) continue;
      wrong(fmt::format("layers: {} in {} is not a part of {}'s layers", in_quotes(word), in_quotes(line), model_.name),
            one_of(parts_.words()) + " would do, a number before it");
      return std::nullopt;
    }
    if (parts_.one_mixer && !mixer) mixer = parts_.mixers.front();
    if (parts_.one_mlp && !mlp) mlp = parts_.mlps.front();
    if (parts_.hybrid) {  // layers of one branch each
      if (mixer && !mlp) mlp = FeedForward{NoMlp{}};
      if (mlp && !mixer) mixer = Mixer{NoMixer{}};
    }
    if (parts_.hybrid && mixer && mlp && !Layer{*mixer, *mlp}.lacks_branch()) {
      wrong(fmt::format("layers: {} has both a token mixer and an MLP, and a layer of a hybrid has only one of them",
                        in_quotes(line)),
            "use two consecutive layers");
      return std::nullopt;
    }
    if (!resolved(parts_.mixers, line, mixer) || !resolved(parts_.mlps, line, mlp)) return std::nullopt;
    entry.layer = {*mixer, *mlp};
    return entry;
  }

  // One of each is enough.
  template <class Part>
  static bool take(const std::vector<Part>& parts, const std::string& word, std::optional<Part>& taken) {
    const auto found = std::ranges::find_if(parts, [&](const Part& its) { return word_of(its) == word; });
    if (found == parts.end() || taken) return false;
    taken = *found;
    return true;
  }

  // A layer without one of both, or without both, as searches for architectures leave them.
  bool take_absence(const std::string& word, std::optional<Mixer>& mixer, std::optional<FeedForward>& mlp) const {
    if (parts_.hybrid) return false;
    const bool unmixed = word == NoMixer::word() && !mixer, alone = word == NoMlp::word() && !mlp;
    if (unmixed) mixer = NoMixer{};
    if (alone) mlp = NoMlp{};
    return unmixed || alone;
  }

  // "dense=4096", where there may be an MLP.
  bool take_width(const std::string& word, std::optional<FeedForward>& taken) {
    constexpr std::string_view key = DenseMlp::usual_word;
    const bool any =
        std::ranges::any_of(parts_.mlps, [](const FeedForward& its) { return std::holds_alternative<DenseMlp>(its); });
    if (!any || taken || !word.starts_with(key) || word.size() < key.size() + 2 || word[key.size()] != '=')
      return false;
    std::int64_t ffn = 0;
    const char* const end = word.data() + word.size();
    const auto [last, error] = std::from_chars(word.data() + key.size() + 1, end, ffn);
    if (error != std::errc() || last != end || ffn < 1 || ffn > config_format::most_ffn) return false;
    taken = DenseMlp{.ffn = ffn == parts_.ffn ? 0 : ffn};
    return true;
  }

  template <class Part>
  bool resolved(const std::vector<Part>& parts, const std::string& line, const std::optional<Part>& taken) {
    if (taken) return true;
    std::vector<std::string> words;
    for (const Part& its : parts) words.push_back(in_quotes(word_of(its)));
    wrong(fmt::format("layers: {} does not say which of them these layers have", in_quotes(line)),
          one_of(words) + " would do");
    return false;
  }

  TomlReader& top_;
  const Model& model_;
  Parts parts_;
};

}  // namespace

void read_layers(TomlReader& top, Model& model) {
  const TomlValue* const given = top.raw(layers_key);
  if (given == nullptr) return;
  const auto* values = std::get_if<std::vector<TomlValue>>(&given->value);
  if (values == nullptr) {
    top.problem(layers_key, fmt::format("layers takes a list of texts, not {}", text(*given)),
                fmt::format("such as layers = {}", layers_example));
    return;
  }
  if (model.layers.empty()) return;  // its config.json has been reported
  if (std::optional<LayerList> list = LayersReader(top, model).read(*values)) model.layers = *std::move(list);
}

}  // namespace tidemark::scenarios
