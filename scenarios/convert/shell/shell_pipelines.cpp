#include "scenarios/convert/shell/shell_pipelines.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <sstream>
#include <vector>

namespace tidemark::scenarios {
namespace {

using Words = std::vector<std::string>;
constexpr std::string_view blanks = " \t";

// Commands between bars, each as the words of its text; nothing where more than bars and quotes would have to be read.
std::optional<std::vector<Words>> commands_of(std::string_view text) {
  std::vector<Words> commands(1);
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) commands.back().push_back(std::move(word));
    word.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      const std::size_t end = text.find(c, i + 1);
      if (end == std::string_view::npos) return std::nullopt;
      word += text.substr(i, end + 1 - i);
      i = end;
    } else if (c == '|') {
      if (i + 1 < text.size() && text[i + 1] == '|') return std::nullopt;
      end_word();
      commands.emplace_back();
    } else if (blanks.find(c) != std::string_view::npos) {
      end_word();
    } else if (std::string_view(";&<>`()\\\n").find(c) != std::string_view::npos) {
      return std::nullopt;
    } else {
      word += c;
    }
  }
  end_word();
  return commands;
}

// Of a word without variables.
std::optional<std::string> plain(std::string_view word) {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '\'' && word[i] != '"') {
      if (word[i] == '$') return std::nullopt;
      text += word[i];
      continue;
    }
    const std::size_t end = word.find(word[i], i + 1);
    const std::string_view inside = word.substr(i + 1, end - i - 1);
    if (word[i] == '"' && inside.find_first_of("$`") != std::string_view::npos) return std::nullopt;
    text += inside;
    i = end;
  }
  return text;
}

// A letter of tr's and awk's, a newline among them.
std::optional<char> letter(std::string_view text) {
  if (text == "\\n") return '\n';
  if (text == "\\t") return '\t';
  return text.size() == 1 && text != "\\" ? std::optional(text.front()) : std::nullopt;
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

Words fields_of(const std::string& line, std::optional<char> separator) {
  Words fields;
  std::istringstream all(line);
  std::string field;
  if (!separator) {
    while (all >> field) fields.push_back(field);
    return fields;
  }
  while (std::getline(all, field, *separator)) fields.push_back(field);
  if (!line.empty() && line.back() == *separator) fields.emplace_back();
  return fields;
}

using Printed = std::optional<std::string>;

// An option's value, which may be a word of its own: -F , and -F,.
std::optional<std::string> value_of(const Words& words, std::string_view option, std::size_t& i) {
  if (!words[i].starts_with(option)) return std::nullopt;
  if (words[i].size() > option.size()) return words[i].substr(option.size());
  return ++i < words.size() ? std::optional(words[i]) : std::nullopt;
}

Printed awk(const Words& words, const std::string& given) {
  std::optional<char> separator;
  std::string program;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with("-F")) {
      const auto its = value_of(words, "-F", i);
      separator = its ? letter(*its) : std::nullopt;
      if (!separator || *separator == ' ') return std::nullopt;
    } else if (program.empty()) {
      program = words[i];
    } else {
      return std::nullopt;
    }
  }
  std::erase_if(program, [](char c) { return blanks.find(c) != std::string_view::npos; });
  if (program != "{printNF}" && program != "{printNF;}") return std::nullopt;
  std::string printed;
  for (const std::string& line : lines_of(given)) printed += std::to_string(fields_of(line, separator).size()) + '\n';
  return printed;
}

Printed tr(const Words& words, std::string given) {
  if (words.size() != 3) return std::nullopt;
  const auto second = letter(words[2]);
  if (!second) return std::nullopt;
  if (words[1] == "-d") {
    std::erase(given, *second);
    return given;
  }
  if (words[1] == "-cd" || words[1] == "-dc") {
    std::erase_if(given, [&](char c) { return c != *second; });
    return given;
  }
  const auto first = letter(words[1]);
  if (!first) return std::nullopt;
  std::ranges::replace(given, *first, *second);
  return given;
}

Printed wc(const Words& words, const std::string& given) {
  if (words.size() != 2) return std::nullopt;
  if (words[1] == "-l") return std::to_string(std::ranges::count(given, '\n')) + '\n';
  if (words[1] == "-w") return std::to_string(fields_of(given, std::nullopt).size()) + '\n';
  if (words[1] == "-c") return std::to_string(given.size()) + '\n';
  return std::nullopt;
}

Printed cut(const Words& words, const std::string& given) {
  std::optional<char> separator;
  std::size_t place = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (const auto its = value_of(words, "-d", i)) {
      separator = letter(*its);
    } else if (const auto field = value_of(words, "-f", i)) {
      const auto [end, error] = std::from_chars(field->data(), field->data() + field->size(), place);
      if (error != std::errc() || end != field->data() + field->size()) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  if (!separator || place == 0) return std::nullopt;
  std::string printed;
  for (const std::string& line : lines_of(given)) {
    const Words fields = fields_of(line, separator);
    // A line without the separator goes through whole.
    printed += (fields.size() < 2 ? line : place <= fields.size() ? fields[place - 1] : std::string()) + '\n';
  }
  return printed;
}

Printed filtered(const Words& words, const std::string& given) {
  Words read;
  for (const std::string& word : words) {
    const auto its = plain(word);
    if (!its) return std::nullopt;
    read.push_back(*its);
  }
  if (read.empty()) return std::nullopt;
  if (read.front() == "awk") return awk(read, given);
  if (read.front() == "tr") return tr(read, given);
  if (read.front() == "wc") return wc(read, given);
  if (read.front() == "cut") return cut(read, given);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> printed_by(std::string_view command, const KnownWord& known) {
  const auto commands = commands_of(command);
  if (!commands || commands->size() < 2) return std::nullopt;
  const Words& first = commands->front();
  if (first.size() != 2 || first[0] != "echo" || first[1].starts_with('-')) return std::nullopt;
  Printed printed = known(first[1]);
  if (!printed || printed->find('\\') != std::string::npos) return std::nullopt;
  *printed += '\n';
  for (std::size_t i = 1; i < commands->size() && printed; ++i) printed = filtered((*commands)[i], *printed);
  if (printed) printed->erase(printed->find_last_not_of('\n') + 1);
  return printed;
}

}  // namespace tidemark::scenarios
