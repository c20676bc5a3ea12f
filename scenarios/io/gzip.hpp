#pragma once

#include <string>

#include "sim/units.hpp"

namespace tidemark {

struct FileLimits {
  Bytes content{2LL << 30};  ///< after decompression: a few bytes of gzip can hold gigabytes
};

/// The content of a file, decompressed if it is gzip. Throws InputError if it cannot be read, is cut short, or is
/// larger than allowed.
std::string read_plain_or_gzip(const std::string& path, const FileLimits& limits = {});

}  // namespace tidemark
