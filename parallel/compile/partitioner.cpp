#include "parallel/compile/partitioner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include "parallel/compile/minimum_cut.hpp"

namespace tidemark::parallel::compile {
namespace {

constexpr std::int64_t never = 1'000'000'000;  // as far from the backward pass as what it does not need

// MinCutOptions: what may not be computed twice.
struct Bans {
  bool used_far_apart = true, long_chains = true, materialized_backward = true;
  bool unlisted = true;                   ///< else what is intensive or random only
  std::vector<std::size_t> but_not = {};  ///< dont_ban
};

class Partitioner {
 public:
  explicit Partitioner(const JointGraph& graph, Bans bans = {})
      : graph_(graph), bans_(std::move(bans)), users_(graph.nodes.size()), banned_(users_.size()) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      for (const std::size_t input : graph.nodes[n].inputs) users_[input].push_back(n);
    classify();
    measure_distances();
  }

  std::vector<std::size_t> saved() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) place(n);
    if (bans_.used_far_apart) ban_what_is_used_far_apart();
    if (bans_.long_chains) ban_long_chains();
    const std::size_t count = graph_.nodes.size();
    const std::vector<bool> backward = sink_side(2 * count + 2, edges_, source(), sink());
    std::vector<std::size_t> found;
    for (std::size_t n = 0; n < count; ++n)
      if (!backward[in(n)] && backward[out(n)]) found.push_back(n);
    return found;
  }

  /// What was banned, the backward pass needs, and is not there anyway: after `saved`.
  [[nodiscard]] std::vector<std::size_t> banned_and_needed() const {
    std::vector<std::size_t> found;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (banned_[n] && !at(n).input && distance_[n] < never && at(n).policy != Policy::Save) found.push_back(n);
    return found;
  }

 private:
  [[nodiscard]] const GraphNode& at(std::size_t n) const { return graph_.nodes[n]; }
  [[nodiscard]] static std::size_t in(std::size_t n) { return 2 * n; }
  [[nodiscard]] static std::size_t out(std::size_t n) { return 2 * n + 1; }
  [[nodiscard]] std::size_t source() const { return 2 * graph_.nodes.size(); }
  [[nodiscard]] std::size_t sink() const { return source() + 1; }

  // classify_nodes: what outputs need, and what comes of tangents.
  void classify() {
    forward_.resize(graph_.nodes.size());
    tangents_.resize(graph_.nodes.size());
    for (const std::size_t output : graph_.outputs) forward_[output] = true;
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      forward_[n] = forward_[n] || at(n).input;
      if (forward_[n])
        for (const std::size_t input : at(n).inputs) forward_[input] = true;
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      tangents_[n] = at(n).tangent;
      for (const std::size_t input : at(n).inputs) tangents_[n] = tangents_[n] || tangents_[input];
    }
    backward_ = tangents_;
    for (const std::size_t gradient : graph_.gradients) backward_[gradient] = true;
    std::int64_t next = 0;
    order_.resize(graph_.nodes.size());
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (forward_[n]) order_[n] = next++;
  }

  void measure_distances() {
    distance_.assign(graph_.nodes.size(), never);
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!forward_[n]) distance_[n] = 0;
      for (const std::size_t user : users_[n])
        distance_[n] = std::min(distance_[n], forward_[n] ? distance_[user] + 1 : 0);
    }
  }

  [[nodiscard]] bool fusible(std::size_t a, std::size_t b) const {
    return at(b).joins || (at(a).fusible && at(b).fusible);
  }
  [[nodiscard]] bool recomputed(std::size_t n) const { return at(n).policy == Policy::Recompute; }

  // A kernel of the backward pass will read it, or a view of it, from memory.
  [[nodiscard]] bool materialized_backward(std::size_t n) const {
    if (at(n).view) return false;
    std::vector<std::size_t> open{n};
    while (!open.empty()) {
      const std::size_t current = open.back();
      open.pop_back();
      for (const std::size_t user : users_[current]) {
        if (!forward_[user] && !fusible(current, user)) return true;
        if (at(user).view) open.push_back(user);
      }
    }
    return false;
  }

  // A result that is so much smaller than what it is made of is kept, as that of a reduction.
  [[nodiscard]] bool reduces(std::size_t n) const {
    constexpr std::int64_t smaller = 4;
    Bytes read;
    for (const std::size_t input : at(n).inputs) read += at(input).bytes;
    return at(n).bytes * smaller < read;
  }

  [[nodiscard]] bool should_not_run_twice(std::size_t n) const {
    const GraphNode& its = at(n);
    if (its.input || its.tangent || its.part) return false;
    if (its.policy == Policy::Save || (bans_.materialized_backward && materialized_backward(n)) || reduces(n))
      return true;
    return bans_.unlisted ? !its.recomputable : its.intensive || its.random;
  }

  void ban(std::size_t n) {
    if (at(n).view || recomputed(n) || std::ranges::find(bans_.but_not, n) != bans_.but_not.end()) return;
    banned_[n] = true;
    edges_.push_back({source(), in(n)});
  }

  // Nearer to the backward pass is cheaper, and what lies in memory anyway half as dear as what does not.
  [[nodiscard]] std::int64_t weight(std::size_t n) const {
    constexpr double step = 1.1;
    constexpr std::int64_t most_steps = 100, not_in_memory = 2;
    const GraphNode& its = at(n);
    if (its.several) return uncuttable;
    if (its.fixed) return 0;
    const auto steps = static_cast<double>(std::max<std::int64_t>(std::min(distance_[n], most_steps), 1));
    const auto cost = static_cast<std::int64_t>(static_cast<double>(its.bytes.count()) * std::pow(step, steps));
    const bool in_memory =
        its.input || its.tangent || !std::ranges::all_of(users_[n], [&](std::size_t user) { return fusible(n, user); });
    return in_memory ? cost : not_in_memory * cost;
  }

  void place(std::size_t n) {
    if (backward_[n]) {
      edges_.push_back({tangents_[n] ? in(n) : out(n), sink()});
      if (tangents_[n]) return;
    }
    if (recomputed(n)) return edges_.push_back({in(n), sink()});
    if (at(n).input || (forward_[n] && should_not_run_twice(n))) ban(n);
    edges_.push_back({in(n), out(n), weight(n)});
    for (const std::size_t user : users_[n]) edges_.push_back({out(n), in(user)});
  }

  // What follows on these within one kernel, up to the first that cannot.
  [[nodiscard]] std::int64_t first_unfusible(const std::vector<std::size_t>& starts, std::int64_t last) const {
    std::set<std::pair<std::int64_t, std::pair<std::size_t, bool>>> open;
    for (const std::size_t n : starts) open.insert({order_[n], {n, true}});
    while (!open.empty()) {
      const auto [order, node] = *open.begin();
      open.erase(open.begin());
      if (!node.second) return order;
      for (const std::size_t user : users_[node.first])
        if (forward_[user] && order_[user] <= last) open.insert({order_[user], {user, fusible(node.first, user)}});
    }
    return last;
  }

  void ban_what_is_used_far_apart() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!forward_[n]) continue;
      std::vector<std::size_t> its;
      std::int64_t last = 0;
      for (const std::size_t user : users_[n])
        if (forward_[user]) its.push_back(user), last = std::max(last, order_[user]);
      if (its.empty()) continue;
      const std::int64_t near = first_unfusible(its, last);
      for (const std::size_t user : its)
        if (order_[user] > near && fusible(n, user) && !banned_[user]) ban(user);
    }
  }

  void ban_long_chains() {
    constexpr std::int64_t long_chain = 100;
    std::vector<bool> visited(graph_.nodes.size());
    using Open = std::pair<std::int64_t, std::size_t>;
    for (std::size_t start = 0; start < graph_.nodes.size(); ++start) {
      if (!forward_[start]) continue;
      std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
      open.emplace(order_[start], start);
      while (!open.empty()) {
        const std::size_t current = open.top().second;
        open.pop();
        if (visited[current]) continue;
        visited[current] = true;
        if (order_[current] > order_[start] + long_chain && open.empty()) {
          ban(current);
          break;
        }
        for (const std::size_t user : users_[current])
          if (forward_[user] && fusible(current, user) && !banned_[user]) open.emplace(order_[user], user);
      }
    }
  }

  const JointGraph& graph_;
  const Bans bans_;
  std::vector<std::vector<std::size_t>> users_;
  std::vector<bool> banned_;    // from being computed twice
  std::vector<bool> forward_;   // outputs need it
  std::vector<bool> tangents_;  // made of tangents
  std::vector<bool> backward_;  // … or a gradient
  std::vector<std::int64_t> order_, distance_;
  std::vector<CapacityEdge> edges_;
};

