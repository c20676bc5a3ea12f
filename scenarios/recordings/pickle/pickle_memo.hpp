#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/recordings/pickle/pickle.hpp"

namespace tidemark::scenarios {

/// The numbered values of a pickle. Python memoizes every text, all bytes and every container that it writes, so these
/// are packed: five bytes each. Other values, which it never memoizes, take more.
class PickleMemo {
 public:
  void set(std::size_t index, const PickleValue& value);
  [[nodiscard]] std::optional<PickleValue> get(std::size_t index) const;
  /// How many numbers were set.
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  enum class Kind : std::uint8_t { Absent, Text, List, Tuple, Dict, Bytes, Set, Other };

  std::vector<Kind> kinds_;
  std::vector<std::uint32_t> places_;  // of the value, by its kind
  std::vector<PickleValue> others_;
  std::size_t count_ = 0;
};

}  // namespace tidemark::scenarios
