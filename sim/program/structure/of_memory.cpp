#include "sim/program/structure/of_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "sim/base/overloaded.hpp"

namespace tidemark::sim {

bool is_of_memory(const Op& op) {
  return std::visit(Overloaded{
                        [](const Alloc&) { return true; },
                        [](const Free&) { return true; },
                        [](const CreateDriver&) { return true; },
                        [](const CreateCommunicator&) { return true; },
                        [](const Mark&) { return true; },
                        [](const CrossStreamUse& o) { return o.recorded; },
                        [](const Launch&) { return false; },
                        [](const Collective&) { return false; },
                        [](const Exchange&) { return false; },
                        [](const Memcpy&) { return false; },
                        [](const Record&) { return false; },
                        [](const Wait&) { return false; },
                        [](const Sync&) { return false; },
                        [](const Bind&) { return false; },
                        [](const Unbind&) { return false; },
                    },
                    op);
}

MemoryOutline of_memory(const RepeatingProgram& whole) {
  const Program& rolled = whole.rolled;
  Program program;
  program.labels = rolled.labels;
  program.buffers = rolled.buffers;
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < rolled.ops.size(); ++i) {
    if (!is_of_memory(rolled.ops[i])) continue;
    program.ops.push_back(rolled.ops[i]);
    places.push_back(static_cast<std::uint32_t>(i));
  }
  std::vector<Repeat> repeats = repeats_among(whole.repeats, places);
  std::vector<std::uint32_t> all = written_out(places, repeats, whole.repeats);
  return {{std::move(program), std::move(repeats)}, std::move(all)};
}

std::vector<Repeat> repeats_among(std::vector<Repeat> repeats, std::span<const std::uint32_t> places) {
  for (Repeat& repeat : repeats)
    for (std::size_t* const op : {&repeat.before, &repeat.first, &repeat.last})
      *op = static_cast<std::size_t>(std::ranges::lower_bound(places, *op) - places.begin());
  return repeats;
}

std::vector<std::uint32_t> written_out(std::span<const std::uint32_t> places, std::span<const Repeat> repeats,
                                       std::span<const Repeat> of_whole) {
  std::vector<std::uint32_t> all;
  std::size_t next = 0;
  std::uint32_t later = 0;
  const auto add = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) all.push_back(places[i] + later);
  };
  for (std::size_t r = 0; r < repeats.size(); ++r) {
    add(next, repeats[r].last);
    for (std::int64_t n = 0; n < repeats[r].more; ++n) {
      later += static_cast<std::uint32_t>(of_whole[r].last - of_whole[r].first);
      add(repeats[r].first, repeats[r].last);
    }
    next = repeats[r].last;
  }
  add(next, places.size());
  return all;
}

}  // namespace tidemark::sim
