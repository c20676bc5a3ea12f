#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/label.hpp"

namespace tidemark::scenarios {

/// "62136.25 MiB".
[[nodiscard]] std::string mib(Bytes bytes);
/// "60.68 GiB".
[[nodiscard]] std::string gib(Bytes bytes);

/// Between quotes where a reader of CSV would take it for several.
[[nodiscard]] std::string csv_field(const std::string& text);

/// "0-7, 16" for sorted ranks.
[[nodiscard]] std::string rank_list(const std::vector<Rank>& ranks);

/// "step 2, backward of micro-batch 0, layers.19.mlp.swiglu".
[[nodiscard]] std::string where(const Moment& moment, const std::string& op);

/// "layers.7.mlp.fc1.out" is "layers.*.mlp.fc1.out".
[[nodiscard]] std::string without_layer(const Label& label);

/// A table of text: the first row is the header, the first column left-aligned, the others right-aligned, but for a
/// last one of words.
enum class LastColumn : std::uint8_t { Figures, Words };
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows,
                                LastColumn last = LastColumn::Figures);

/// Lines of at most `columns` letters, broken between words; all but the first `later` letters shorter. A longer word
/// stays whole.
[[nodiscard]] std::vector<std::string> wrapped(const std::string& text, std::size_t columns, std::size_t later = 0);

/// Each line of it wrapped, what is too long going on below, further in. As it is where `columns` is 0.
[[nodiscard]] std::string folded(const std::string& text, std::size_t columns);

}  // namespace tidemark::scenarios
