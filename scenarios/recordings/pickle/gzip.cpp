#include "scenarios/recordings/pickle/gzip.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include <zlib.h>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

struct CloseFile {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using ZlibFile = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseFile>;

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

struct PlainOrGzip::File {
  std::string path;
  FileLimits limits;
  std::int64_t content = 0;  // read so far
  ZlibFile zlib;

  void check() const {
    constexpr std::int64_t always_allowed = 16 << 20;
    if (content > limits.content.count())
      reject(path, "holds more than the " + std::to_string(limits.content.count()) + " bytes allowed");
    if (content <= always_allowed || gzdirect(zlib.get()) == 1) return;
    const std::int64_t packed = gzoffset(zlib.get());
    if (content / limits.expansion > packed)
      reject(path,
             "at byte " + std::to_string(packed) + ": unpacks to more than " + std::to_string(limits.expansion) +
                 " times its size (" + std::to_string(content) + " bytes so far)",
             "made to fill memory, probably; if it is not, unpack it first: gzip -dc FILE > UNPACKED");
  }
};

PlainOrGzip::PlainOrGzip(const std::string& path, const FileLimits& limits)
    : file_(new File{path, limits, 0, nullptr}) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) reject(path, "there is no such file");
  if (!std::filesystem::is_regular_file(status)) reject(path, "is not a regular file");
  errno = 0;
  file_->zlib.reset(gzopen(path.c_str(), "rb"));
  if (!file_->zlib) reject(path, "cannot open: " + std::generic_category().message(errno));
  gzbuffer(file_->zlib.get(), 1 << 17);
}
PlainOrGzip::PlainOrGzip(PlainOrGzip&&) noexcept = default;
PlainOrGzip::~PlainOrGzip() = default;

std::size_t PlainOrGzip::read(char* into, std::size_t most) {
  errno = 0;
  const int got = gzread(file_->zlib.get(), into, static_cast<unsigned>(std::min<std::size_t>(most, 1 << 30)));
  if (got < 0) reject(file_->path, "cannot read: " + reason(file_->zlib.get(), errno));
  file_->content += got;
  file_->check();
  if (got > 0) return static_cast<std::size_t>(got);
  int code = Z_OK;
  gzerror(file_->zlib.get(), &code);
  if (code != Z_OK)
    reject(file_->path, "the gzip stream ends in the middle", "the file was probably not copied completely");
  return 0;
}

std::string read_plain_or_gzip(const std::string& path, const FileLimits& limits) {
  constexpr std::size_t piece = 1 << 18;
  PlainOrGzip file(path, limits);
  std::string content;
  for (std::size_t got = piece; got > 0;) {
    const std::size_t before = content.size();
    content.resize(before + piece);
    got = file.read(content.data() + before, piece);
    content.resize(before + got);
  }
  return content;
}

}  // namespace tidemark::scenarios
