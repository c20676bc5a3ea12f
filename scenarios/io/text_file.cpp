#include "scenarios/io/text_file.hpp"

#include <cstdint>
#include <fstream>
#include <system_error>

#include "scenarios/io/input_error.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::uintmax_t largest_file = 16U << 20;  // the files this reads are a few KiB

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  const auto refuse = [&](const char* message) -> InputError {
    return InputError(Problem{path.string(), 0, 0, message, {}});
  };
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) throw refuse("there is no such file");
  if (!std::filesystem::is_regular_file(status)) throw refuse("is not a regular file");
  if (std::filesystem::file_size(path, failure) > largest_file || failure) throw refuse("is larger than 16 MiB");

  std::ifstream stream(path, std::ios::binary);
  std::string text;
  // A file may grow, or hide its size as those under /proc do: never read past the limit either way.
  for (char chunk[4096]; stream.read(chunk, sizeof chunk), stream.gcount() > 0;) {
    text.append(chunk, static_cast<std::size_t>(stream.gcount()));
    if (text.size() > largest_file) throw refuse("is larger than 16 MiB");
  }
  if (!stream.eof()) throw refuse("cannot be read");
  return text;
}

}  // namespace tidemark::scenarios
