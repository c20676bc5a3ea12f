#include "kernels/execute/world/world.hpp"

#include <array>
#include <utility>

namespace tidemark::execute {
namespace {

constexpr std::int32_t barrier_tag = 0, length_tag = 1, text_tag = 2;

Message message(Direction direction, Rank peer, std::int32_t tag, const void* data, std::size_t bytes) {
  return {direction, peer, tag, const_cast<void*>(data), bytes};  // what is sent is only read
}

void send_text(World& world, Rank to, const std::string& text, const std::string& doing) {
  const std::uint64_t length = text.size();
  const std::array messages{message(Direction::Send, to, length_tag, &length, sizeof length),
                            message(Direction::Send, to, text_tag, text.data(), text.size())};
  world.exchange(messages, doing);
}

std::string receive_text(World& world, Rank from, const std::string& doing) {
  std::uint64_t length = 0;
  const std::array first{message(Direction::Receive, from, length_tag, &length, sizeof length)};
  world.exchange(first, doing);
  std::string text(length, '\0');
  const std::array second{message(Direction::Receive, from, text_tag, text.data(), text.size())};
  world.exchange(second, doing);
  return text;
}

}  // namespace

// Hensgen, Finkel & Manber, Two algorithms for barrier synchronization, 1988: round k tells the rank 2^k on.
void World::barrier() {
  char sent = 0, received = 0;
  for (std::int32_t step = 1; step < size(); step *= 2) {
    const Rank to{(rank().value + step) % size()}, from{(rank().value + size() - step) % size()};
    const std::array messages{message(Direction::Send, to, barrier_tag, &sent, 1),
                              message(Direction::Receive, from, barrier_tag, &received, 1)};
    exchange(messages, "a barrier");
  }
}

std::vector<std::string> World::gather(const std::string& mine) {
  const std::string doing = "gathering results";
  if (rank().value != 0) {
    send_text(*this, {0}, mine, doing);
    return {};
  }
  std::vector<std::string> all{mine};
  for (std::int32_t from = 1; from < size(); ++from) all.push_back(receive_text(*this, {from}, doing));
  return all;
}

std::string World::broadcast(std::string text) {
  const std::string doing = "hearing from rank 0";
  if (rank().value != 0) return receive_text(*this, {0}, doing);
  for (std::int32_t to = 1; to < size(); ++to) send_text(*this, {to}, text, doing);
  return text;
}

std::string World::first_said(const std::string& mine) {
  std::string first;
  for (const std::string& one : gather(mine))
    if (first.empty()) first = one;
  return broadcast(std::move(first));
}

}  // namespace tidemark::execute
