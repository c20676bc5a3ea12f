#include "sim/program/verify.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::verify_test {
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
launch s0 fill(value=0) -> b0:bool[1]
collective s0 g0 all_reduce sum bool 512 b0 -> b0
record e0 s0
wait s1 e0
sync e0
unbind frame
free b0
)"),
            "");
}

TEST(Verify, UseBeforeAllocation) {
  EXPECT_EQ(findings("launch s0 fill(value=0) -> b0:bool[1]\nalloc b0 512 temporaries s0 a\n"),
            "op 0: launch s0 fill(value=0) -> b0:bool[1]: b0 is not allocated yet\n");
}

TEST(Verify, UseOfABufferThatNobodyAllocates) {
  EXPECT_EQ(findings("borrow b3 s0\n"), "op 0: borrow b3 s0: names no buffer of the program\n");
  EXPECT_EQ(findings("free b3\n"), "op 0: free b3: names no buffer of the program\n");
  EXPECT_EQ(findings("bind frame b3\n"), "op 0: bind frame b3: names no buffer of the program\n");
}

TEST(Verify, UseAfterFree) {
  const std::string start = "create communicator g0\nalloc b0 512 temporaries s0 a\nfree b0\n";
  for (const std::string use :
       {"launch s0 fill(value=0) -> b0:bool[1]", "launch s0 fill(value=1) -> b0:fp32[4]", "borrow b0 s1",
        "bind frame b0", "collective s0 g0 broadcast bool 1 b0 -> b0", "exchange s0 g0 send +1 b0", "free b0"})
    EXPECT_EQ(findings(start + use), "op 3: " + use + ": b0 is already freed\n");
}

