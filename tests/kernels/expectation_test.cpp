#include "kernels/execute/expectation.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/words.hpp"

namespace tidemark::tests::expectation_test {
namespace {

const BufferId b0{0}, b1{1}, b2{2}, b3{3};

std::vector<std::string> on_every_rank(std::size_t ranks, const std::string& program) {
  return std::vector<std::string>(ranks, program);
}

TEST(Expectation, AReaderFindsTheStampOfTheLastWriter) {
  const Workload workload = one_group({R"(alloc b0 4096 temporaries s0 x
launch s0 fill(value=0) -> b0:bool[1]
launch s0 copy b0:bool[1] -> b0:bool[1]
launch s0 copy b0:bool[1] -> b0:bool[1]
)"});
  const Expectation expectation(workload, {});
  EXPECT_EQ(expectation.before({0}, 2, b0), stamped(Expectation::stamp({0}, 1, b0), 512));
  EXPECT_EQ(expectation.before({0}, 3, b0), stamped(Expectation::stamp({0}, 2, b0), 512));
  EXPECT_EQ(expectation.after({0}, 3, b0), stamped(Expectation::stamp({0}, 3, b0), 512));
}

TEST(Expectation, NothingIsKnownOfWhatNobodyHasWritten) {
  const Workload workload = one_group({R"(alloc b0 4096 temporaries s0 x
alloc b1 4096 temporaries s0 y
launch s0 copy b0:bool[1] -> b1:bool[1]
)"});
  EXPECT_TRUE(Expectation(workload, {}).before({0}, 2, b0).empty());
}

TEST(Expectation, StampsTellRanksOpsAndBuffersApart) {
  std::vector<std::uint64_t> all;
  for (std::int32_t rank = 0; rank < 4; ++rank)
    for (std::size_t op = 0; op < 50; ++op)
      for (std::int32_t b = 0; b < 20; ++b) all.push_back(Expectation::stamp({rank}, op, {b}));
  const std::size_t made = all.size();
  std::sort(all.begin(), all.end());
  EXPECT_EQ(static_cast<std::size_t>(std::unique(all.begin(), all.end()) - all.begin()), made);
  EXPECT_NE(all.front(), 0u);
}

TEST(Expectation, PayloadsAreAsLongAsTheScaleLeavesThem) {
  const Workload workload = one_group({"alloc b0 40960 temporaries s0 x\nlaunch s0 fill(value=0) -> b0:bool[1]\n"});
  EXPECT_EQ(Expectation(workload, {}).after({0}, 1, b0).back().end, 5120);
  EXPECT_EQ(Expectation(workload, {4}).after({0}, 1, b0).back().end, 3 * 512);
}

// ---- collectives: each rank fills a buffer of 2048 words (op 2), and all meet (op 4 or so)

constexpr std::int64_t whole = 2048, ranks = 3, part = 682;  // and 2 words over

struct Call {
  CollectiveKind kind;
  bool in_place;
};
std::string text(const Call& call) {
  return std::string(name(call.kind)) + (call.in_place ? " in place" : " out of place");
}
void PrintTo(const Call& call, std::ostream* out) { *out << text(call); }

class ExpectedCollective : public testing::TestWithParam<Call> {};

TEST_P(ExpectedCollective, IsTheSumOrTheMove) {
  const auto [kind, in_place] = GetParam();
  const std::string out = in_place ? "b0" : "b1";
  const Workload workload = one_group(on_every_rank(ranks,
                                                    "create communicator g0\n"
                                                    "alloc b0 16384 temporaries s0 x\n"
                                                    "alloc b1 16384 temporaries s0 y\n"
                                                    "launch s0 fill(value=0) -> b0:bool[1]\n"
                                                    "collective s0 g0 " +
                                                        std::string(name(kind)) + (reduces(kind) ? " sum" : "") +
                                                        " bool 16384 b0 -> " + out + "\n"));
  const Expectation expectation(workload, {});
  const auto input = [](std::int64_t rank, std::int64_t word) {
    return left_by({static_cast<std::int32_t>(rank)}, 3, b0, word);
  };
  for (std::int64_t me = 0; me < ranks; ++me) {
    Words expected(whole);
    if (in_place)
      for (std::int64_t w = 0; w < whole; ++w) expected[static_cast<std::size_t>(w)] = input(me, w);
    const auto put = [&](std::int64_t word, std::uint64_t value) { expected[static_cast<std::size_t>(word)] = value; };
    const auto summed = [&](std::int64_t w) { return input(0, w) + input(1, w) + input(2, w); };
    for (std::int64_t w = 0; w < (kind == CollectiveKind::AllReduce ? whole : 0); ++w) put(w, summed(w));
    for (std::int64_t w = 0; w < (kind == CollectiveKind::Broadcast ? whole : 0); ++w) put(w, input(0, w));
    for (std::int64_t w = 0; w < part; ++w) {
      if (kind == CollectiveKind::ReduceScatter) put((in_place ? me * part : 0) + w, summed(me * part + w));
      for (std::int64_t m = 0; m < ranks; ++m) {
        if (kind == CollectiveKind::AllGather) put(m * part + w, input(m, (in_place ? m * part : 0) + w));
        if (kind == CollectiveKind::AllToAll) put(m * part + w, input(m, me * part + w));
      }
    }
    EXPECT_EQ(words_of(expectation.after({static_cast<std::int32_t>(me)}, 4, in_place ? b0 : b1), whole), expected)
        << "rank " << me;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExpectedCollective,
                         testing::Values(Call{CollectiveKind::AllReduce, true}, Call{CollectiveKind::AllReduce, false},
                                         Call{CollectiveKind::ReduceScatter, true},
                                         Call{CollectiveKind::ReduceScatter, false},
                                         Call{CollectiveKind::AllGather, true}, Call{CollectiveKind::AllGather, false},
                                         Call{CollectiveKind::Broadcast, true}, Call{CollectiveKind::Broadcast, false},
                                         Call{CollectiveKind::AllToAll, false}),
                         [](const auto& test) {
                           std::string name = text(test.param);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(Expectation, OneCollectiveReadsWhatAnotherLeft) {
  // Reduce-scatter, then all-gather: an all-reduce.
  const Workload workload = one_group(on_every_rank(3, R"(create communicator g0
alloc b0 16384 temporaries s0 x
alloc b1 16384 temporaries s0 y
launch s0 fill(value=0) -> b0:bool[1]
collective s0 g0 reduce_scatter sum bool 16384 b0 -> b1
alloc b2 16384 temporaries s0 z
collective s0 g0 all_gather bool 16384 b1 -> b2
)"));
  const Words found = words_of(Expectation(workload, {}).after({1}, 6, b2), whole);
  for (std::int64_t w = 0; w < ranks * part; ++w)
    ASSERT_EQ(found[static_cast<std::size_t>(w)],
              left_by({0}, 3, b0, w) + left_by({1}, 3, b0, w) + left_by({2}, 3, b0, w));
  EXPECT_FALSE(found[ranks * part].has_value());
}

TEST(Expectation, TheTurnsOfACommunicatorBelongTogether) {
  const std::string one =
      "create communicator g0\nalloc b0 512 temporaries s0 x\nlaunch s0 fill(value=0) -> b0:bool[1]\n";
  const std::string all_reduce = "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n";
  const std::string fill = "launch s0 fill(value=0) -> b0:bool[1]\n";
  // Rank 1 does something more in between: its second turn is another op.
  const Workload workload =
      one_group({one + all_reduce + fill + all_reduce, one + all_reduce + fill + fill + all_reduce});
  const Words found = words_of(Expectation(workload, {}).after({0}, 5, b0), 512);
  EXPECT_EQ(found[9], left_by({0}, 4, b0, 9) + left_by({1}, 5, b0, 9));
}

// ---- messages

TEST(Expectation, AMessageIsTheSendersStamp) {
  const Workload workload = one_group(on_every_rank(3, R"(create communicator g0
alloc b0 4096 temporaries s0 x
alloc b1 4096 temporaries s0 y
launch s0 fill(value=0) -> b0:bool[1]
exchange s0 g0 send +1 b0 receive -1 b1
)"));
  const Expectation expectation(workload, {});
  EXPECT_EQ(expectation.after({0}, 4, b1), stamped(Expectation::stamp({2}, 3, b0), 512));
  EXPECT_EQ(expectation.after({2}, 4, b1), stamped(Expectation::stamp({1}, 3, b0), 512));
}

TEST(Expectation, InAGroupOfTwoTheNextIsTheOneBefore) {
  // What is sent first is received first, whichever way round it went.
  const Workload workload = one_group(on_every_rank(2, R"(create communicator g0
alloc b0 4096 temporaries s0 x
alloc b1 4096 temporaries s0 y
alloc b2 4096 temporaries s0 u
alloc b3 4096 temporaries s0 v
launch s0 fill(value=0) -> b0:bool[1]
launch s0 fill(value=0) -> b1:bool[1]
exchange s0 g0 send +1 b0 send -1 b1 receive -1 b2 receive +1 b3
)"));
  const Expectation expectation(workload, {});
  EXPECT_EQ(expectation.after({0}, 7, b2), stamped(Expectation::stamp({1}, 5, b0), 512));
  EXPECT_EQ(expectation.after({0}, 7, b3), stamped(Expectation::stamp({1}, 6, b1), 512));
}

// ---- who wrote a word

TEST(Expectation, NamesTheAuthorOfAWord) {
  const Workload workload = one_group({"alloc b0 4096 temporaries s0 x\nlaunch s0 fill(value=0) -> b0:bool[1]\n",
                                       R"(alloc b0 4096 temporaries s0 weight
mark forward 2 3 layers.0.norm
launch s0 fill(value=0) -> b0:bool[1]
)"});
  const Expectation expectation(workload, {});
  EXPECT_EQ(expectation.author(left_by({1}, 2, b0, 511)),
            "rank 1, weight at op 2 (layers.0.norm, step 2, micro-batch 3), word 511");
  EXPECT_EQ(expectation.author(0).find("zero"), 0u);
  EXPECT_EQ(expectation.author(left_by({0}, 1, b0, 1) + left_by({1}, 2, b0, 1)),
            "a sum, or nothing that a kernel wrote");
  // Of an op without a mark before it, too.
  EXPECT_EQ(expectation.author(left_by({0}, 1, b0, 0)), "rank 0, x at op 1 (start, step 0, micro-batch -1), word 0");
}

}  // namespace
}  // namespace tidemark::tests::expectation_test
