#include "scenarios/cli/output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <system_error>

#include <fmt/format.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/io/document_parts.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/suggestion.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/io/toml_value.hpp"

namespace tidemark::cli {
namespace {

// What the system says where the text did not get out.
std::optional<int> print(std::FILE* stream, const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0) return std::nullopt;
  return errno;
}

void raise(std::optional<int> error, const char* stream) {
  if (error)
    throw std::system_error(*error, std::generic_category(), fmt::format("the answer did not get out on {}", stream));
}

}  // namespace

void answer(const std::string& text, const std::string& json, const std::function<std::string()>& make_json) {
  if (json == "-") {
    const std::optional<int> aside = print(stderr, text);  // told after the answer itself
    raise(print(stdout, make_json()), "standard output");
    raise(aside, "standard error");
    return;
  }
  raise(print(stdout, text), "standard output");
  if (json.empty()) return;
  write_file(json, [&](std::ostream& file) { file << make_json(); });
}

void complain(const std::string& text) {
  std::fputs((text + '\n').c_str(), stderr);
  std::fflush(stderr);
}

std::vector<std::filesystem::path> files_behind(const std::string& scenario) {
  const std::filesystem::path path(scenario);
  if (is_foreign(path)) return {path};
  std::vector<std::filesystem::path> files =
      files_named(parse_toml(read_text(path), scenario), {path.parent_path(), data_root()});
  files.push_back(path);
  return files;
}

std::filesystem::path data_root() {
  std::error_code ignored;
  if (const char* asked = std::getenv("TIDEMARK_DATA_ROOT"); asked != nullptr && *asked != '\0') {
    if (!std::filesystem::is_directory(asked, ignored))
      throw InputError(Problem{.file = "TIDEMARK_DATA_ROOT",
                               .message = fmt::format("there is no folder {}", in_quotes(asked)),
                               .hint = "name the folder that has models/ and clusters/, or leave it unset"});
    return asked;
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path installed = program.parent_path().parent_path() / "share" / "tidemark";
  if (std::filesystem::is_directory(installed, ignored)) return installed;
  return std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios";
}

}  // namespace tidemark::cli
