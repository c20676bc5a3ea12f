#pragma once

#include "tests/golden/accuracy_page.hpp"

namespace tidemark::tests::golden {

/// Measured memory and times in the ranges that are told, by runtime and device.
[[nodiscard]] Section range_section();

}  // namespace tidemark::tests::golden
