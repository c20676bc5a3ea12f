#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

struct FileLimits {
  Bytes content{16LL << 30};  ///< after decompression: a few bytes of gzip can hold gigabytes
  /// Of what is packed: bytes for each byte of the file, from 16 MiB on. Recorded snapshots have 9 to 20 (gzip -l of
  /// eight of them, without frames), and gzip can have 1032.
  std::int64_t expansion = 256;
};

/// A file that is read piece by piece, decompressed if it is gzip. Opening and reading throw InputError if it cannot be
/// read, is cut short, or unpacks to more than allowed.
class PlainOrGzip {
 public:
  explicit PlainOrGzip(const std::string& path, const FileLimits& limits = {});
  PlainOrGzip(PlainOrGzip&&) noexcept;
  ~PlainOrGzip();

  /// Up to `most` bytes; none at the end.
  std::size_t read(char* into, std::size_t most);

 private:
  struct File;
  std::unique_ptr<File> file_;
};

/// The content of a file, decompressed if it is gzip. Throws InputError if it cannot be read, is cut short, or is
/// larger than allowed.
std::string read_plain_or_gzip(const std::string& path, const FileLimits& limits = {});

}  // namespace tidemark::scenarios
