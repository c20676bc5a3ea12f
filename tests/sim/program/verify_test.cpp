#include "sim/program/verify.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/program/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + '\n';
  return out;
}

std::string findings(const std::string& program) { return joined(verify(parse_program(program))); }

TEST(Verify, ACleanProgramHasNoFindings) {
  EXPECT_EQ(findings(R"(create communicator g0
alloc b0 512 temporaries s0 a
bind frame b0
launch s0 fill 0+1 -> b0
collective s0 g0 all_reduce 512 b0 -> b0
record e0 s0
wait s1 e0
sync e0
unbind frame
free b0
)"),
            "");
}

TEST(Verify, UseBeforeAllocation) {
  EXPECT_EQ(findings("launch s0 fill 0+1 -> b0\nalloc b0 512 temporaries s0 a\n"),
            "op 0: launch s0 fill 0+1 -> b0: b0 is not allocated yet\n");
}

TEST(Verify, UseOfABufferThatNobodyAllocates) {
  EXPECT_EQ(findings("borrow b3 s0\n"), "op 0: borrow b3 s0: names no buffer of the program\n");
  EXPECT_EQ(findings("free b3\n"), "op 0: free b3: names no buffer of the program\n");
  EXPECT_EQ(findings("bind frame b3\n"), "op 0: bind frame b3: names no buffer of the program\n");
}

TEST(Verify, UseAfterFree) {
  const std::string start = "create communicator g0\nalloc b0 512 temporaries s0 a\nfree b0\n";
  for (const std::string use : {"launch s0 fill 0+1 -> b0", "launch s0 copy 1+0 b0 ->", "borrow b0 s1", "bind frame b0",
                                "collective s0 g0 broadcast 1 b0 -> b0", "exchange s0 g0 send +1 b0", "free b0"})
    EXPECT_EQ(findings(start + use), "op 3: " + use + ": b0 is already freed\n");
}

TEST(Verify, FreedWhileAnotherStreamMayUseIt) {
  const std::string start = "alloc b0 512 temporaries s0 a\nlaunch s1 fill 0+1 -> b0\n";
  EXPECT_EQ(findings(start + "free b0\n"), "op 2: free b0: stream s1 may still use it\n");
  EXPECT_EQ(findings(start + "record e0 s1\nwait s0 e0\nfree b0\n"), "");
  EXPECT_EQ(findings(start + "record e0 s1\nsync e0\nfree b0\n"), "");
  EXPECT_EQ(findings(start + "borrow b0 s1\nfree b0\n"), "");
  // An event from before the use does not cover it; one that waits for a later event does, through others too.
  EXPECT_EQ(findings("alloc b0 512 temporaries s0 a\nrecord e0 s1\nlaunch s1 fill 0+1 -> b0\nwait s0 e0\nfree b0\n"),
            "op 4: free b0: stream s1 may still use it\n");
  EXPECT_EQ(findings(start + "record e0 s1\nwait s2 e0\nrecord e1 s2\nwait s0 e1\nfree b0\n"), "");
}

TEST(Verify, AllocationTwice) {
  const std::string line = "alloc b0 512 temporaries s0 a\n";
  EXPECT_EQ(findings(line + line), "op 1: alloc b0 512 temporaries s0 a: allocated twice\n");
  EXPECT_EQ(findings(line + "free b0\n" + line), "op 2: alloc b0 512 temporaries s0 a: allocated twice\n");
}

TEST(Verify, SizesThatAreNotPositive) {
  EXPECT_EQ(findings("alloc b0 0 temporaries s0 a\n"), "op 0: alloc b0 0 temporaries s0 a: size is not positive\n");
  EXPECT_EQ(findings("alloc b0 -512 temporaries s0 a\n"),
            "op 0: alloc b0 -512 temporaries s0 a: size is not positive\n");
}

TEST(Verify, FreeWhileANameRefersToTheBuffer) {
  EXPECT_EQ(findings("alloc b0 512 temporaries s0 a\nbind frame b0\nfree b0\n"),
            "op 2: free b0: a name still refers to it\n");
  EXPECT_EQ(
      findings("alloc b0 1 temporaries s0 a\nalloc b1 1 temporaries s0 a\nbind frame b0\nbind frame b1\nfree b0\n"),
      "");  // the name moved on
}

TEST(Verify, UnbindingANameThatIsNotBound) {
  EXPECT_EQ(findings("unbind frame\n"), "op 0: unbind frame: the name is not bound\n");
  EXPECT_EQ(findings("alloc b0 1 temporaries s0 a\nbind frame b0\nunbind frame\nunbind frame\n"),
            "op 3: unbind frame: the name is not bound\n");
}

TEST(Verify, WaitsAndSyncsBeforeTheirRecord) {
  EXPECT_EQ(findings("wait s0 e0\nrecord e0 s0\n"), "op 0: wait s0 e0: the event is not recorded yet\n");
  EXPECT_EQ(findings("sync e5\n"), "op 0: sync e5: the event is not recorded yet\n");
}

