#pragma once

#include <map>
#include <string>

#include "sim/program/program.hpp"
#include "tests/namespace.hpp"

// What made a tensor, in the words of recordings (MADE_BY in tests/ground_truth/record_*.py), told of a program by what
// it calls its tensors.

namespace tidemark::tests::golden {

using MadeBy = std::map<std::string, Bytes>;

/// Of the tensors that are live on the device when they take most, the first time.
[[nodiscard]] MadeBy made_at_peak(const Program& program);

}  // namespace tidemark::tests::golden
