#include "kernels/execute/world/host_collectives.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "kernels/execute/content.hpp"
#include "tests/kernels/thread_world.hpp"
#include "tests/sim/program/random_matrix.hpp"

namespace tidemark::tests::host_collectives_test {
namespace {

using Payload = std::vector<std::uint64_t>;

// Of the member at that place.
std::uint64_t input(std::int64_t place, std::int64_t word) {
  return (static_cast<std::uint64_t>(place) + 1) * 0x1234567812345671 + static_cast<std::uint64_t>(word) * 977;
}

struct Call {
  CollectiveKind kind;
  bool in_place;
};
constexpr std::array calls{Call{CollectiveKind::AllReduce, true},     Call{CollectiveKind::AllReduce, false},
                           Call{CollectiveKind::AllGather, true},     Call{CollectiveKind::AllGather, false},
                           Call{CollectiveKind::Broadcast, true},     Call{CollectiveKind::Broadcast, false},
                           Call{CollectiveKind::AllToAll, false},     Call{CollectiveKind::ReduceScatter, true},
                           Call{CollectiveKind::ReduceScatter, false}};

// What member `me` should hold, from everyone's inputs directly.
Payload expected(const Call& call, std::int64_t n, std::int64_t me, std::int64_t words) {
  const std::int64_t part = shard_words(words, n);
  Payload out(static_cast<std::size_t>(words));
  const auto put = [&](std::int64_t w, std::uint64_t value) { out[static_cast<std::size_t>(w)] = value; };
  if (call.in_place)
    for (std::int64_t w = 0; w < words; ++w) put(w, input(me, w));
  const auto total = [&](std::int64_t w) {
    std::uint64_t sum = 0;
    for (std::int64_t m = 0; m < n; ++m) sum += input(m, w);
    return sum;
  };
  for (std::int64_t w = 0; w < words; ++w) {
    if (call.kind == CollectiveKind::AllReduce) put(w, total(w));
    if (call.kind == CollectiveKind::Broadcast) put(w, input(0, w));
  }
  for (std::int64_t w = 0; w < part; ++w) {
    if (call.kind == CollectiveKind::ReduceScatter) put((call.in_place ? me * part : 0) + w, total(me * part + w));
    for (std::int64_t m = 0; m < n; ++m) {
      if (call.kind == CollectiveKind::AllGather) put(m * part + w, input(m, (call.in_place ? m * part : 0) + w));
      if (call.kind == CollectiveKind::AllToAll) put(m * part + w, input(m, me * part + w));
    }
  }
  return out;
}

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, GiveEveryMemberWhatTheDirectSumGives) {
  const std::int32_t n = GetParam();
  // Fewer words than members, odd ones, whole pages, more than a chunk for each.
  for (const std::int64_t words : {1, 3, 512, 5001, 9 * 4096, 32768 * n + 4109}) {
    for (const Call& call : calls) {
      const auto ends = on_ranks(n, [&](World& world) {
        // The group's order is not that of ranks.
        Group group;
        for (std::int32_t place = 0; place < n; ++place) group.members.push_back({(place + 2) % n});
        group.me = std::find(group.members.begin(), group.members.end(), world.rank()) - group.members.begin();
        Payload in(static_cast<std::size_t>(words)), out(in.size());
        for (std::int64_t w = 0; w < words; ++w) in[static_cast<std::size_t>(w)] = input(group.me, w);
        const Payload kept = in;
        HostCollectives collectives(world);
        collectives.run(group, call.kind, in, call.in_place ? in : out, even_parts(words, n), "test");
        const Payload& result = call.in_place ? in : out;
        EXPECT_TRUE(result == expected(call, n, group.me, words))
            << name(call.kind) << (call.in_place ? " in place, " : ", ") << words << " words, member " << group.me;
        EXPECT_TRUE(call.in_place || in == kept) << name(call.kind) << " changes its input";
      });
      ASSERT_EQ(ends, all_well(n));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, Collectives, testing::Values(1, 2, 3, 4, 5));

TEST(HostCollectives, GroupsDoNotDisturbEachOther) {
  // Rows and columns of two by two, one after the other, with tags of their own.
  const auto ends = on_ranks(4, [](World& world) {
    const std::int32_t me = world.rank().value, row = me / 2, column = me % 2;
    const Group rows{{{2 * row}, {2 * row + 1}}, column, World::first_payload_tag};
    const Group columns{{{column}, {2 + column}}, row, World::first_payload_tag + 1};
    HostCollectives collectives(world);
    for (int round = 0; round < 50; ++round) {
      Payload x(1000, static_cast<std::uint64_t>(1 << me));
      collectives.run(rows, CollectiveKind::AllReduce, x, x, even_parts(1000, 2), "rows");
      collectives.run(columns, CollectiveKind::AllReduce, x, x, even_parts(1000, 2), "columns");
      EXPECT_EQ(std::count(x.begin(), x.end(), 15u), 1000);
    }
  });
  EXPECT_EQ(ends, all_well(4));
}

TEST(HostCollectives, RefuseABufferThatIsTooSmall) {
  const auto ends = on_ranks(1, [](World& world) {
    Payload in(10), out(9);
    HostCollectives(world).run({{{0}}}, CollectiveKind::AllReduce, in, out, even_parts(10, 1), "here");
  });
  EXPECT_EQ(ends.front(), "rank 0: here: a buffer is too small for its part");
}

TEST(HostCollectives, HoldTwoChunks) {
  const auto ends = on_ranks(1, [](World& world) { EXPECT_EQ(HostCollectives(world).held(), Bytes{512 << 10}); });
  EXPECT_EQ(ends, all_well(1));
}

// Parts of any sizes, nothing too, on either side of a chunk.
TEST_P(Collectives, GiveEveryMemberItsUnevenParts) {
  const std::int32_t n = GetParam();
  std::mt19937 random(static_cast<std::uint32_t>(n));
  for (const Call& call : calls) {
    if (call.kind == CollectiveKind::AllReduce || call.kind == CollectiveKind::Broadcast) continue;
    for (const std::int64_t most : {7, 3000, 1 << 20}) {
      const std::vector<MatrixRow> rows = random_matrix(random, call.kind, static_cast<std::size_t>(n), most);
      const auto cut = [](const std::vector<Bytes>& parts) {
        std::vector<std::int64_t> words;
        for (const Bytes part : parts) words.push_back(part.count() / 8);
        return execute::Cut(words);
      };
      const auto ends = on_ranks(n, [&](World& world) {
        Group group;
        for (std::int32_t place = 0; place < n; ++place) group.members.push_back({(place + 1) % n});
        group.me = std::find(group.members.begin(), group.members.end(), world.rank()) - group.members.begin();
        const MatrixRow& row = rows[static_cast<std::size_t>(group.me)];
        const Parts parts{0, cut(row.sends), cut(row.receives)};
        const std::int64_t words = std::max(parts.sends.end(), parts.receives.end());
        Payload in(static_cast<std::size_t>(words) + 1), out(in.size());  // somewhere, even of nothing
        for (std::int64_t w = 0; w < words; ++w) in[static_cast<std::size_t>(w)] = input(group.me, w);
        Payload wanted = call.in_place ? in : out;
        for (std::int64_t m = 0; m < n; ++m) {
          const execute::Cut theirs = cut(rows[static_cast<std::size_t>(m)].sends);
          for (std::int64_t w = 0; w < parts.receives.size(m); ++w) {
            const auto at = [&](std::int64_t word) -> std::uint64_t& { return wanted[static_cast<std::size_t>(word)]; };
            if (call.kind == CollectiveKind::AllToAll)
              at(parts.receives.begin(m) + w) = input(m, theirs.begin(group.me) + w);
            if (call.kind == CollectiveKind::AllGather)
              at(parts.receives.begin(m) + w) = input(m, (call.in_place ? parts.receives.begin(m) : 0) + w);
            if (call.kind == CollectiveKind::ReduceScatter) {
              const std::int64_t begin = parts.sends.begin(group.me), to = (call.in_place ? begin : 0) + w;
              at(to) = (m == 0 ? 0 : at(to)) + input(m, begin + w);
            }
          }
        }
        HostCollectives collectives(world);
        collectives.run(group, call.kind, in, call.in_place ? in : out, parts, "test");
        EXPECT_TRUE((call.in_place ? in : out) == wanted)
            << name(call.kind) << (call.in_place ? " in place" : "") << ", parts of at most " << most << " bytes";
      });
      ASSERT_EQ(ends, all_well(n));
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::host_collectives_test
