#include "scenarios/convert/hugging_face/target_patterns.hpp"

#include <algorithm>
#include <bitset>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "parallel/frameworks/transformers/adapters.hpp"

namespace tidemark::scenarios {

using Characters = std::bitset<256>;

// Alternatives, each a row of what stands one after the other; or one of some characters. It is there once, or as often
// as it says.
struct ModulePattern::Node {
  std::vector<std::vector<Node>> alternatives;
  Characters characters;
  bool may_lack = false, may_repeat = false;
};

namespace {

using Node = ModulePattern::Node;

std::size_t index_of(char c) { return static_cast<unsigned char>(c); }

class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : text_(text) {}

  std::optional<Node> read() {
    Node root = alternatives();
    if (failed_ || at_ != text_.size()) return std::nullopt;
    return root;
  }

 private:
  static constexpr int deepest = 32;

  [[nodiscard]] bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!is_at(c)) return false;
    ++at_;
    return true;
  }

  Node alternatives() {
    Node made;
    if (++depth_ > deepest) failed_ = true;
    do {
      std::vector<Node>& row = made.alternatives.emplace_back();
      while (!failed_ && at_ < text_.size() && !is_at('|') && !is_at(')')) row.push_back(repeated());
    } while (!failed_ && take('|'));
    --depth_;
    return made;
  }

  Node repeated() {
    Node made = once();
    if (at_ >= text_.size()) return made;
    const char c = text_[at_];
    if (c == '{') failed_ = true;
    if (c != '*' && c != '+' && c != '?') return made;
    ++at_;
    made.may_lack = c != '+';
    made.may_repeat = c != '?';
    if (is_at('*') || is_at('+') || is_at('?')) failed_ = true;  // lazy and possessive ones
    return made;
  }

  Node once() {
    Node made;
    const char c = text_[at_++];
    if (c == '(') {
      if (take('?') && !take(':')) failed_ = true;
      if (!failed_) made = alternatives();
      if (!take(')')) failed_ = true;
    } else if (c == '[') {
      made.characters = char_class();
    } else if (c == '.') {
      made.characters.set();
      made.characters.reset(index_of('\n'));
    } else if (c == '\\') {
      made.characters = escaped();
    } else if (std::string_view("*+?{}^$").find(c) != std::string_view::npos) {
      failed_ = true;
    } else {
      made.characters.set(index_of(c));
    }
    return made;
  }

  Characters escaped() {
    Characters made;
    if (at_ >= text_.size()) {
      failed_ = true;
      return made;
    }
    const char c = text_[at_++];
    for (std::size_t i = 0; i < made.size(); ++i) {
      const int its = static_cast<int>(i);
      if (c == 'd') made[i] = i < 128 && std::isdigit(its) != 0;
      if (c == 'w') made[i] = i < 128 && (std::isalnum(its) != 0 || its == '_');
    }
    if (std::isalnum(static_cast<unsigned char>(c)) == 0)
      made.set(index_of(c));
    else if (c != 'd' && c != 'w')
      failed_ = true;
    return made;
  }

  Characters char_class() {
    Characters made;
    const bool others = take('^');
    if (is_at(']')) failed_ = true;
    while (!failed_ && at_ < text_.size() && !is_at(']')) {
      if (take('\\')) {
        made |= escaped();
        continue;
      }
      const char from = text_[at_++];
      char to = from;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        to = text_[at_ + 1];
        at_ += 2;
        if (to == '\\' || to < from) failed_ = true;
      }
      for (std::size_t i = index_of(from); i <= index_of(to); ++i) made.set(i);
    }
    if (!take(']')) failed_ = true;
    return others ? ~made : made;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

using Places = std::set<std::size_t>;

Places ends_of(const Node& node, std::string_view path, const Places& begins);

Places ends_of_one(const Node& node, std::string_view path, const Places& begins) {
  Places ends;
  if (node.alternatives.empty())
    for (const std::size_t at : begins)
      if (at < path.size() && node.characters[index_of(path[at])]) ends.insert(at + 1);
  for (const std::vector<Node>& row : node.alternatives) {
    Places places = begins;
    for (const Node& its : row) places = ends_of(its, path, places);
    ends.merge(places);
  }
  return ends;
}

// Where it may end that begins at any of those places: never more than a path has.
Places ends_of(const Node& node, std::string_view path, const Places& begins) {
  Places all = node.may_lack ? begins : Places{}, now = begins;
  do {
    Places ends = ends_of_one(node, path, now);
    now.clear();
    for (const std::size_t at : ends)
      if (all.insert(at).second) now.insert(at);
  } while (node.may_repeat && !now.empty());
  return all;
}

}  // namespace

std::optional<ModulePattern> ModulePattern::parse(std::string_view pattern) {
  constexpr std::size_t longest = 4096;
  if (pattern.size() > longest) return std::nullopt;
  std::optional<Node> root = PatternReader(pattern).read();
  if (!root) return std::nullopt;
  return ModulePattern(std::make_shared<const Node>(std::move(*root)));
}

bool ModulePattern::matches(std::string_view path) const { return ends_of(*root_, path, {0}).contains(path.size()); }

// peft/tuners/tuners_utils.py check_target_module_exists.
void name_targets_of_pattern(const parallel::Model& model, bool has_tower, Draft& draft) {
  constexpr std::string_view key = "adapter.target_modules", of_layers = "layers.", begin = "model.",
                             of_text_model = "model.language_model.";
  const TomlValue* const given = draft.find(key);
  const auto* const text = given == nullptr ? nullptr : std::get_if<std::string>(&given->value);
  // Of experts PEFT makes other names first.
  if (text == nullptr || *text == "all-linear" || model.experts() || !parallel::transformers::models_layers_of(model))
    return;
  const std::optional<ModulePattern> pattern = ModulePattern::parse(*text);
  if (!pattern) return;
  std::map<std::string, std::pair<int, int>> found;  // layers that have such a linear, and of which it is meant
  for (const parallel::transformers::ModuleName& its : parallel::transformers::module_names(model, false)) {
    if (!its.linear) continue;
    std::string path = its.path, name = its.path;
    if (has_tower && path.starts_with(begin)) path = std::string(of_text_model) + path.substr(begin.size());
    if (const std::size_t layers = name.find(of_layers); layers != std::string::npos)
      name = name.substr(name.find('.', layers + of_layers.size()) + 1);
    auto& [all, meant] = found[name];
    ++all;
    if (pattern->matches(path)) ++meant;
  }
  std::vector<TomlValue> names;
  for (const auto& [name, layers] : found) {
    if (layers.second != 0 && layers.second != layers.first) return;
    if (layers.second != 0) names.push_back({name, given->place});
  }
  // A tower's own modules are nowhere here: patterns that name none of the text model's parts may mean them.
  if (names.empty() || (has_tower && text->find("language_model") == std::string::npos)) return;
  draft.set(key, std::move(names), given->place);
}

}  // namespace tidemark::scenarios