// ---- what is kept within a budget -----------------------------------------------------------------------------------

struct Item {
  std::size_t node = 0;
  std::int64_t memory = 0;  ///< in ten-thousandths of all that may be kept
  float flops = 0;
};

// knapsack.py dp_knapsack: what is kept is what costs most to compute again, as far as there is room for it. Of equal
// sums the later items are computed again.
std::vector<std::size_t> computed_again(const std::vector<Item>& items, std::int64_t room) {
  const auto wide = static_cast<std::size_t>(room) + 1;
  std::vector<std::vector<float>> best(items.size() + 1, std::vector<float>(wide));
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto memory = static_cast<std::size_t>(items[i].memory);
    best[i + 1] = best[i];
    for (std::size_t j = memory; j < wide; ++j) {
      const float with = best[i][j - memory] + items[i].flops;
      best[i + 1][j] = memory == 0 ? with : std::max(best[i][j], with);
    }
  }
  std::vector<std::size_t> again;
  std::size_t left = wide - 1;
  for (std::size_t i = items.size(); i-- > 0;) {
    if (best[i + 1][left] != best[i][left])
      left -= static_cast<std::size_t>(items[i].memory);
    else
      again.push_back(items[i].node);
  }
  return again;
}

// choose_saved_values_set.
std::vector<std::size_t> saved_within(const JointGraph& graph, double budget) {
  std::vector<std::size_t> given;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].input) given.push_back(n);
  if (budget == 0) return given;
  // Of one tensor seen in several ways, once.
  const auto size = [&](const std::vector<std::size_t>& nodes) {
    std::set<std::size_t> tensors;
    std::int64_t bytes = 0;
    for (const std::size_t n : nodes) {
      std::size_t tensor = n;
      while (graph.nodes[tensor].view) tensor = graph.nodes[tensor].inputs.front();
      if (tensors.insert(tensor).second) bytes += graph.nodes[n].bytes.count();
    }
    return static_cast<double>(bytes);
  };
  std::vector<std::size_t> saved = Partitioner(graph).saved();
  const double least = size(given), room = size(saved) - least;
  if (room <= 0) return saved;
  const auto within = [&](const std::vector<std::size_t>& nodes) { return (size(nodes) - least) / room < budget; };
  Bans bans{.used_far_apart = false, .long_chains = false, .materialized_backward = false};
  if (saved = Partitioner(graph, bans).saved(); within(saved)) return saved;
  bans.unlisted = false;
  Partitioner aggressive(graph, bans);
  if (saved = aggressive.saved(); within(saved)) return saved;
  std::vector<std::size_t> dear = aggressive.banned_and_needed();
  if (dear.empty()) return saved;
  std::ranges::stable_sort(dear, std::greater{}, [&](std::size_t n) { return graph.nodes[n].bytes; });
  constexpr double parts = 10'000;
  std::vector<Item> items;
  for (const std::size_t n : dear)
    items.push_back({n, std::lrint(static_cast<double>(graph.nodes[n].bytes.count()) / room * parts),
                     static_cast<float>(graph.nodes[n].flops)});
  bans.but_not = computed_again(items, std::lrint(budget * parts));
  return Partitioner(graph, bans).saved();
}

}  // namespace

std::vector<std::size_t> saved_values(const JointGraph& graph, double budget) {
  return budget >= 1 ? Partitioner(graph).saved() : saved_within(graph, budget);
}

}  // namespace tidemark::parallel::compile