TEST(Verify, FreedWhileAnotherStreamMayUseIt) {
  const std::string start = "alloc b0 512 temporaries s0 a\nlaunch s1 fill(value=0) -> b0:bool[1]\n";
  EXPECT_EQ(findings(start + "free b0\n"), "op 2: free b0: stream s1 may still use it\n");
  EXPECT_EQ(findings(start + "record e0 s1\nwait s0 e0\nfree b0\n"), "");
  EXPECT_EQ(findings(start + "record e0 s1\nsync e0\nfree b0\n"), "");
  EXPECT_EQ(findings(start + "borrow b0 s1\nfree b0\n"), "");
  // An event from before the use does not cover it; one that waits for a later event does, through others too.
  EXPECT_EQ(
      findings(
          "alloc b0 512 temporaries s0 a\nrecord e0 s1\nlaunch s1 fill(value=0) -> b0:bool[1]\nwait s0 e0\nfree b0\n"),
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
  EXPECT_EQ(findings(start + "collective s0 g1 broadcast bool 1 b0 -> b0\n"),
            "op 1: collective s0 g1 broadcast bool 1 b0 -> b0: communicator g1 is not created yet\n");
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

TEST(Verify, KernelsTakeWhatTheirOperationSays) {
  const std::string start = "alloc b0 512 temporaries s0 a\n";
  const auto finding = [&](const std::string& kernel) {
    const std::string found = findings(start + "launch s0 " + kernel + "\n");
    const std::string place = "op 1: launch s0 " + kernel + ": ";
    return found.starts_with(place) ? found.substr(place.size()) : found;
  };
  EXPECT_EQ(finding("copy b0:bf16[4x2/1x4] -> b0:fp32[4x2]"), "");
  EXPECT_EQ(finding("copy b0:bf16[2] b0:bf16[3] -> b0:fp32[2] b0:fp32[3]"), "");
  EXPECT_EQ(finding("copy b0:bf16[2] b0:bf16[3] -> b0:fp32[2] b0:fp32[4]"), "x is [3], y [4]\n");
  EXPECT_EQ(finding("copy b0:bf16[2] -> b0:fp32[2] b0:fp32[4]"), "1 inputs, where it takes 2\n");
  EXPECT_EQ(finding("tanh - -> b0:fp32[2]"), "x is absent\n");
  EXPECT_EQ(finding("multiply b0:bf16[2x3] b0:bf16[3] -> b0:bf16[2x3]"), "");
  EXPECT_EQ(finding("multiply b0:bf16[2x3] b0:bf16[2] -> b0:bf16[2x3]"), "factor is [2], y [2x3]\n");
  EXPECT_EQ(finding("sum b0:bf16[2x3] -> b0:bf16[1x3]"), "");
  EXPECT_EQ(finding("sum b0:bf16[2x3] -> b0:bf16[2x2]"), "y is [2x2], x [2x3]\n");
  EXPECT_EQ(finding("top_k(count=2,routed=1,of_group=0) b0:fp32[4x8] -> b0:fp32[4x2] b0:int64[4x2]"), "");
  EXPECT_EQ(finding("top_k(count=2,routed=1,of_group=0) b0:fp32[4x8] -> b0:fp32[4x2] b0:int64[2x4]"),
            "ids is [2x4], values [4x2]: not the same rows\n");
  EXPECT_EQ(finding("token_map b0:bool[3x8] -> b0:int32[4x17]"),
            "routing_map is [3x8], row_map [4x17]: not the same rows\n");
  EXPECT_EQ(finding("scatter(number=1) - b0:int64[8] - -> b0:bool[1x8]"), "ids is [8], y [1x8]: not the same rows\n");
  EXPECT_EQ(finding("swiglu b0:bf16[2x6] - -> b0:bf16[2x3]"), "");
  EXPECT_EQ(finding("swiglu b0:bf16[2x6] - -> b0:bf16[2x6]"), "y is [2x6], half of x [2x3]\n");
  EXPECT_EQ(finding("matmul(scale=1) b0:bf16[2x3] b0:bf16[3x4/1x3] - b0:bf16[2x4] -> b0:bf16[2x4]"), "");
  EXPECT_EQ(finding("matmul(scale=1) b0:bf16[2x3] b0:bf16[4x3] - - -> b0:bf16[2x4]"),
            "a is [2x3], b [4x3]: they have no product\n");
  EXPECT_EQ(finding("matmul(scale=1) b0:bf16[2x3] b0:bf16[3x4] - - -> b0:bf16[4x2]"), "c is [4x2], a times b [2x4]\n");
  EXPECT_EQ(finding("matmul(scale=1) b0:bf16[2x3] b0:fp32[3x4] - - -> b0:bf16[2x4]"),
            "a is bf16, b fp32: no product takes two types\n");
  EXPECT_EQ(finding("attention(scale=1,causal=1,dropout=0) b0:bf16[1x2x4x8] b0:bf16[1x2x3x8] b0:bf16[1x2x3x8] - -> "
                    "b0:bf16[1x2x4x8] - - -"),
            "q is [1x2x4x8], k [1x2x3x8], v [1x2x3x8]\n");
  EXPECT_EQ(finding("fill(value=0) -> b0+256:fp32[64]"), "");
  EXPECT_EQ(finding("fill(value=0) -> b0+260:fp32[64]"), "reaches to byte 516 of b0, which has 512\n");
}

TEST(VerifyWorkload, MembersCallTheSameCollectivesInTheSameOrder) {
  const std::string reduce = "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n";
  const std::string gather = "collective s0 g0 all_gather bool 512 b0 -> b1\n";
  EXPECT_EQ(between(reduce + gather, reduce + gather), "");
  EXPECT_EQ(between(reduce + gather, gather + reduce), differ);
  EXPECT_EQ(between(reduce, "collective s0 g0 all_reduce sum bool 256 b0 -> b0\n"), differ);
  EXPECT_EQ(between(reduce, reduce + reduce), differ);
  EXPECT_EQ(between(reduce + reduce, reduce), differ);
  EXPECT_EQ(between("", reduce), differ);
}

TEST(VerifyWorkload, AMemberThatNeverCallsIsMissed) {
  EXPECT_EQ(between("collective s0 g0 all_reduce sum bool 512 b0 -> b0\n", ""), differ);
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
  const Program end =
      parse_program(start + "create communicator g0\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n");
  const Workload job{{end, parse_program(start)}, {0, 1, 0}, {{"ends", {{2, 1, 2}}}}};
  EXPECT_EQ(joined(verify(job)), "");
}

// ---- uneven collectives

TEST(VerifyWorkload, UnevenSizesBelongToTheCallAndNotToAMember) {
  // Rank 0 keeps 512 bytes, sends 256 and gets 512; the larger sides are 1024 and 768 bytes.
  EXPECT_EQ(between("collective s0 g0 all_to_all bool 1024 b1 -> b0 m0 sends 512 256 receives 512 512\n",
                    "collective s0 g0 all_to_all bool 768 b1 -> b0 m0 sends 512 256 receives 256 256\n"),
            "");
  EXPECT_EQ(between("collective s0 g0 all_gather bool 384 b1 -> b0 m4 sends 128 128 receives 128 256\n",
                    "collective s0 g0 all_gather bool 384 b1 -> b0 m4 sends 256 256 receives 128 256\n"),
            "");
  EXPECT_EQ(between("collective s0 g0 reduce_scatter sum bool 384 b1 -> b0 m4 sends 128 256 receives 128 128\n",
                    "collective s0 g0 reduce_scatter sum bool 384 b1 -> b0 m4 sends 128 256 receives 256 256\n"),
            "");
}

TEST(VerifyWorkload, WhatOneSendsIsWhatTheOtherReceives) {
  EXPECT_EQ(between("collective s0 g0 all_to_all bool 1024 b1 -> b0 m0 sends 512 256 receives 512 512\n",
                    "collective s0 g0 all_to_all bool 768 b1 -> b0 m0 sends 512 256 receives 200 256\n"),
            "all_to_all m0: rank 0 (place 0 in communicator pair) sends 256 bytes to rank 1 (place 1 in communicator "
            "pair), which receives 200 from it\n");
  EXPECT_EQ(between("collective s0 g0 all_to_all bool 512 b1 -> b0 m0 sends 512 receives 512\n",
                    "collective s0 g0 all_to_all bool 768 b1 -> b0 m0 sends 512 256 receives 256 256\n"),
            "all_to_all m0: rank 0 (place 0 in communicator pair) sends to 1 places and receives from 1, in a group of "
            "2\n");
}

TEST(VerifyWorkload, MembersCallTheSameMatrices) {
  const std::string first = "collective s0 g0 all_to_all bool 512 b1 -> b0 m0 sends 256 256 receives 256 256\n";
  const std::string second = "collective s0 g0 all_to_all bool 512 b1 -> b0 m1 sends 256 256 receives 256 256\n";
  EXPECT_EQ(between(first + second, first + second), "");
  EXPECT_EQ(between(first + second, second + first), differ);
  EXPECT_EQ(between(first, "collective s0 g0 all_to_all bool 512 b1 -> b0\n"), differ);
}

// Groups of one communicator have values of their own.
TEST(VerifyWorkload, EachGroupIsCheckedByItself) {
  const auto says = [](const std::string& row) {
    return parse_program(
        "create communicator g0\nalloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a\n"
        "collective s0 g0 all_to_all bool " +
        row + "\n");
  };
  const Workload job{
      {says("300 b0 -> b1 m0 sends 0 100 receives 0 300"), says("300 b0 -> b1 m0 sends 300 0 receives 100 0"),
       says("400 b0 -> b1 m0 sends 400 0 receives 150 0")},
      {0, 1, 0, 2},
      {{"pair", {{2, 1}}}}};
  EXPECT_EQ(joined(verify(job)),
            "all_to_all m0: rank 2 (place 0 in communicator pair) sends 100 bytes to rank 3 (place 1 in communicator "
            "pair), which receives 150 from it\n"
            "all_to_all m0: rank 3 (place 1 in communicator pair) sends 400 bytes to rank 2 (place 0 in communicator "
            "pair), which receives 300 from it\n");
}

TEST(Verify, ARowFitsItsCollective) {
  const std::string start = "create communicator g0\nalloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a\n";
  const auto reported = [&](const std::string& line) { return findings(start + "collective s0 g0 " + line + "\n"); };
  EXPECT_EQ(reported("all_to_all bool 3 b0 -> b1 m0 sends 1 2 receives 0 3"), "");
  EXPECT_NE(
      reported("all_gather bool 3 b0 -> b1 m0 sends 1 2 receives 1 2").find("an all-gather sends everyone the same"),
      std::string::npos);
  EXPECT_NE(
      reported("reduce_scatter sum bool 3 b0 -> b1 m0 sends 1 2 receives 1 2").find("receives as much from everyone"),
      std::string::npos);
  EXPECT_NE(reported("broadcast bool 0 b0 -> b1 m0 sends receives").find("has no parts that could be uneven"),
            std::string::npos);
  EXPECT_NE(
      reported("all_to_all bool 3 b0 -> b1 m0 sends 1 2 receives 0 3\ncollective s0 g0 all_to_all bool 3 b0 -> b1 m0 "
               "sends 2 1 "
               "receives 0 3")
          .find("another row of its matrix came before it"),
      std::string::npos);
}

// ---- spaces

TEST(Verify, KernelsAndCommunicatorsWorkOnTheDevice) {
  const std::string start = "create communicator g0\nalloc b0 512 temporaries s0 a pinned\n";
  for (const std::string use : {"launch s0 fill(value=0) -> b0:bool[1]", "collective s0 g0 broadcast bool 1 b0 -> b0",
                                "exchange s0 g0 send +1 b0"})
    EXPECT_EQ(findings(start + use), "op 2: " + use + ": b0 is in pinned memory of the host\n");
}

TEST(Verify, CopiesGoBetweenTheDeviceAndItsHost) {
  const std::string start =
      "alloc b0 512 temporaries s0 a\nalloc b1 256 temporaries s0 a pinned\nalloc b2 512 temporaries s0 a pageable\n"
      "alloc b3 512 temporaries s0 a\nalloc b4 512 temporaries s0 a nvme\n";
  EXPECT_EQ(findings(start + "memcpy s0 256 b0 -> b1\nmemcpy s0 512 b2 -> b0\n"), "");
  EXPECT_EQ(findings(start + "memcpy s0 256 b4 -> b1\nmemcpy s0 512 b2 -> b4\n"), "") << "files are the host's";
  EXPECT_EQ(findings(start + "memcpy s0 512 b0 -> b1\n"),
            "op 5: memcpy s0 512 b0 -> b1: reaches to byte 512 of b1, which has 256\n");
  EXPECT_EQ(findings(start + "memcpy s0 0 b0 -> b1\n"), "op 5: memcpy s0 0 b0 -> b1: size is not positive\n");
  for (const std::string line : {"memcpy s0 1 b0 -> b3", "memcpy s0 1 b1 -> b2", "memcpy s0 1 b0 -> b4"})
    EXPECT_EQ(findings(start + line),
              "op 5: " + line + ": a copy goes from the device or a file to the host, or back\n");
  EXPECT_EQ(findings(start + "free b1\nmemcpy s0 1 b0 -> b1\n"), "op 6: memcpy s0 1 b0 -> b1: b1 is already freed\n");
}

TEST(Verify, CopiesLieWithinTheirBuffers) {
  const std::string start = "alloc b0 512 temporaries s0 a\nalloc b1 256 temporaries s0 a pinned\n";
  EXPECT_EQ(findings(start + "memcpy s0 256 b0+256 -> b1\nmemcpy s0 128 b1+128 -> b0+384\n"), "");
  EXPECT_EQ(findings(start + "memcpy s0 256 b0+257 -> b1\n"),
            "op 2: memcpy s0 256 b0+257 -> b1: reaches to byte 513 of b0, which has 512\n");
}

TEST(Verify, TheHostThreadComputesOnItsOwnMemory) {
  const std::string start =
      "alloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a pinned\nalloc b2 512 temporaries s0 a pageable\n";
  EXPECT_EQ(findings(start + "compute add b1:bool[1] b2:bool[1] -> b2:bool[1]\n"), "");
  EXPECT_EQ(findings(start + "compute fill(value=0) -> b0:bool[1]\n"),
            "op 3: compute fill(value=0) -> b0:bool[1]: b0 is on the device, where the host thread cannot reach it\n");
  const std::string file = "alloc b0 512 temporaries s0 a nvme\n";
  EXPECT_EQ(findings(file + "compute fill(value=0) -> b0:bool[1]\n"),
            "op 1: compute fill(value=0) -> b0:bool[1]: b0 is in a file, where the host thread cannot reach it\n");
  EXPECT_EQ(findings(file + "launch s0 fill(value=0) -> b0:bool[1]\n"),
            "op 1: launch s0 fill(value=0) -> b0:bool[1]: b0 is in a file\n");
}

// It neither reads what has not come, nor overwrites what has not gone.
TEST(Verify, TheHostThreadComputesAfterCopies) {
  const std::string start = "alloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a pinned\n";
  const std::string there = start + "memcpy s1 512 b0 -> b1\n", back = start + "memcpy s1 512 b1 -> b0\n";
  const std::string read = "compute fill(value=0) -> b2:bool[1]\ncompute add b1:bool[1] b2:bool[1] -> b2:bool[1]\n";
  const std::string another = "alloc b2 512 temporaries s0 a pageable\n",
                    write = "compute fill(value=0) -> b1:bool[1]\n";
  const std::string waited = "record e0 s1\nsync e0\n";
  EXPECT_EQ(findings(there + another + waited + read), "");
  EXPECT_EQ(findings(back + waited + write), "");
  EXPECT_EQ(findings(there + another + read),
            "op 5: compute add b1:bool[1] b2:bool[1] -> b2:bool[1]: stream s1 may "
            "still write b1\n");
  EXPECT_EQ(findings(back + write), "op 3: compute fill(value=0) -> b1:bool[1]: stream s1 may still copy b1\n");
  EXPECT_EQ(findings(back + another + read), "");  // both read it
}

TEST(Verify, ACopyOnAnotherStreamUsesTheDevicesBlockThere) {
  const std::string start =
      "alloc b0 512 temporaries s0 a\nalloc b1 512 temporaries s0 a pinned\nmemcpy s1 512 b0 -> b1\n";
  EXPECT_EQ(findings(start + "free b0\n"), "op 3: free b0: stream s1 may still use it\n");
  EXPECT_EQ(findings(start + "record e0 s1\nwait s0 e0\nfree b0\n"), "");
  EXPECT_EQ(findings(start + "free b1\n"), "");  // the host's allocator waits for the copy
}

}  // namespace
}  // namespace tidemark::tests::verify_test
