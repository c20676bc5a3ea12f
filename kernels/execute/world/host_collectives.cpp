#include "kernels/execute/world/host_collectives.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace tidemark::execute {
namespace {

constexpr std::int64_t chunk_words = 32 * 1024;  // 256 KiB: stays in a core's cache

std::span<std::uint64_t> part_of(std::span<std::uint64_t> words, std::int64_t from, std::int64_t count) {
  return words.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count));
}

// Words [from, from + count) of a part, or as many of them as it has.
std::span<std::uint64_t> chunk_of(std::span<std::uint64_t> words, const Cut& cut, std::int64_t place, std::int64_t from,
                                  std::int64_t count) {
  const std::int64_t begin = std::min(from, cut.size(place)), end = std::min(from + count, cut.size(place));
  return part_of(words, cut.begin(place) + begin, end - begin);
}

Cut even(std::int64_t part, std::int64_t members) {
  return Cut(std::vector<std::int64_t>(static_cast<std::size_t>(members), part));
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
  Words partial = Words(partial_).first(first.size());
  std::copy(first.begin(), first.end(), partial.begin());
  for (std::int64_t hop = 2; hop <= group.size(); ++hop) {
    const Words mine = part((group.me - hop + group.size()) % group.size());
    const Words incoming = Words(incoming_).first(mine.size());
    pass_on(group, partial, incoming, doing);
    partial = Words(partial_).first(mine.size());
    for (std::size_t i = 0; i < partial.size(); ++i) partial[i] = incoming[i] + mine[i];
  }
  return partial;
}

void HostCollectives::reduce_scatter(const Group& group, Words in, Words out, const Cut& cut,
                                     const std::string& doing) {
  in_chunks(cut.largest(), chunk_words, [&](std::int64_t from, std::int64_t count) {
    const Words sum = sum_round_the_ring(
        group, [&](std::int64_t p) { return chunk_of(in, cut, p, from, count); }, doing);
    std::copy(sum.begin(), sum.end(), part_of(out, std::min(from, cut.size(group.me)), std::ssize(sum)).begin());
  });
}

void HostCollectives::all_gather(const Group& group, Words all, const Cut& cut, const std::string& doing) {
  in_chunks(cut.largest(), chunk_words, [&](std::int64_t from, std::int64_t count) {
    for (std::int64_t hop = 0; hop + 1 < group.size(); ++hop) {
      const std::int64_t send = (group.me - hop + group.size()) % group.size();
      const std::int64_t receive = (send - 1 + group.size()) % group.size();
      pass_on(group, chunk_of(all, cut, send, from, count), chunk_of(all, cut, receive, from, count), doing);
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
      const Cut cut = even(part, n);
      reduce_scatter(group, from, part_of(to, group.me * part, part), cut, doing);
      all_gather(group, to, cut, doing);
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

void HostCollectives::all_to_all(const Group& group, Words in, Words out, const Parts& parts,
                                 const std::string& doing) {
  for (std::int64_t step = 0; step < group.size(); ++step) {
    const std::int64_t to = (group.me + step) % group.size();
    const std::int64_t from = (group.me - step + group.size()) % group.size();
    const Words sent = part_of(in, parts.sends.begin(to), parts.sends.size(to));
    const Words received = part_of(out, parts.receives.begin(from), parts.receives.size(from));
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

void HostCollectives::run(const Group& group, CollectiveKind kind, Words in, Words out, const Parts& parts,
                          const std::string& doing) {
  const auto& [whole, sends, receives] = parts;
  const bool in_place = in.data() == out.data();
  const auto need = [&](Words words, std::int64_t count) {
    if (std::ssize(words) < count) throw std::runtime_error(doing + ": a buffer is too small for its part");
  };
  switch (kind) {
    case CollectiveKind::AllReduce:
      need(in, whole);
      need(out, whole);
      return all_reduce(group, part_of(in, 0, whole), part_of(out, 0, whole), doing);
    case CollectiveKind::ReduceScatter:
      need(in, sends.end());
      need(out, in_place ? sends.end() : sends.size(group.me));
      return reduce_scatter(group, part_of(in, 0, sends.end()),
                            part_of(out, in_place ? sends.begin(group.me) : 0, sends.size(group.me)), sends, doing);
    case CollectiveKind::AllGather: {
      need(in, in_place ? receives.end() : receives.size(group.me));
      need(out, receives.end());
      const Words mine = part_of(out, receives.begin(group.me), receives.size(group.me));
      if (!in_place) std::memcpy(mine.data(), in.data(), mine.size_bytes());
      return all_gather(group, part_of(out, 0, receives.end()), receives, doing);
    }
    case CollectiveKind::Broadcast:
      need(out, whole);
      if (!in_place && group.me == 0) std::memcpy(out.data(), in.data(), static_cast<std::size_t>(whole) * 8);
      return broadcast(group, part_of(out, 0, whole), doing);
    case CollectiveKind::AllToAll:
      need(in, sends.end());
      need(out, receives.end());
      if (in_place) throw std::runtime_error(doing + ": an all-to-all cannot run in place");
      return all_to_all(group, in, out, parts, doing);
  }
}

}  // namespace tidemark::execute
