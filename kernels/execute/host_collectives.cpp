#include "kernels/execute/host_collectives.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "kernels/execute/content.hpp"

namespace tidemark::execute {
namespace {

constexpr std::int64_t chunk_words = 32 * 1024;  // 256 KiB: stays in a core's cache

std::span<std::uint64_t> part_of(std::span<std::uint64_t> words, std::int64_t from, std::int64_t count) {
  return words.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count));
}

// Calls `step(from, count)` for chunk after chunk.
template <class Step>
void in_chunks(std::int64_t words, std::int64_t chunk, Step&& step) {
  for (std::int64_t from = 0; from < words; from += chunk) step(from, std::min(chunk, words - from));
}

}  // namespace

HostCollectives::HostCollectives(World& world) : world_(world), partial_(chunk_words), incoming_(chunk_words) {}

Bytes HostCollectives::held() const {
  return Bytes{static_cast<std::int64_t>(2 * chunk_words * sizeof(std::uint64_t))};
}

void HostCollectives::pass_on(const Group& group, Words send, Words receive, const std::string& doing) {
  const std::array messages{
      Message{Direction::Send, group.at(group.me + 1), group.tag, send.data(), send.size_bytes()},
      Message{Direction::Receive, group.at(group.me - 1), group.tag, receive.data(), receive.size_bytes()}};
  world_.exchange(messages, doing);
}

template <class Part>
HostCollectives::Words HostCollectives::sum_round_the_ring(const Group& group, Part&& part, const std::string& doing) {
  // Part p starts at the rank after p and comes round to p.
  const Words first = part((group.me - 1 + group.size()) % group.size());
  const Words partial = Words(partial_).first(first.size()), incoming = Words(incoming_).first(first.size());
  std::copy(first.begin(), first.end(), partial.begin());
  for (std::int64_t hop = 2; hop <= group.size(); ++hop) {
    pass_on(group, partial, incoming, doing);
    const Words mine = part((group.me - hop + group.size()) % group.size());
    for (std::size_t i = 0; i < partial.size(); ++i) partial[i] = incoming[i] + mine[i];
  }
  return partial;
}

void HostCollectives::reduce_scatter(const Group& group, Words in, Words out, std::int64_t part,
                                     const std::string& doing) {
  in_chunks(part, chunk_words, [&](std::int64_t from, std::int64_t count) {
    const Words sum = sum_round_the_ring(
        group, [&](std::int64_t p) { return part_of(in, p * part + from, count); }, doing);
    std::copy(sum.begin(), sum.end(), part_of(out, from, count).begin());
  });
}

void HostCollectives::all_gather(const Group& group, Words all, std::int64_t part, const std::string& doing) {
  in_chunks(part, chunk_words, [&](std::int64_t from, std::int64_t count) {
    for (std::int64_t hop = 0; hop + 1 < group.size(); ++hop) {
      const std::int64_t send = (group.me - hop + group.size()) % group.size();
      const std::int64_t receive = (send - 1 + group.size()) % group.size();
      pass_on(group, part_of(all, send * part + from, count), part_of(all, receive * part + from, count), doing);
    }
  });
}

void HostCollectives::all_reduce(const Group& group, Words in, Words out, const std::string& doing) {
  const std::int64_t n = group.size();
  in_chunks(static_cast<std::int64_t>(in.size()), n * chunk_words, [&](std::int64_t block, std::int64_t length) {
    // Parts of equal length, and a rest that goes round as a chunk of its own.
    const std::int64_t part = length / n, rest = length % n;
    const Words from = part_of(in, block, part * n), to = part_of(out, block, part * n);
    if (part > 0) {
      reduce_scatter(group, from, part_of(to, group.me * part, part), part, doing);
      all_gather(group, to, part, doing);
    }
    if (rest == 0) return;
    const Words last = part_of(in, block + part * n, rest);
    const Words sum = sum_round_the_ring(
        group, [&](std::int64_t) { return last; }, doing);
    std::copy(sum.begin(), sum.end(), part_of(out, block + part * n, rest).begin());
  });
}

void HostCollectives::broadcast(const Group& group, Words all, const std::string& doing) {
  in_chunks(static_cast<std::int64_t>(all.size()), chunk_words, [&](std::int64_t from, std::int64_t count) {
    const Words chunk = part_of(all, from, count);
    const Message receive{Direction::Receive, group.at(group.me - 1), group.tag, chunk.data(), chunk.size_bytes()};
    const Message send{Direction::Send, group.at(group.me + 1), group.tag, chunk.data(), chunk.size_bytes()};
    if (group.me > 0) world_.exchange(std::array{receive}, doing);
    if (group.me + 1 < group.size()) world_.exchange(std::array{send}, doing);
  });
}

void HostCollectives::all_to_all(const Group& group, Words in, Words out, std::int64_t part, const std::string& doing) {
  for (std::int64_t step = 0; step < group.size(); ++step) {
    const std::int64_t to = (group.me + step) % group.size();
    const std::int64_t from = (group.me - step + group.size()) % group.size();
    const Words sent = part_of(in, to * part, part), received = part_of(out, from * part, part);
    if (step == 0) {
      std::copy(sent.begin(), sent.end(), received.begin());
      continue;
    }
    world_.exchange(
        std::array{Message{Direction::Send, group.at(to), group.tag, sent.data(), sent.size_bytes()},
                   Message{Direction::Receive, group.at(from), group.tag, received.data(), received.size_bytes()}},
        doing);
  }
}

void HostCollectives::run(const Group& group, CollectiveKind kind, Words in, Words out, std::int64_t whole,
                          const std::string& doing) {
  const std::int64_t part = shard_words(whole, group.size());
  const bool in_place = in.data() == out.data();
  const std::int64_t needed_in = kind == CollectiveKind::AllGather && !in_place ? part
                                 : kind == CollectiveKind::Broadcast            ? 0
                                                                                : whole;
  const std::int64_t needed_out = kind == CollectiveKind::ReduceScatter && !in_place ? part : whole;
  if (static_cast<std::int64_t>(in.size()) < needed_in || static_cast<std::int64_t>(out.size()) < needed_out)
    throw std::runtime_error(doing + ": a buffer is too small for its part");
  switch (kind) {
    case CollectiveKind::AllReduce:
      return all_reduce(group, part_of(in, 0, whole), part_of(out, 0, whole), doing);
    case CollectiveKind::ReduceScatter:
      return reduce_scatter(group, part_of(in, 0, part * group.size()),
                            part_of(out, in_place ? group.me * part : 0, part), part, doing);
    case CollectiveKind::AllGather: {
      const Words all = part_of(out, 0, part * group.size());
      const Words mine = part_of(all, group.me * part, part);
      if (!in_place) std::memcpy(mine.data(), in.data(), mine.size_bytes());
      return all_gather(group, all, part, doing);
    }
    case CollectiveKind::Broadcast:
      if (!in_place && group.me == 0) std::memcpy(out.data(), in.data(), static_cast<std::size_t>(whole) * 8);
      return broadcast(group, part_of(out, 0, whole), doing);
    case CollectiveKind::AllToAll:
      if (in_place) throw std::runtime_error(doing + ": an all-to-all cannot run in place");
      return all_to_all(group, in, out, part, doing);
  }
}

}  // namespace tidemark::execute
