#include "scenarios/io/gzip.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include <zlib.h>

#include "scenarios/io/input_error.hpp"

namespace tidemark {
namespace {

struct CloseFile {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using File = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseFile>;

[[noreturn]] void reject(const std::string& path, std::string message, std::string hint = {}) {
  throw InputError(
      Problem{.file = path, .line = 0, .column = 0, .message = std::move(message), .hint = std::move(hint)});
}

// What zlib says about the last call, or what the system says if zlib leaves it to the system.
std::string reason(gzFile file, int system_error) {
  int code = Z_OK;
  const std::string words = gzerror(file, &code);
  return code == Z_ERRNO ? std::generic_category().message(system_error) : words;
}

}  // namespace

std::string read_plain_or_gzip(const std::string& path, const FileLimits& limits) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) reject(path, "there is no such file");
  if (!std::filesystem::is_regular_file(status)) reject(path, "is not a regular file");
  errno = 0;
  const File file(gzopen(path.c_str(), "rb"));
  if (!file) reject(path, "cannot open: " + std::generic_category().message(errno));

  constexpr std::size_t piece = 1 << 18;
  const auto limit = static_cast<std::size_t>(limits.content.count());
  std::string content;
  while (true) {
    const std::size_t before = content.size();
    if (before > limit) {
      reject(path, "holds more than the " + std::to_string(limits.content.count()) + " bytes allowed");
    }
    content.resize(before + std::min(piece, limit - before + 1));  // one more than allowed shows that there is more
    errno = 0;
    const int got = gzread(file.get(), content.data() + before, static_cast<unsigned>(content.size() - before));
    if (got < 0) reject(path, "cannot read: " + reason(file.get(), errno));
    content.resize(before + static_cast<std::size_t>(got));
    if (got > 0) continue;
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (code != Z_OK) reject(path, "the gzip stream ends in the middle", "the file was probably not copied completely");
    return content;
  }
}

}  // namespace tidemark
