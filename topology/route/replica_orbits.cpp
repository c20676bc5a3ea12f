#include "topology/route/replica_orbits.hpp"

#include <array>
#include <numeric>
#include <unordered_map>

#include "sim/base/hash.hpp"

namespace tidemark::topology {
namespace {

enum class GroupSpan : std::uint8_t { OneReplica, AllReplicas, SomeReplicas };

// How groups that differ along `axis` lie to replicas, which differ in rank / run % replicas.
GroupSpan span_of(const GroupAxis& axis, std::int64_t run, std::int64_t replicas) {
  const std::int64_t from = axis.stride;
  const std::int64_t to = from * ((axis.size - 1) * axis.step + 1);  // it is about rank % to / from
  if (to == from || run % to == 0 || from % (run * replicas) == 0) return GroupSpan::OneReplica;
  if (axis.step == 1 && run % from == 0 && to % (run * replicas) == 0) return GroupSpan::AllReplicas;
  return GroupSpan::SomeReplicas;
}

// The first of each number: how often it is there. The others: 0, and where their first is.
struct Firsts {
  std::vector<std::int32_t> counts, first;
};
Firsts firsts(std::span<const std::uint64_t> numbers) {
  Firsts found{std::vector<std::int32_t>(numbers.size(), 0), {}};
  std::unordered_map<std::uint64_t, std::int32_t> known;
  for (const std::uint64_t number : numbers) {
    const auto place = static_cast<std::int32_t>(found.first.size());
    found.first.push_back(known.try_emplace(number, place).first->second);
    ++found.counts[static_cast<std::size_t>(found.first.back())];
  }
  return found;
}

bool leaf(LinkType type) { return type == LinkType::LeafUp || type == LinkType::LeafDown; }

}  // namespace

std::optional<ReplicaOrbits> ReplicaOrbits::along(const GroupAxis& axis, const Workload& workload, const Fabric& fabric,
                                                  const std::vector<bool>& messages) {
  const std::int64_t length = std::int64_t{axis.stride} * axis.size;
  if (axis.step != 1 || workload.world_size() % length != 0) return {};
  // So many coordinates fill whole nodes or leaves.
  const auto filling = [&](std::int32_t devices) { return devices / std::gcd(devices, axis.stride); };
  const std::int32_t replica = filling(fabric.node.devices);
  if (axis.size % replica != 0 || axis.size == replica) return {};
  ReplicaOrbits replicas(fabric);
  replicas.run_ = axis.stride * replica;
  replicas.replicas_ = axis.size / replica;
  replicas.rounds_ = static_cast<std::int32_t>(workload.world_size() / length);
  if (fabric.shape.kind == FabricKind::LeafSpine) {
    const std::int32_t block = filling(fabric.node.devices * fabric.shape.nodes_per_leaf);
    if (axis.size % block == 0) replicas.blocks_ = axis.size / block;
  }
  for (std::size_t slot = 0; slot < workload.communicators.size(); ++slot) {
    bool spanned = false;
    for (const GroupAxis& other : workload.communicators[slot].axes) {
      const GroupSpan how = span_of(other, replicas.run_, replicas.replicas_);
      if (how == GroupSpan::SomeReplicas) return {};
      spanned |= how == GroupSpan::AllReplicas;
    }
    if (spanned && messages[slot]) return {};
    replicas.spanned_.push_back(spanned);
  }
  replicas.signatures_.assign(static_cast<std::size_t>(replicas.replicas_), 0);
  replicas.leaf_signatures_.assign(static_cast<std::size_t>(replicas.blocks_), 0);
  return replicas;
}

std::vector<Rank> ReplicaOrbits::first_ranks() const {
  std::vector<Rank> ranks;
  for (std::int32_t round = 0; round < rounds_; ++round)
    for (std::int32_t i = 0; i < run_; ++i) ranks.push_back({round * replicas_ * run_ + i});
  return ranks;
}

ReplicaOrbits::Runs ReplicaOrbits::runs(LinkType type) const {
  const auto t = static_cast<std::size_t>(type);
  Runs found{fabric_->first[t], fabric_->first[t + 1], 1, replicas_, leaf(type)};
  const std::int32_t count = found.last - found.first;
  if (count == 0) return found;
  if (found.leaves && blocks_ == 1) return {found.first, found.last, count, 1, true};
  if (found.leaves) found.units = blocks_;
  found.run = count / (found.units * rounds_);
  return found;
}

void ReplicaOrbits::refine(std::span<const std::int32_t> number_of_rank) {
  std::size_t r = 0;
  for (std::int32_t round = 0; round < rounds_; ++round) {
    for (std::uint64_t& signature : signatures_) {
      std::uint64_t sequence = signature;
      for (std::int32_t i = 0; i < run_; ++i)
        sequence = mixed(sequence ^ static_cast<std::uint64_t>(number_of_rank[r++]));
      signature = sequence;
    }
  }
}

void ReplicaOrbits::refine(const CollectivePlan& plan, std::int32_t nodes) {
  std::vector<std::uint64_t> sums(signatures_.size(), 0), leaf_sums(leaf_signatures_.size(), 0);
  const std::array<std::int32_t, link_types> shift = link_id_strides(*fabric_, nodes);
  // Parts come link by link: unit by unit.
  std::int32_t from = 0, to = 0;  // LinkIds, before the shift
  std::uint64_t* sum = nullptr;
  std::uint64_t place = 0;  // of `from`
  for (const CollectivePlan::Part& part : plan.links) {
    const std::int32_t link = part.link.value;
    if (link < from || link >= to) {
      const LinkType type = (*fabric_)[part.link].type;
      const std::int32_t by = shift[static_cast<std::size_t>(type)];
      const Runs its = runs(type);
      const std::int32_t nth = (link + by - its.first) / its.run;
      from = its.first + nth * its.run - by;
      to = from + its.run;
      const auto unit = static_cast<std::size_t>(nth % its.units);
      sum = its.leaves ? &leaf_sums[unit] : &sums[unit];
      place = hash_of(type, nth / its.units);
    }
    *sum += mixed(mixed(place + static_cast<std::uint64_t>(link - from)) + static_cast<std::uint64_t>(part.parts));
  }
  for (std::size_t c = 0; c < signatures_.size(); ++c) signatures_[c] = mixed(signatures_[c] ^ sums[c]);
  for (std::size_t b = 0; b < leaf_signatures_.size(); ++b)
    leaf_signatures_[b] = mixed(leaf_signatures_[b] ^ leaf_sums[b]);
}

// The leaves that a replica's nodes hang on.
std::uint64_t ReplicaOrbits::leaves_of(std::int32_t replica) const {
  std::uint64_t hash = 0;
  if (fabric_->shape.kind != FabricKind::LeafSpine) return hash;
  const std::int32_t nodes = run_ / fabric_->node.devices;
  for (std::int32_t round = 0; round < rounds_; ++round)
    for (std::int32_t n = 0; n < nodes; ++n)
      hash = mixed(hash ^ static_cast<std::uint64_t>(((round * replicas_ + replica) * nodes + n) /
                                                     fabric_->shape.nodes_per_leaf));
  return hash;
}

ReplicaOrbits::Counts ReplicaOrbits::counts() const {
  const auto width = static_cast<std::size_t>(replicas_ / blocks_);
  std::vector<std::uint64_t> signatures;
  for (std::size_t b = 0; b < leaf_signatures_.size(); ++b) {
    std::uint64_t signature = leaf_signatures_[b];
    for (std::size_t c = b * width; c < (b + 1) * width; ++c) signature = mixed(signature ^ signatures_[c]);
    signatures.push_back(signature);
  }
  const Firsts blocks = firsts(signatures);
  Counts found{std::vector<std::int32_t>(signatures_.size(), 0), std::vector<std::int32_t>(signatures_.size(), 0),
               blocks.counts};
  for (std::size_t b = 0; b < leaf_signatures_.size(); ++b) {
    const std::size_t begin = b * width;
    const auto stand_in = static_cast<std::size_t>(blocks.first[b]) * width;
    if (stand_in != begin) {
      for (std::size_t c = 0; c < width; ++c) found.first[begin + c] = found.first[stand_in + c];
      continue;
    }
    signatures.clear();
    for (std::size_t c = begin; c < begin + width; ++c)
      signatures.push_back(hash_of(signatures_[c], leaves_of(static_cast<std::int32_t>(c))));
    const Firsts replicas = firsts(signatures);
    for (std::size_t c = 0; c < width; ++c) {
      found.of[begin + c] = replicas.counts[c] * blocks.counts[b];
      found.first[begin + c] = static_cast<std::int32_t>(begin) + replicas.first[c];
    }
  }
  return found;
}

Symmetry ReplicaOrbits::symmetry() const {
  const Counts counted = counts();
  Symmetry found;
  found.spanned = spanned_;
  found.orbit_of_rank.reserve(static_cast<std::size_t>(run_ * replicas_ * rounds_));
  for (std::int32_t round = 0; round < rounds_; ++round) {
    for (std::int32_t c = 0; c < replicas_; ++c) {
      const std::int32_t size = counted.of[static_cast<std::size_t>(c)];
      const std::int32_t stand_in = round * replicas_ + counted.first[static_cast<std::size_t>(c)];
      for (std::int32_t i = 0; i < run_; ++i) {
        if (size > 0) {
          found.orbit_of_rank.push_back(static_cast<std::int32_t>(found.ranks.size()));
          found.ranks.push_back({(round * replicas_ + c) * run_ + i});
          found.sizes.push_back(size);
        } else {
          found.orbit_of_rank.push_back(found.orbit_of_rank[static_cast<std::size_t>(stand_in * run_ + i)]);
        }
      }
    }
  }
  return found;
}

std::vector<std::int32_t> ReplicaOrbits::link_orbits() const {
  const Counts counted = counts();
  std::vector<std::int32_t> sizes;
  sizes.reserve(fabric_->links.size());
  for (std::size_t t = 0; t < link_types; ++t) {
    const Runs its = runs(static_cast<LinkType>(t));
    for (std::int32_t nth = 0; sizes.size() < static_cast<std::size_t>(its.last); ++nth) {
      const auto unit = static_cast<std::size_t>(nth % its.units);
      sizes.insert(sizes.end(), static_cast<std::size_t>(its.run),
                   its.leaves ? counted.blocks[unit] : counted.of[unit]);
    }
  }
  return sizes;
}

}  // namespace tidemark::topology
