#pragma once

#include <type_traits>

namespace tidemark::sim {

/// A visitor made of lambdas, one per alternative.
template <class... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <class... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

/// In a visit: alternatives that have no part in it, by name, so that a new one is a compile error still.
template <class... Ts>
struct Ignored {
  template <class T>
  requires(std::is_same_v<T, Ts> || ...) constexpr void operator()(const T&) const {}
};

}  // namespace tidemark::sim
