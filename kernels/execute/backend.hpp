#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/execute/content.hpp"
#include "kernels/execute/world/host_collectives.hpp"
#include "sim/program/kernel.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// An op reads what should be there, or leaves its stamp.
struct Reading {
  BufferId buffer;
  Content expected;
  std::size_t op = 0;
};
struct Writing {
  BufferId buffer;
  std::uint64_t stamp = 0;
};

/// One side of an exchange, its peer named.
struct Delivery {
  Transfer transfer;
  Rank peer;
};

/// How a back end speaks of what is wrong.
struct Narrator {
  std::function<std::string(std::size_t op, BufferId buffer)> reading;  ///< who reads what
  std::function<std::string(std::uint64_t word)> author;                ///< who wrote a word
};

/// Payloads that are not what they should be: how many, and the first of them in words.
struct Findings {
  std::int64_t count = 0;
  std::vector<std::string> first;
  static constexpr std::size_t most = 5;

  void add(const std::string& what) {
    if (first.size() < most) first.push_back(what);
    ++count;
  }
};

/// What a program's ops run on: memory, streams, and a way to the other ranks. What is wrong with payloads is found by
/// the time `finish` returns. Failures throw.
template <class B>
concept Backend = requires(B& b, const B& idle, BufferId buffer, Bytes size, StreamId stream, EventId event,
                           const Kernel& kernel, const Group& group, CollectiveKind kind, const Parts& parts,
                           CommSlot slot, std::span<const Reading> readings, std::span<const Writing> writings,
                           std::span<const Delivery> deliveries, DriverResource resource, MemorySpace space,
                           const Moved& moved, const std::string& doing) {
  b.allocate(buffer, size, stream, space);
  b.release(buffer);
  b.cross_stream_use(buffer, stream);  ///< the release waits for what that stream has been given
  b.launch(stream, kernel, readings, writings);
  b.check(stream, readings);
  b.collective(stream, slot, group, kind, buffer, buffer, parts, doing);
  b.exchange(stream, slot, group, deliveries, doing);
  b.copy(stream, buffer, buffer, moved);  ///< between the device and the host
  b.record(event, stream);
  b.wait(stream, event);
  b.sync(event);
  b.create(resource);
  b.create(slot, group);
  b.finish();
  { idle.allocated() } -> std::same_as<Bytes>;  ///< blocks in use on the device, in the job's bytes
  { idle.reserved() } -> std::same_as<Bytes>;   ///< its segments, in the job's bytes
  { b.findings() } -> std::same_as<const Findings&>;
};

}  // namespace tidemark::execute