TEST(Verify, CommunicatorsAreCreatedOnceAndBeforeTheirUse) {
  const std::string start = "alloc b0 1 temporaries s0 a\n";
  EXPECT_EQ(findings(start + "collective s0 g1 broadcast 1 b0 -> b0\n"),
            "op 1: collective s0 g1 broadcast 1 b0 -> b0: communicator g1 is not created yet\n");
  EXPECT_EQ(findings(start + "exchange s0 g1 send +1 b0\n"),
            "op 1: exchange s0 g1 send +1 b0: communicator g1 is not created yet\n");
  EXPECT_EQ(findings("create communicator g0\ncreate communicator g0\n"),
            "op 1: create communicator g0: created twice\n");
}

TEST(Verify, FindingsAreFewHoweverBadTheProgramIs) {
  std::string program;
  for (int i = 0; i < 1000; ++i) program += "sync e0\n";
  EXPECT_EQ(verify(parse_program(program)).size(), 20u);
}

// Two ranks in one group, one program each.
Workload pair(const std::string& zero, const std::string& one) {
  const std::string start = "create communicator g0\nalloc b0 512 temporaries s0 a\nalloc b1 1024 temporaries s0 a\n";
  return {{parse_program(start + zero), parse_program(start + one)}, {0, 1}, {{"pair", {{2, 1}}}}};
}
std::string between(const std::string& zero, const std::string& one) { return joined(verify(pair(zero, one))); }

const std::string differ = "ranks 0 and 1 do not call the same collectives in communicator pair\n";

TEST(VerifyWorkload, ProgramsAreCheckedFirst) {
  EXPECT_EQ(between("", "free b0\nfree b0\n"), "program 1: op 4: free b0: b0 is already freed\n");
}

TEST(VerifyWorkload, MembersCallTheSameCollectivesInTheSameOrder) {
  const std::string reduce = "collective s0 g0 all_reduce 512 b0 -> b0\n";
  const std::string gather = "collective s0 g0 all_gather 512 b0 -> b1\n";
  EXPECT_EQ(between(reduce + gather, reduce + gather), "");
  EXPECT_EQ(between(reduce + gather, gather + reduce), differ);
  EXPECT_EQ(between(reduce, "collective s0 g0 all_reduce 1024 b0 -> b0\n"), differ);
  EXPECT_EQ(between(reduce, reduce + reduce), differ);
  EXPECT_EQ(between(reduce + reduce, reduce), differ);
  EXPECT_EQ(between("", reduce), differ);
}

TEST(VerifyWorkload, AMemberThatNeverCallsIsMissed) {
  EXPECT_EQ(between("collective s0 g0 all_reduce 512 b0 -> b0\n", ""), differ);
}

TEST(VerifyWorkload, AMessageHasASenderAndAReceiverAndOneSize) {
  EXPECT_EQ(between("exchange s0 g0 send +1 b0\n", "exchange s0 g0 receive -1 b0\n"), "");
  const std::string lonely_send = "what rank 0 sends in communicator pair does not match what rank 1 receives\n";
  const std::string lonely_receive = "what rank 1 receives in communicator pair does not match what rank 0 sends\n";
  EXPECT_EQ(between("exchange s0 g0 send +1 b0\n", "exchange s0 g0 receive -1 b1\n"), lonely_send + lonely_receive);
  EXPECT_EQ(between("exchange s0 g0 send +1 b0\n", ""), lonely_send);
  EXPECT_EQ(between("", "exchange s0 g0 receive -1 b0\n"), lonely_receive);
}

TEST(VerifyWorkload, MessagesMatchInOrder) {
  const std::string small_first = "exchange s0 g0 send +1 b0\nexchange s0 g0 send +1 b1\n";
  EXPECT_EQ(between(small_first, "exchange s0 g0 receive -1 b0\nexchange s0 g0 receive -1 b1\n"), "");
  EXPECT_NE(between(small_first, "exchange s0 g0 receive -1 b1\nexchange s0 g0 receive -1 b0\n"), "");
}

TEST(VerifyWorkload, AGroupGoesRound) {
  const std::string shift =
      "create communicator g0\nalloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a\n"
      "exchange s0 g0 send +1 b0 receive -1 b1\n";
  const Workload ring{{parse_program(shift)}, {0, 0, 0, 0}, {{"ring", {{4, 1}}}}};
  EXPECT_EQ(joined(verify(ring)), "");
}

TEST(VerifyWorkload, RanksOutsideAGroupHaveNothingToSay) {
  // The ends of a pipeline of three share a communicator that the middle has no part in.
  const std::string start = "alloc b0 512 temporaries s0 a\n";
  const Program end = parse_program(start + "create communicator g0\ncollective s0 g0 all_reduce 512 b0 -> b0\n");
  const Workload job{{end, parse_program(start)}, {0, 1, 0}, {{"ends", {{2, 1, 2}}}}};
  EXPECT_EQ(joined(verify(job)), "");
}

}  // namespace
}  // namespace tidemark::tests
