#include "scenarios/recordings/pickle/pickle_nesting.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {

std::optional<PickleContainer> container_of(const Pickle& pickle, const PickleValue& value) {
  using Result = std::optional<PickleContainer>;
  return std::visit(Overloaded{
                        [](PickleNone) { return Result{}; },
                        [](bool) { return Result{}; },
                        [](std::int64_t) { return Result{}; },
                        [](double) { return Result{}; },
                        [](PickleText) { return Result{}; },
                        [&](PickleList list) {
                          return Result{{list.index, pickle.items(list)}};
                        },
                        [&](PickleTuple tuple) {
                          return Result{{tuple.index, pickle.items(tuple)}};
                        },
                        [&](PickleDict dict) {
                          return Result{{dict.index, pickle.entries(dict)}};
                        },
                        [](PickleBytes) { return Result{}; },
                        [&](PickleSet set) {
                          return Result{{set.index, pickle.items(set)}};
                        },
                    },
                    value);
}

Nesting nesting(const Pickle& pickle, std::size_t limit) {
  struct Level {
    PickleContainer container;
    std::size_t next_item = 0;
    std::uint32_t height = 1;  // of the container, as far as seen
  };
  constexpr std::uint32_t unseen = 0;
  constexpr std::uint32_t open = ~std::uint32_t{0};
  std::vector<std::uint32_t> heights(pickle.container_count(), unseen);
  std::vector<Level> path;

  const auto enter = [&](const PickleValue& value) {
    const std::optional<PickleContainer> entered = container_of(pickle, value);
    if (!entered) return Nesting::Bounded;
    std::uint32_t& height = heights[entered->index];
    if (height == open) return Nesting::Cyclic;
    if (path.size() + std::max<std::size_t>(height, 1) > limit) return Nesting::TooDeep;
    if (height != unseen) {
      if (!path.empty()) path.back().height = std::max(path.back().height, height + 1);
      return Nesting::Bounded;
    }
    height = open;
    path.push_back({*entered});
    return Nesting::Bounded;
  };

  Nesting found = enter(pickle.root());
  while (!path.empty() && found == Nesting::Bounded) {
    Level& level = path.back();
    if (level.next_item < level.container.items.size()) {
      found = enter(level.container.items[level.next_item++]);
      continue;
    }
    const std::uint32_t height = level.height;
    heights[level.container.index] = height;
    path.pop_back();
    if (!path.empty()) path.back().height = std::max(path.back().height, height + 1);
  }
  return found;
}

}  // namespace tidemark::scenarios
