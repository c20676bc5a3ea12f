#include "scenarios/formats/toml_text.hpp"

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string key_text(const std::string& key) {
  constexpr std::string_view bare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return !key.empty() && key.find_first_not_of(bare) == std::string::npos ? key : quoted(key);
}

std::string value_text(const TomlValue& value) {
  return std::visit(Overloaded{
                        [&](bool) { return text(value); },
                        [&](std::int64_t) { return text(value); },
                        [&](double) { return text(value); },
                        [](const std::string& s) { return quoted(s); },
                        [](const TomlTime&) {
                          ensure(false, "no key of ours takes a date");
                          return std::string();
                        },
                        [](const std::vector<TomlValue>& elements) {
                          std::string list;
                          for (const TomlValue& element : elements)
                            list += (list.empty() ? "" : ", ") + value_text(element);
                          return "[" + list + "]";
                        },
                        [](const TomlTable& table) {
                          std::string list;
                          for (const TomlKey& key : table.keys)
                            list += (list.empty() ? "" : ", ") + key_text(key.name) + " = " + value_text(key.value);
                          return "{" + list + "}";
                        },
                    },
                    value.value);
}

// Keys before the tables that would swallow them.
void write(const TomlTable& table, const std::string& path, std::string& out) {
  for (const TomlKey& key : table.keys)
    if (!std::holds_alternative<TomlTable>(key.value.value))
      out += key_text(key.name) + " = " + value_text(key.value) + '\n';
  for (const TomlKey& key : table.keys) {
    const auto* inner = std::get_if<TomlTable>(&key.value.value);
    if (inner == nullptr) continue;
    const std::string name = path.empty() ? key_text(key.name) : path + '.' + key_text(key.name);
    out += '[' + name + "]\n";
    write(*inner, name, out);
  }
}

}  // namespace

std::string toml_text(const TomlTable& document) {
  std::string out;
  write(document, "", out);
  return out;
}

}  // namespace tidemark::scenarios
