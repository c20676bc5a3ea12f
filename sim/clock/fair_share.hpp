// Links shared by concurrent transfers, max-min fairly.
//
// A flow moves bytes on all its links in proportion. Its rate is that of its largest load, of S bytes; on a link that
// it loads with b bytes, shared by k flows like it, it uses k·b/S of its rate. All rates grow together until a link is
// full; the flows on it keep their rate, the others go on (progressive filling: Bertsekas & Gallager, Data Networks,
// 1992, section 6.5.2).
//
// All of it in integers, the same on every machine. A weight is k·⌈2³²·b/S⌉ in units of 2⁻³², a use is rate · weight,
// and sums of those are exact in 128 bits: k flows weigh exactly what one flow with k sharers does. The only rounding
// is that of weights (up, by less than 2⁻³² of the rate) and of rates (down, to whole bytes per second), so no link is
// ever exceeded. Links that fill at the same whole rate fill together, which makes the answer independent of all order:
//
//   every flow has a link on which no flow is faster, and which could not take all its fastest ones faster by 1 byte/s.
//
// A rate is never below 1 byte/s, so that every transfer ends. This alone can exceed a link: one that has less than
// 1 byte/s for each of its flows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "sim/clock/transfer.hpp"

namespace tidemark::sim {

using FlowId = Id<struct FlowKind>;  ///< a transfer that is under way; reused once it is removed

/// The bytes a flow's rate is in: what is left of them, over the rate, is how long it still takes.
Bytes largest_load(std::span<const LinkLoad> loads);

/// Flows come and go; `settle` brings the rates up to date, in those parts of the network that saw a change.
class FairShare {
 public:
  /// One capacity per link, each above zero.
  explicit FairShare(const std::vector<Bandwidth>& capacities);

  /// A flow puts bytes on at least one link. It has no rate until `settle`.
  FlowId add(std::span<const LinkLoad> loads);
  void remove(FlowId flow);

  /// Solves anew what shares links, directly or by way of others, with what was added or removed since the last call.
  /// The flows whose rate is now another, in order of id; valid until the next call.
  std::span<const FlowId> settle();

  /// As of the last `settle`; zero for a flow added since.
  [[nodiscard]] Bandwidth rate(FlowId flow) const { return flows_[flow.index()].rate; }

  /// What the flows there are now take of a link at their rates, rounded up.
  [[nodiscard]] Bandwidth use(LinkId link) const;

 private:
  __extension__ using Wide = __int128;  // weights, and bytes/s, in units of 2^-32

  struct Load {
    std::int64_t weight = 0;
    LinkId link;
    std::int32_t member = 0;  // where the flow stands among the members of the link
  };
  struct Flow {
    std::vector<Load> loads;  // none: the id is free
    Bandwidth rate;
    std::uint64_t gathered = 0;  // the last epoch in which its rate was sought
    std::uint64_t frozen = 0;    // and in which it was found
  };
  struct Member {
    FlowId flow;
    std::int32_t load = 0;  // where the link stands among the loads of the flow
  };
  struct Link {
    Wide capacity = 0;
    Wide weight = 0;  // of all members
    std::vector<Member> members;
    Wide left = 0;         // while filling: what the frozen members leave of the capacity
    Wide growing = 0;      // and the weight of the others
    Wide last_weight = 0;  // and the level of one of that weight
    Bandwidth last_level;
    std::uint64_t gathered = 0;
    bool touched = false;  // since the last `settle`
  };
  struct Filling {
    Bandwidth level;
    LinkId link;
  };
  static bool fills_later(const Filling& a, const Filling& b) { return a.level > b.level; }

  Link& at(LinkId link) { return links_[link.index()]; }
  Flow& at(FlowId flow) { return flows_[flow.index()]; }
  void touch(LinkId link);
  void gather(LinkId link);
  void visit(LinkId link);
  bool is_alone(FlowId flow) const;
  void run_alone(FlowId flow);
  static Bandwidth level_of(Link& link);
  void fill();
  Bandwidth fill_next_links();
  void set_rate(FlowId flow, Bandwidth rate);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowId> free_;
  std::vector<LinkId> touched_;
  std::vector<FlowId> changed_;
  std::uint64_t epoch_ = 0;  // one per `settle`

  // What shares links with what was touched: one connected component at a time.
  std::vector<LinkId> component_links_;
  std::vector<FlowId> component_flows_;
  std::vector<Filling> filling_;  // a heap, lowest level first
  std::vector<LinkId> full_;
};

}  // namespace tidemark::sim
