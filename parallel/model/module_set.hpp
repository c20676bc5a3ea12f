#pragma once

#include <cstdint>
#include <initializer_list>

#include "parallel/namespace.hpp"

namespace tidemark::parallel {

/// Some of the modules that an enumeration names.
template <class Module>
class ModuleSet {
 public:
  constexpr ModuleSet() = default;
  constexpr ModuleSet(std::initializer_list<Module> modules) {
    for (const Module module : modules) add(module);
  }
  constexpr void add(Module module) { bits_ |= bit(module); }
  [[nodiscard]] constexpr bool has(Module module) const { return (bits_ & bit(module)) != 0; }
  /// One for each module.
  [[nodiscard]] constexpr std::uint32_t bits() const { return bits_; }
  bool operator==(const ModuleSet&) const = default;

 private:
  static constexpr std::uint32_t bit(Module module) { return 1U << static_cast<unsigned>(module); }
  std::uint32_t bits_ = 0;
};

}  // namespace tidemark::parallel
