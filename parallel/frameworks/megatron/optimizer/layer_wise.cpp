#include "parallel/frameworks/megatron/optimizer/layer_wise.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace tidemark::parallel {

std::vector<ParameterId> ping_pong_rank(const BuiltModel& built, std::vector<ParameterId> parameters,
                                        const Sizes& sizes, ReplicaPlace to) {
  // Those of one optimizer come before those of the next.
  std::ranges::stable_partition(parameters, [&](ParameterId p) { return made_orthogonal(built[p]); });
  std::ranges::stable_sort(parameters, {}, [&](ParameterId p) { return sizes.elements(built[p]); });
  std::vector<ParameterId> own;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto turn = static_cast<std::int32_t>(i % (2 * static_cast<std::size_t>(to.count)));
    if ((turn < to.count ? turn : 2 * to.count - 1 - turn) == to.place) own.push_back(parameters[i]);
  }
  return own;
}

namespace {

// Shares of a bucket while matrices are put into them.
class Shares {
 public:
  Shares(std::int32_t count, std::int64_t alignment) : alignment_(alignment), ends_(static_cast<std::size_t>(count)) {}

  [[nodiscard]] std::int64_t begin_in(std::size_t share) const { return round_up(ends_[share], alignment_); }
  [[nodiscard]] std::size_t emptiest() const {
    return static_cast<std::size_t>(std::ranges::min_element(ends_) - ends_.begin());
  }
  [[nodiscard]] std::int64_t longest() const { return std::ranges::max(ends_); }
  [[nodiscard]] std::size_t count() const { return ends_.size(); }
  void put(std::size_t share, std::int64_t elements) { ends_[share] = begin_in(share) + elements; }

 private:
  std::int64_t alignment_;
  std::vector<std::int64_t> ends_;
};

}  // namespace

BufferLayout layer_wise_layout(const BuiltModel& built, const std::vector<ParameterId>& parameters, const Sizes& sizes,
                               const Runtime& runtime, const Stage& stage, const Layout& of, std::int32_t shards) {
  const std::int64_t start = runtime.parameter_alignment;
  const std::int64_t share_alignment =
      std::lcm(start, std::lcm(runtime.bucket_alignment, std::int64_t{shards}) / shards);
  const bool closing = runtime.bucket_elements > 0 && stage.first == 0;
  BufferLayout layout;
  std::vector<std::int64_t> work(static_cast<std::size_t>(shards));  // of iterations, in all buckets so far
  std::vector<ParameterId> chunk;
  const auto work_of = [&](ParameterId id) {
    const std::int64_t rows = sizes.rows(built[id]), columns = sizes.columns(built[id]),
                       shorter = std::min(rows, columns);
    return std::max(rows, columns) * shorter * shorter;
  };
  // Most work first, each to the share with the least so far that has room for it.
  const auto close = [&] {
    std::int64_t all = 0;
    for (const ParameterId id : chunk) all += sizes.elements(built[id]);
    const double room = static_cast<double>(all) / shards * 1.3;
    std::ranges::stable_sort(chunk, std::greater(), work_of);
    Shares shares(shards, start);
    std::vector<std::pair<std::size_t, BufferLayout::Place>> put;
    for (const ParameterId id : chunk) {
      const std::int64_t elements = sizes.elements(built[id]);
      std::optional<std::size_t> chosen;
      for (std::size_t s = 0; s < shares.count(); ++s)
        if (static_cast<double>(shares.begin_in(s) + elements) <= room && (!chosen || work[s] < work[*chosen]))
          chosen = s;
      const std::size_t its = chosen.value_or(shares.emptiest());
      const std::int64_t begin = shares.begin_in(its);
      put.push_back({its, {id, begin, begin + elements}});
      shares.put(its, elements);
      work[its] += work_of(id);
    }
    const std::int64_t share = round_up(shares.longest(), share_alignment), begin = layout.elements;
    std::ranges::stable_sort(put, {}, [](const auto& one) { return one.first; });
    for (auto& [its, place] : put) {
      const std::int64_t offset = begin + static_cast<std::int64_t>(its) * share;
      layout.places.push_back({place.parameter, offset + place.begin, offset + place.end});
    }
    layout.elements = begin + shards * share;
    layout.buckets.push_back({begin, layout.elements});
    chunk.clear();
  };
  // A bucket is closed when it is full, and the next matrix would not fit into what pads its shares: as far as can be
  // told from an order that is not yet that of their work.
  Shares guessed(shards, start);
  std::int64_t elements = 0, largest = 0;
  for (auto id = parameters.rbegin(); id != parameters.rend(); ++id) {
    const std::int64_t its = sizes.elements(built[*id]);
    if (closing && !chunk.empty()) {
      const auto floor = static_cast<std::int64_t>(static_cast<double>(shards * largest) * 0.9);
      const bool fits = guessed.begin_in(guessed.emptiest()) + its <= round_up(guessed.longest(), share_alignment);
      if (elements >= std::max(bucket_size(runtime, of), floor) && !fits) {
        close();
        guessed = Shares(shards, start);
        elements = largest = 0;
      }
    }
    guessed.put(guessed.emptiest(), its);
    chunk.push_back(*id);
    elements += its;
    largest = std::max(largest, its);
  }
  if (!chunk.empty() || layout.buckets.empty()) close();
  return layout;
}

}  // namespace tidemark::parallel
