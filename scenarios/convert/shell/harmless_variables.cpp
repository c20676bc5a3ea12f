#include "scenarios/convert/shell/harmless_variables.hpp"

#include <algorithm>
#include <cctype>
#include <set>

namespace tidemark::scenarios {
namespace {

bool is_of_a_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool parts_words(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0 || c == '"' || c == '\'' || c == '(' || c == '\\';
}

class Uses {
 public:
  Uses(std::string_view script, const std::function<bool(std::string_view)>& has_no_effect)
      : script_(script), has_no_effect_(has_no_effect) {}

  bool are_harmless(const std::string& variable) {
    if (!seen_.insert(variable).second) return true;  // which is being looked at
    for (std::size_t at = script_.find(variable); at != std::string_view::npos; at = script_.find(variable, at + 1)) {
      const std::size_t end = at + variable.size();
      const bool whole =
          (at == 0 || !is_of_a_name(script_[at - 1])) && (end == script_.size() || !is_of_a_name(script_[end]));
      if (whole && !is_comment(at) && !is_harmless(at, end)) return false;
    }
    return true;
  }

 private:
  // A comment, or what is printed.
  [[nodiscard]] bool is_comment(std::size_t at) const {
    std::size_t begin = script_.rfind('\n', at);
    begin = begin == std::string_view::npos ? 0 : begin + 1;
    while (begin < at && std::isspace(static_cast<unsigned char>(script_[begin])) != 0) ++begin;
    const std::string_view line = script_.substr(begin, script_.find('\n', begin) - begin);
    return line.starts_with('#') ||
           (line.starts_with("echo ") && line.find_first_of(">|;&`(\\") == std::string_view::npos);
  }

  // The name at that place: an assignment to it, or a use.
  bool is_harmless(std::size_t at, std::size_t end) {
    const bool used =
        at > 0 && (script_[at - 1] == '$' || (script_[at - 1] == '{' && at > 1 && script_[at - 2] == '$'));
    std::size_t word = at;
    while (word > 0 && !parts_words(script_[word - 1])) --word;
    if (!used) return word == at && end < script_.size() && script_[end] == '=';
    const std::string_view before = script_.substr(word, at - word);
    // "--lr=$LR", "OPTIONS=$LR"
    if (const std::size_t sign = before.find('='); sign != std::string_view::npos)
      return is_harmless_target(before.substr(0, sign));
    // "--lr $LR"
    std::size_t last = word;
    while (last > 0 && parts_words(script_[last - 1])) --last;
    std::size_t first = last;
    while (first > 0 && !parts_words(script_[first - 1])) --first;
    const std::string_view previous = script_.substr(first, last - first);
    if (previous.starts_with("--")) return is_harmless_target(previous);
    // "OPTIONS="$LR ...""
    return previous.ends_with('=') && is_harmless_target(previous.substr(0, previous.size() - 1));
  }
  bool is_harmless_target(std::string_view target) {
    if (target.starts_with("--")) {
      std::string flag(target.substr(2));
      std::ranges::replace(flag, '_', '-');
      return has_no_effect_(flag);
    }
    return !target.empty() && std::ranges::all_of(target, is_of_a_name) && are_harmless(std::string(target));
  }

  std::string_view script_;
  const std::function<bool(std::string_view)>& has_no_effect_;
  std::set<std::string> seen_;
};

}  // namespace

bool is_harmless(std::string_view script, const std::string& variable,
                 const std::function<bool(std::string_view flag)>& has_no_effect) {
  return Uses(script, has_no_effect).are_harmless(variable);
}

}  // namespace tidemark::scenarios
