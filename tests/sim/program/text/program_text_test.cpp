#include "sim/program/text/program_text.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::program_text_test {
namespace {

std::string round_trip(const std::string& line) { return text(parse_program(line)); }

std::string error_of(const std::string& text) {
  try {
    (void)parse_program(text);
    return "no error";
  } catch (const ProgramTextError& error) {
    return error.what();
  }
}

TEST(ProgramText, EveryOpHasALine) {
  for (const std::string line : {
           "alloc b7 100663296 saved_activations s0 layers.0.mlp.fc1\n",
           "free b7\n",
           "borrow b7 s1\n",
           "launch s0 matmul(scale=1) b3:bf16[4096x14336] b5+64:bf16[14336x512/1x14336] - - -> b7:bf16[4096x512] ~ "
           "b9\n",
           "launch s2 attention(scale=0.125,causal=1,dropout=0.1) b1:fp16[1x8x2x4] b2:fp16[1x8x1x4] b3:fp16[1x8x1x4] - "
           "-> "
           "b4:fp16[1x8x2x4] - - -\n",
           "launch s0 fill(value=-1.5) -> b1:fp32[]\n",
           "launch s0 norm b1:bool[1] ->\n",
           "launch s0 fused=4096 silu b1:bf16[2x8] -> b2:bf16[2x8]\n",
           "launch s0 fused=- multiply b1:bf16[2x8] b2:bf16[2x8] -> b3:bf16[2x8]\n",
           "launch s0 copy b1:int64[3/0] -> b2:fp32[3]\n",
           "collective s0 g1 all_reduce average fp32 64 b7+128 -> b7+128\n",
           "collective s0 g1 all_reduce sum bool 64 b7 -> b7\n",
           "collective s0 g1 all_gather bool 64 b7 -> b8\n",
           "collective s0 g1 reduce_scatter sum bool 64 b7 -> b8\n",
           "collective s0 g1 broadcast bool 64 b7 -> b7\n",
           "exchange s1 g0 send +1 b7 receive -1 b9\n",
           "exchange s1 g0\n",
           "exchange s1 g0 send +1 b7[0/2] receive -1 b9[1/2]\n",
           "record e3 s1\n",
           "wait s0 e3\n",
           "sync e3\n",
           "create context\n",
           "create modules\n",
           "create nccl_kernels\n",
           "create communicator g2\n",
           "bind schedule.input_tensors[0] b7\n",
           "unbind schedule.input_tensors[0]\n",
           "mark construction 0 -1 build_model\n",
           "mark forward 1 3 layers.0.mlp.fc1\n",
           "mark backward 2 0 head\n",
           "mark optimizer_step 2 -1 update\n",
           "mark communication 2 -1 gather\n",
       })
    EXPECT_EQ(round_trip(line), line);
}

TEST(ProgramText, EveryOperationAndCategoryHasAWord) {
  for (const OperationFacts& facts : all_operations()) {
    std::string attributes;
    for (std::size_t i = 0; i < facts.attributes.size(); ++i)
      attributes += fmt::format("{}{}={}", i == 0 ? "(" : ",", facts.attributes[i], 0.25);
    if (!facts.attributes.empty()) attributes += ")";
    const std::string line = fmt::format("launch s0 {}{} b0:fp16[2x3] -> b1:fp16[2x3]\n", facts.name, attributes);
    EXPECT_EQ(round_trip(line), line);
  }
  for (const std::string_view category : category_names) {
    const std::string line = "alloc b0 1 " + std::string(category) + " s0 x\n";
    EXPECT_EQ(round_trip(line), line);
  }
}

TEST(ProgramText, ALineMeansItsOp) {
  const Program program = parse_program(R"(alloc b0 512 comm_pp s3 received
launch s0 scale(factor=0.5) b0+4:fp32[2x3] -> b1:fp32[2x3/1x2]
exchange s1 g4 send +1 b0 receive -2 b1
mark backward 2 5 head)");
  ASSERT_EQ(program.ops.size(), 4u);
  EXPECT_EQ(std::get<Alloc>(program.ops[0]),
            (Alloc{BufferId{0}, Bytes{512}, Category::CommPp, StreamId{3}, LabelId{0}}));
  EXPECT_EQ(program[LabelId{0}], "received");
  const Launch& launch = std::get<Launch>(program.ops[1]);
  const Kernel& kernel = program[launch.kernel];
  EXPECT_EQ(kernel.operation, Operation::Scale);
  EXPECT_EQ(kernel.attributes[0], 0.5);
  EXPECT_EQ(program[kernel.inputs[0]], (View{DType::FP32, {2, 3}, {3, 1}}));
  EXPECT_EQ(program[kernel.outputs[0]], (View{DType::FP32, {2, 3}, {1, 2}}));
  EXPECT_EQ(program[launch.inputs][0].buffer, BufferId{0});
  EXPECT_EQ(program[program[launch.inputs][0].offset], Bytes{4});
  EXPECT_EQ(program[launch.outputs][0], Operand(BufferId{1}));
  const Exchange& exchange = std::get<Exchange>(program.ops[2]);
  EXPECT_EQ(exchange.comm, CommSlot{4});
  EXPECT_EQ(program[exchange.transfers][1], (Transfer{Direction::Receive, -2, BufferId{1}}));
  EXPECT_EQ(std::get<Mark>(program.ops[3]), (Mark{Phase::Backward, 2, 5, LabelId{1}}));
  EXPECT_EQ(program.buffers, 1);  // what is allocated counts, not what is named
}

TEST(ProgramText, BlankLinesAndCommentsAreSkipped) {
  EXPECT_EQ(text(parse_program("\n# a comment\n   \nfree b1\n\n")), "free b1\n");
  EXPECT_EQ(text(parse_program("")), "");
}

TEST(ProgramText, EqualTextsGiveEqualPrograms) {
  const std::string lines =
      "alloc b0 1 context s0 x\nlaunch s0 fill(value=0) -> b0:bool[1]\nlaunch s0 fill(value=0) -> b0:bool[1]\nbind n "
      "b0\nunbind n\n";
  EXPECT_EQ(parse_program(lines), parse_program(lines));
  EXPECT_EQ(parse_program(lines).kernels.size(), 1u);  // interned
  EXPECT_NE(parse_program(lines), parse_program(lines + "free b0\n"));
}

TEST(ProgramText, ErrorsNameTheLineAndWhatIsWrong) {
  EXPECT_EQ(error_of("free b0\nfly b1"), "line 2: 'fly' is no op");
  EXPECT_EQ(error_of("\n\nfree"), "line 3: buffer is missing");
  EXPECT_EQ(error_of("free 7"), "line 1: '7' is no buffer");
  EXPECT_EQ(error_of("free b"), "line 1: 'b' is no buffer");
  EXPECT_EQ(error_of("free b-1"), "line 1: 'b-1' is no buffer");
  EXPECT_EQ(error_of("free b1x"), "line 1: '1x' is no buffer");
  EXPECT_EQ(error_of("free b99999999999"), "line 1: '99999999999' is no buffer");
  EXPECT_EQ(error_of("free b999999999"),
            "line 1: 'b999999999' is out of reach: the number of a buffer has to be below 65536");
  EXPECT_EQ(error_of("record e0 s256"), "line 1: 's256' is out of reach: the number of a stream has to be below 256");
  EXPECT_EQ(error_of("exchange s0 g0 send 1000000000 b0"), "line 1: a step of 1000000000 leads nowhere");
  EXPECT_EQ(error_of("free b1 b2"), "line 1: more words than the op has");
  EXPECT_EQ(error_of("borrow b1 g0"), "line 1: 'g0' is no stream");
  EXPECT_EQ(error_of("alloc b0 12 lunch s0 x"), "line 1: 'lunch' is no category");
  EXPECT_EQ(error_of("alloc b0 12.5 context s0 x"), "line 1: '12.5' is no number of bytes");
  EXPECT_EQ(error_of("alloc b0 12 context s0"), "line 1: label is missing");
  EXPECT_EQ(error_of("launch s0 fused=-8 copy b0:bool[1] -> b1:bool[1]"), "line 1: no kernel moves -8 bytes");
  EXPECT_EQ(error_of("launch s0 fused=all copy b0:bool[1] -> b1:bool[1]"), "line 1: 'all' is no bytes");
  EXPECT_EQ(error_of("launch s0 fused=8"), "line 1: operation is missing");
  EXPECT_EQ(error_of("launch s0 dance b0:bf16[1] -> b1:bf16[1]"), "line 1: 'dance' is no operation");
  EXPECT_EQ(error_of("launch s0 scale b0:bf16[1] -> b1:bf16[1]"), "line 1: scale takes factor, not 'scale'");
  EXPECT_EQ(error_of("launch s0 scale(factor=much) b0:bf16[1] -> b1:bf16[1]"), "line 1: 'much' is no number");
  EXPECT_EQ(error_of("launch s0 copy(factor=1) -> b1:bf16[1]"), "line 1: 'copy(factor=1)' is more than copy takes");
  EXPECT_EQ(error_of("launch s0 copy b0 -> b1"), "line 1: 'b0' says no type and sizes, such as b0:bf16[8x16]");
  EXPECT_EQ(error_of("launch s0 copy b0:bf17[1] -> b1"), "line 1: 'bf17' is no dtype");
  EXPECT_EQ(error_of("launch s0 copy b0:bf16[1xx2] -> b1"), "line 1: '' is no size");
  EXPECT_EQ(error_of("launch s0 copy b0:bf16[1x2/1] -> b1"), "line 1: 'b0:bf16[1x2/1]' has 2 sizes and 1 strides");
  EXPECT_EQ(error_of("launch s0 copy b0:bf16[1x1x1x1x1x1x1] -> b1"), "line 1: '1x1x1x1x1x1x1' has more than 6 sizes");
  EXPECT_EQ(error_of("launch s0 copy b0:bf16[9999999x9999999] -> b1"),
            "line 1: 'b0:bf16[9999999x9999999]' is larger than any memory");
  EXPECT_EQ(error_of("launch s0 copy b0+-4:bf16[1] -> b1"), "line 1: 'b0+-4' begins in no buffer");
  EXPECT_EQ(error_of("collective s0 g0 gossip 1 b0 -> b1"), "line 1: 'gossip' is no collective");
  EXPECT_EQ(error_of("collective s0 g0 broadcast bool 1 b0 b1"), "line 1: 'b1' where '->' was expected");
  EXPECT_EQ(error_of("exchange s0 g0 send +1 b0[2/2]"), "line 1: 'b0[2/2]' is none of the buffer's parts");
  EXPECT_EQ(error_of("exchange s0 g0 send +1 b0[1]"), "line 1: 'b0[1]' is no part of a buffer, such as b0[1/2]");
  EXPECT_EQ(error_of("exchange s0 g0 throw +1 b0"), "line 1: 'throw' is neither send nor receive");
  EXPECT_EQ(error_of("create havoc"), "line 1: 'havoc' is no driver resource");
  EXPECT_EQ(error_of("mark lunch 1 0 x"), "line 1: 'lunch' is no phase");
  EXPECT_EQ(error_of("mark forward one 0 x"), "line 1: 'one' is no step");
  EXPECT_NE(error_of("launch s0 fill(value=0) 1 -> b0:bool[1]"), "no error");
  EXPECT_NE(error_of("launch s0 fill(value=0) b0:bool[1]"), "no error");
}

TEST(ProgramText, ErrorsCarryTheirLine) {
  try {
    (void)parse_program("free b0\n# comment\nfree");
    FAIL();
  } catch (const ProgramTextError& error) {
    EXPECT_EQ(error.line(), 3);
  }
}

TEST(ProgramText, OtherWhiteSpaceNeverReachesALabel) {
  EXPECT_EQ(round_trip("alloc b0 512\tcontext s0 x\r\n"), "alloc b0 512 context s0 x\n");
  EXPECT_EQ(error_of("alloc b0 512 context s0 a\tb"), "line 1: 'b' is no space");
}

TEST(ProgramText, UnevenCollectivesNameTheirRow) {
  const std::string lines =
      "collective s0 g1 all_to_all bool 768 b0 -> b1 m2 sends 256 512 receives 256 0\n"
      "collective s0 g1 all_gather bool 0 b0 -> b1 m0 sends receives\n"
      "collective s0 g1 all_to_all bool 768 b0 -> b1 m2 sends 256 512 receives 256 0\n";
  const Program program = parse_program(lines);
  EXPECT_EQ(text(program), lines);
  EXPECT_EQ(program.rows.size(), 2u);  // interned
  EXPECT_EQ(program[std::get<Collective>(program.ops[2]).row],
            (MatrixRow{MatrixId{2}, {Bytes{256}, Bytes{512}}, {Bytes{256}, Bytes{0}}}));
  EXPECT_EQ(error_of("collective s0 g1 all_to_all bool 767 b0 -> b1 m2 sends 256 512 receives 256 0"),
            "line 1: the larger side holds 768 bytes, not 767");
  EXPECT_EQ(error_of("collective s0 g1 all_to_all bool 1 b0 -> b1 m2 sends 256"), "line 1: receives is missing");
  EXPECT_EQ(error_of("collective s0 g1 all_to_all bool 1 b0 -> b1 x2 sends 256"), "line 1: 'x2' is no matrix");
  EXPECT_EQ(error_of("collective s0 g1 all_to_all bool 1 b0 -> b1 m2 sends -1"), "line 1: nobody sends -1 bytes");
}

TEST(ProgramText, SpacesAndCopiesRoundTrip) {
  const std::string lines =
      "alloc b0 512 temporaries s0 x pinned\nalloc b1 512 temporaries s0 x pageable\nalloc b2 512 temporaries s0 x\n"
      "memcpy s1 256 b2 -> b0\nmemcpy s1 64 b2+128 -> b0+8\ncompute copy b0:bool[1] -> b1:bool[1]\n"
      "launch s0 fill(value=0) -> b2:bool[1]\nalloc b3 512 temporaries s0 x registers\n"
      "alloc b4 512 temporaries s0 x nvme\nmemcpy s1 64 b4 -> b1\n";
  const Program program = parse_program(lines);
  EXPECT_EQ(text(program), lines);
  EXPECT_EQ(std::get<Alloc>(program.ops[1]).space, MemorySpace::Pageable);
  EXPECT_EQ(std::get<Memcpy>(program.ops[3]), (Memcpy{StreamId{1}, BufferId{2}, BufferId{0}, Bytes{256}}));
  EXPECT_FALSE(std::get<Launch>(program.ops[5]).stream.valid());
  EXPECT_EQ(program[std::get<Launch>(program.ops[5]).kernel].processor, Processor::Host);
  EXPECT_EQ(program[std::get<Launch>(program.ops[6]).kernel].processor, Processor::Device);
  EXPECT_EQ(error_of("alloc b0 512 temporaries s0 x attic"), "line 1: 'attic' is no space");
  EXPECT_EQ(error_of("memcpy s1 b2 -> b0"), "line 1: 'b2' is no number of bytes");
}

}  // namespace
}  // namespace tidemark::tests::program_text_test
