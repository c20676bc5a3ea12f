#pragma once

#include "tests/golden/accuracy_page.hpp"

namespace tidemark::tests::golden {

/// Of kernels and collectives that others measured, those that nothing was fitted on.
[[nodiscard]] Section kernel_section();

}  // namespace tidemark::tests::golden
