#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/namespace.hpp"
#include "parallel/torch/process.hpp"

namespace tidemark::parallel::torch {

/// Names within scopes, "layers.3.mlp" and "add": each pair is put together once, and found again by both.
class Labels {
 public:
  explicit Labels(Process& process) : process_(process), slots_(std::size_t{1} << 8U) {}

  LabelId within(LabelId scope, std::string_view name) {
    const std::uint64_t mixed = std::hash<std::string_view>()(name) ^ static_cast<std::uint64_t>(scope.value);
    const std::uint64_t hash = mixed * 0x9e3779b97f4a7c15ULL;  // Knuth 6.4: the high bits depend on all
    for (std::size_t at = hash >> 32U;; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (!slot.label.valid()) {
        slot = {hash, scope, made(scope, name)};
        const LabelId label = slot.label;
        if (2 * ++taken_ > slots_.size()) grow();
        return label;
      }
      if (slot.hash == hash && slot.scope == scope && is(slot.label, scope, name)) return slot.label;
    }
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    LabelId scope, label;
  };

  [[nodiscard]] bool is(LabelId label, LabelId scope, std::string_view name) const {
    const std::size_t before = scope.valid() ? process_.text(scope).size() + 1 : 0;
    return process_.text(label).size() == before + name.size() && process_.text(label).ends_with(name);
  }
  LabelId made(LabelId scope, std::string_view name) {
    if (!scope.valid()) return process_.label(name);
    return process_.label(process_.text(scope) + "." + std::string(name));
  }

  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : old) {
      if (!slot.label.valid()) continue;
      std::size_t at = slot.hash >> 32U;
      while (slots_[at & (slots_.size() - 1)].label.valid()) ++at;
      slots_[at & (slots_.size() - 1)] = slot;
    }
  }

  Process& process_;
  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  std::size_t taken_ = 0;
};

}  // namespace tidemark::parallel::torch
