#include "kernels/execute/host_backend.hpp"

#include <utility>

#include <fmt/format.h>

namespace tidemark {

HostBackend::HostBackend(World& world, std::int32_t buffers, PageScale scale, Narrator narrator)
    : world_(world), scale_(scale), memory_(buffers, scale), collectives_(world), narrator_(std::move(narrator)) {}

void HostBackend::check(StreamId, std::span<const Reading> readings) {
  for (const Reading& reading : readings) {
    const std::span<const std::uint64_t> words = memory_.words(reading.buffer);
    const auto wrong = [&]() -> std::string {
      for (const ContentRun& run : reading.expected) {
        if (run.end > static_cast<std::int64_t>(words.size())) return "it is too small";
        for (std::int64_t i = run.first(); i < run.end; i += run.grid) {
          const std::uint64_t found = words[static_cast<std::size_t>(i)];
          if (found != run.at(i))
            return fmt::format("word {} is {}; expected {}", i, narrator_.author(found), narrator_.author(run.at(i)));
        }
      }
      return {};
    }();
    if (!wrong.empty())
      findings_.add(
          fmt::format("rank {}, {}: {}", world_.rank().value, narrator_.reading(reading.op, reading.buffer), wrong));
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
                             Bytes size, const std::string& doing) {
  collectives_.run(group, kind, memory_.words(in), memory_.words(out), scale_.words(size), doing);
}

void HostBackend::exchange(StreamId, CommSlot, const Group& group, std::span<const Delivery> deliveries,
                           const std::string& doing) {
  std::vector<Message> messages;
  for (const Delivery& delivery : deliveries) {
    const std::span<std::uint64_t> words = memory_.words(delivery.buffer);
    messages.push_back({delivery.direction, delivery.peer, group.tag, words.data(), words.size_bytes()});
  }
  world_.exchange(messages, doing);
}

}  // namespace tidemark
