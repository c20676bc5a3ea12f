#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/execute/parts.hpp"
#include "kernels/execute/world/world.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// A rank's place among those that it meets.
struct Group {
  std::vector<Rank> members;
  std::int64_t me = 0;
  std::int32_t tag = World::first_payload_tag;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(members.size()); }
  [[nodiscard]] Rank at(std::int64_t place) const {
    const std::int64_t n = size();
    return members[static_cast<std::size_t>((place % n + n) % n)];
  }
};

/// Collectives as rings of our own, whose temporaries are these two chunks and nothing else: MPI's would hide payloads
/// of their own size. Words are added modulo 2^64.
class HostCollectives {
 public:
  explicit HostCollectives(World& world);

  /// `in` and `out` may be one.
  void run(const Group& group, CollectiveKind kind, std::span<std::uint64_t> in, std::span<std::uint64_t> out,
           const Parts& parts, const std::string& doing);

  /// Memory of the chunks.
  [[nodiscard]] Bytes held() const;

 private:
  using Words = std::span<std::uint64_t>;

  void all_reduce(const Group& group, Words in, Words out, const std::string& doing);
  void reduce_scatter(const Group& group, Words in, Words out, const Cut& cut, const std::string& doing);
  void all_gather(const Group& group, Words all, const Cut& cut, const std::string& doing);
  void broadcast(const Group& group, Words all, const std::string& doing);
  void all_to_all(const Group& group, Words in, Words out, const Parts& parts, const std::string& doing);
  // The sum of every member's words at the place that `mine` has for part p, at the member p, in `partial_`. `part(p)`
  // is this rank's input to it, as long on every rank.
  template <class Part>
  Words sum_round_the_ring(const Group& group, Part&& part, const std::string& doing);
  void pass_on(const Group& group, Words send, Words receive, const std::string& doing);

  World& world_;
  std::vector<std::uint64_t> partial_, incoming_;
};

}  // namespace tidemark::execute
