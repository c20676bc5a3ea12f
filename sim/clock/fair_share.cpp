#include "sim/clock/fair_share.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {
namespace {

__extension__ using Wide = __int128;

constexpr int fraction_bits = 32;
constexpr Wide one = Wide{1} << fraction_bits;

// The rate at which `weight` takes `capacity`. Weights far below 1 allow more than a rate can be, and hold no one up:
// a flow has a link on which it weighs 1 or more.
Bandwidth level(Wide capacity, Wide weight) {
  constexpr Wide most = std::numeric_limits<std::int64_t>::max();
  return Bandwidth{static_cast<std::int64_t>(std::clamp<Wide>(capacity / weight, 1, most))};
}

}  // namespace

Bytes largest_load(std::span<const LinkLoad> loads) {
  Bytes largest;
  for (const LinkLoad& load : loads) largest = std::max(largest, load.bytes);
  return largest;
}

FairShare::FairShare(const std::vector<Bandwidth>& capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    ensure(capacities[i] > Bandwidth{}, "a link has a capacity");
    links_[i].capacity = capacities[i].count() * one;
  }
}

FlowId FairShare::add(std::span<const LinkLoad> loads) {
  const Bytes size = largest_load(loads);
  ensure(size > Bytes{}, "a flow puts bytes on a link");
  if (free_.empty()) {
    free_.push_back({static_cast<std::int32_t>(flows_.size())});
    flows_.emplace_back();
  }
  const FlowId id = free_.back();
  free_.pop_back();

  Flow& flow = at(id);
  for (const LinkLoad& load : loads) {
    ensure(load.bytes >= Bytes{} && load.sharers > 0, "a load is some bytes of some sharers");
    if (load.bytes == Bytes{}) continue;
    const Wide share = load.bytes == size ? one : (load.bytes.count() * one + size.count() - 1) / size.count();
    const std::int64_t weight = static_cast<std::int64_t>(share) * load.sharers;  // below 2^32 · 2^31
    Link& link = at(load.link);
    flow.loads.push_back({weight, load.link, static_cast<std::int32_t>(link.members.size())});
    link.members.push_back({id, static_cast<std::int32_t>(flow.loads.size() - 1)});
    link.weight += weight;
    touch(load.link);
  }
  return id;
}

void FairShare::remove(FlowId id) {
  Flow& flow = at(id);
  ensure(!flow.loads.empty(), "a flow that is removed is there");
  for (const Load& load : flow.loads) {
    Link& link = at(load.link);
    const Member last = link.members.back();  // takes the place that becomes free
    link.members[static_cast<std::size_t>(load.member)] = last;
    at(last.flow).loads[static_cast<std::size_t>(last.load)].member = load.member;
    link.members.pop_back();
    link.weight -= load.weight;
    touch(load.link);
  }
  flow.loads.clear();
  flow.rate = {};
  free_.push_back(id);
}

void FairShare::touch(LinkId id) {
  if (!std::exchange(at(id).touched, true)) touched_.push_back(id);
}

std::span<const FlowId> FairShare::settle() {
  ++epoch_;
  changed_.clear();
  for (const LinkId link : touched_) {
    at(link).touched = false;
    if (at(link).gathered == epoch_ || at(link).members.empty()) continue;
    const FlowId flow = at(link).members.front().flow;
    if (is_alone(flow)) {
      run_alone(flow);
      continue;
    }
    gather(link);
    if (component_flows_.size() == 1)  // more than once on a link
      run_alone(flow);
    else
      fill();
  }
  touched_.clear();
  std::sort(changed_.begin(), changed_.end());
  return changed_;
}

// All flows and links that can be reached from a link.
void FairShare::gather(LinkId from) {
  component_links_.clear();
  component_flows_.clear();
  visit(from);
  for (std::size_t i = 0; i < component_links_.size(); ++i) {
    for (const Member& member : at(component_links_[i]).members) {
      Flow& flow = at(member.flow);
      if (std::exchange(flow.gathered, epoch_) == epoch_) continue;
      component_flows_.push_back(member.flow);
      for (const Load& load : flow.loads) visit(load.link);
    }
  }
}

void FairShare::visit(LinkId link) {
  if (std::exchange(at(link).gathered, epoch_) != epoch_) component_links_.push_back(link);
}

bool FairShare::is_alone(FlowId flow) const {
  const std::vector<Load>& loads = flows_[flow.index()].loads;
  return std::all_of(loads.begin(), loads.end(),
                     [&](const Load& load) { return links_[load.link.index()].members.size() == 1; });
}

void FairShare::run_alone(FlowId flow) {
  Bandwidth lowest{std::numeric_limits<std::int64_t>::max()};
  for (const Load& load : at(flow).loads) {
    Link& link = at(load.link);
    link.gathered = epoch_;
    lowest = std::min(lowest, level_of(link));
  }
  set_rate(flow, lowest);
}

// Without anyone frozen. The same flows come again and again, and a division takes longer than all else.
Bandwidth FairShare::level_of(Link& link) {
  if (std::exchange(link.last_weight, link.weight) != link.weight) link.last_level = level(link.capacity, link.weight);
  return link.last_level;
}

// Progressive filling of a component.
void FairShare::fill() {
  filling_.clear();
  for (const LinkId id : component_links_) {
    Link& link = at(id);
    link.left = link.capacity;
    link.growing = link.weight;
    if (link.growing > 0) filling_.push_back({level_of(link), id});
  }
  std::make_heap(filling_.begin(), filling_.end(), fills_later);

  for (std::size_t growing = component_flows_.size(); growing > 0;) {
    const Bandwidth rate = fill_next_links();
    for (const LinkId full : full_) {
      for (const Member& member : at(full).members) {
        Flow& flow = at(member.flow);
        if (std::exchange(flow.frozen, epoch_) == epoch_) continue;
        for (const Load& load : flow.loads) {
          at(load.link).left -= Wide{load.weight} * rate.count();
          at(load.link).growing -= load.weight;
        }
        set_rate(member.flow, rate);
        --growing;
      }
    }
  }
}

// The links that are full next, into `full_`, and the level at which they are. A flow that freezes below the level of a
// link leaves more to the others on it: levels only rise, and one in the heap that is out of date is too low.
Bandwidth FairShare::fill_next_links() {
  full_.clear();
  Bandwidth lowest;
  while (!filling_.empty() && (full_.empty() || filling_.front().level == lowest)) {
    std::pop_heap(filling_.begin(), filling_.end(), fills_later);
    Filling& next = filling_.back();
    const Link& link = at(next.link);
    if (link.growing == 0) {
      filling_.pop_back();
      continue;
    }
    const Bandwidth now = level(link.left, link.growing);
    if (now > next.level) {
      next.level = now;
      std::push_heap(filling_.begin(), filling_.end(), fills_later);
      continue;
    }
    lowest = now;
    full_.push_back(next.link);
    filling_.pop_back();
  }
  return lowest;
}

void FairShare::set_rate(FlowId id, Bandwidth rate) {
  if (std::exchange(at(id).rate, rate) != rate) changed_.push_back(id);
}

Bandwidth FairShare::use(LinkId id) const {
  Wide used = 0;
  for (const Member& member : links_[id.index()].members) {
    const Flow& flow = flows_[member.flow.index()];
    used += Wide{flow.loads[static_cast<std::size_t>(member.load)].weight} * flow.rate.count();
  }
  return Bandwidth{static_cast<std::int64_t>((used + one - 1) >> fraction_bits)};
}

}  // namespace tidemark::sim
