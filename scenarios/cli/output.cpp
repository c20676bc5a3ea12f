#include "scenarios/cli/output.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>

#include "scenarios/io/input_error.hpp"

namespace tidemark::cli {
namespace {

void print(std::FILE* stream, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0)
    throw std::runtime_error("the answer could not be printed");
}

}  // namespace

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  if (file) write(file);
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(unfinished, path, failed);
  if (!file || failed) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw InputError(
        Problem{.file = path, .message = "cannot be written", .hint = "check the folder and its permissions"});
  }
}

void answer(const std::string& text, const std::string& json, const std::function<std::string()>& make_json) {
  if (json == "-") {
    print(stderr, text);
    print(stdout, make_json());
    return;
  }
  print(stdout, text);
  if (json.empty()) return;
  write_file(json, [&](std::ostream& file) { file << make_json(); });
}

std::filesystem::path data_root() {
  if (const char* asked = std::getenv("TIDEMARK_DATA_ROOT")) return asked;
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path installed = program.parent_path().parent_path() / "share" / "tidemark";
  if (std::filesystem::is_directory(installed, ignored)) return installed;
  return std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios";
}

}  // namespace tidemark::cli
