#include "kernels/execute/host_backend.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tidemark::execute {
namespace {

struct Mistake {
  std::int64_t word = 0;  // past the end where there are too few
  std::uint64_t expected = 0;
};

std::optional<Mistake> first_mistake(std::span<const std::uint64_t> words, const Content& expected) {
  for (const ContentRun& run : expected)
    for (std::int64_t i = run.first(); i < run.end; i += run.grid)
      if (i >= static_cast<std::int64_t>(words.size()) || words[static_cast<std::size_t>(i)] != run.at(i))
        return Mistake{i, run.at(i)};
  return std::nullopt;
}

}  // namespace

HostBackend::HostBackend(World& world, std::int32_t buffers, PageScale scale, Narrator narrator)
    : world_(world), scale_(scale), memory_(buffers, scale), collectives_(world), narrator_(std::move(narrator)) {}

void HostBackend::check(StreamId, std::span<const Reading> readings) {
  for (const Reading& reading : readings) {
    const std::span<const std::uint64_t> words = memory_.words(reading.buffer);
    const std::optional<Mistake> mistake = first_mistake(words, reading.expected);
    if (!mistake) continue;
    // Authors are looked for in all programs: not for what nobody will see.
    std::string what;
    if (findings_.first.size() < Findings::most)
      what = fmt::format("rank {}, {}: {}", world_.rank().value, narrator_.reading(reading.op, reading.buffer),
                         mistake->word >= static_cast<std::int64_t>(words.size())
                             ? "it is too small"
                             : fmt::format("word {} is {}; expected {}", mistake->word,
                                           narrator_.author(words[static_cast<std::size_t>(mistake->word)]),
                                           narrator_.author(mistake->expected)));
    findings_.add(what);
  }
}

void HostBackend::launch(StreamId stream, const Kernel&, std::span<const Reading> readings,
                         std::span<const Writing> writings) {
  check(stream, readings);
  for (const Writing& writing : writings) {
    const std::span<std::uint64_t> words = memory_.words(writing.buffer);
    for (const ContentRun& run : stamped(writing.stamp, static_cast<std::int64_t>(words.size())))
      for (std::int64_t i = run.first(); i < run.end; i += run.grid) words[static_cast<std::size_t>(i)] = run.at(i);
  }
}

void HostBackend::collective(StreamId, CommSlot, const Group& group, CollectiveKind kind, BufferId in, BufferId out,
                             const Parts& parts, const std::string& doing) {
  collectives_.run(group, kind, memory_.words(in), memory_.words(out), parts, doing);
}

void HostBackend::copy(StreamId, BufferId from, BufferId to, const Moved& moved) {
  std::copy_n(memory_.words(from).begin() + moved.from, moved.words, memory_.words(to).begin() + moved.to);
}

void HostBackend::exchange(StreamId, CommSlot, const Group& group, std::span<const Delivery> deliveries,
                           const std::string& doing) {
  std::vector<Message> messages;
  for (const Delivery& delivery : deliveries) {
    const Transfer& t = delivery.transfer;
    const std::span<std::uint64_t> all = memory_.words(t.buffer);
    const auto length = static_cast<std::size_t>(part_words(std::ssize(all), t));
    const std::span<std::uint64_t> words = all.subspan(length * static_cast<std::size_t>(t.part), length);
    messages.push_back({t.direction, delivery.peer, group.tag, words.data(), words.size_bytes()});
  }
  world_.exchange(messages, doing);
}

}  // namespace tidemark::execute
