#include "scenarios/formats/text_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::uintmax_t largest_file = 16U << 20;  // the files this reads are a few KiB

std::vector<std::filesystem::path>& only_folders() {
  static std::vector<std::filesystem::path> folders;
  return folders;
}

/// Whether it may be looked at: links and ".." lead where they lead.
bool may_be_read(const std::filesystem::path& path) {
  if (only_folders().empty()) return true;
  std::error_code failure;
  const std::filesystem::path where = std::filesystem::weakly_canonical(path, failure);
  return !failure && std::ranges::any_of(only_folders(), [&](const std::filesystem::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), where.begin(), where.end()).first == folder.end();
  });
}

/// A file of the same folder with nearly that name.
std::string near_file(const std::filesystem::path& path) {
  std::vector<std::string> beside;
  std::error_code failure;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (std::filesystem::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    std::error_code gone;
    if (at->is_regular_file(gone)) beside.push_back((path.parent_path() / at->path().filename()).string());
  }
  std::sort(beside.begin(), beside.end());
  return nearest(path.string(), beside);
}

}  // namespace

void read_only_in(const std::vector<std::filesystem::path>& folders) {
  only_folders().clear();
  for (const std::filesystem::path& folder : folders) only_folders().push_back(std::filesystem::canonical(folder));
}

bool is_there(const std::filesystem::path& path) {
  if (!may_be_read(path)) return false;
  std::error_code failure;
  return std::filesystem::exists(path, failure);
}

std::string read_text(const std::filesystem::path& path) {
  const auto refuse = [&](std::string message, std::string hint = {}) -> InputError {
    return InputError(Problem{path.string(), 0, 0, std::move(message), std::move(hint)});
  };
  if (!may_be_read(path))
    throw refuse("there is no such file here", "only the file that was given is read, and those that are shipped");
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    const std::string near = near_file(path);
    throw refuse("there is no such file", near.empty() ? "" : fmt::format("did you mean {}?", near));
  }
  if (!std::filesystem::is_regular_file(status)) throw refuse("is not a regular file", "name a file that holds text");
  if (std::filesystem::file_size(path, failure) > largest_file || failure)
    throw refuse("is larger than 16 MiB", "the files that belong here are a few KiB");

  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw refuse("cannot be read: " + std::generic_category().message(errno), "check the permissions");
  std::string text;
  // A file may grow, or hide its size as those under /proc do: never read past the limit either way.
  for (char chunk[4096]; stream.read(chunk, sizeof chunk), stream.gcount() > 0;) {
    text.append(chunk, static_cast<std::size_t>(stream.gcount()));
    if (text.size() > largest_file) throw refuse("is larger than 16 MiB", "the files that belong here are a few KiB");
  }
  if (!stream.eof()) throw refuse("cannot be read", "name a file that holds text");
  return text;
}

}  // namespace tidemark::scenarios
