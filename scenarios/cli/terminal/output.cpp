#include "scenarios/cli/terminal/output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "scenarios/cli/terminal/terminal.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/reader/document_parts.hpp"

namespace tidemark::cli {
namespace {

// What the system says where the text did not get out. A reader that has seen enough (`| head`) is nothing wrong.
std::optional<int> print(std::FILE* stream, const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0) return std::nullopt;
  if (errno == EPIPE) return std::nullopt;
  return errno;
}

std::string shown(const std::string& text, int descriptor) { return answer_on(terminal(descriptor), text); }

void raise(std::optional<int> error, const char* stream) {
  if (error)
    throw std::system_error(*error, std::generic_category(),
                            fmt::format("the answer could not be written to {}", stream));
}

}  // namespace

void answer(const std::string& text, const std::string& json, const std::function<std::string()>& make_json) {
  if (json == "-") {
    const std::optional<int> aside = print(stderr, shown(text, STDERR_FILENO));  // told after the answer itself
    raise(print(stdout, make_json()), "standard output");
    raise(aside, "standard error");
    return;
  }
  raise(print(stdout, shown(text, STDOUT_FILENO)), "standard output");
  if (json.empty()) return;
  write_file(json, [&](std::ostream& file) { file << make_json(); });
}

void complain(const std::string& text) {
  std::fputs((complaint_on(terminal(STDERR_FILENO), text) + '\n').c_str(), stderr);
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

namespace {

// share/tidemark beside the folder of the installed program; nothing where it was not installed.
std::optional<std::filesystem::path> installed_data() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path data = program.parent_path().parent_path() / "share" / "tidemark";
  if (!std::filesystem::is_directory(data, ignored)) return std::nullopt;
  return data;
}

}  // namespace

std::filesystem::path data_root() {
  std::error_code ignored;
  if (const char* requested = std::getenv("TIDEMARK_DATA_ROOT"); requested != nullptr && *requested != '\0') {
    if (!std::filesystem::is_directory(requested, ignored))
      throw InputError(Problem{.file = "TIDEMARK_DATA_ROOT",
                               .message = fmt::format("there is no folder {}", in_quotes(requested)),
                               .hint = "name the folder that has models/ and clusters/, or leave it unset"});
    return requested;
  }
  return installed_data().value_or(std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios");
}

std::filesystem::path program_path() {
  const std::filesystem::path builds = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scripts" / "tidemark";
  std::error_code ignored;
  if (!installed_data() && std::filesystem::exists(builds, ignored)) return builds;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

}  // namespace tidemark::cli
