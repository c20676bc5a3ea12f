#pragma once

#include <filesystem>

#include "tests/namespace.hpp"

namespace tidemark::tests::golden {

/// Where the sources are.
inline const std::filesystem::path root = TIDEMARK_SOURCE_DIR;

}  // namespace tidemark::tests::golden
