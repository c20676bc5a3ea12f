#include "parallel/torch/process.hpp"

#include <functional>

#include <gtest/gtest.h>

#include "parallel/torch/session.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

using namespace parallel::torch;

// What a session writes, frees included.
Program written(const std::function<void(Session&)>& run) {
  const std::vector<Communicator> pair{{"pair", {{.size = 2, .stride = 1}}}};
  Process process(pair, Bytes{});
  {
    Session session(process, {});
    run(session);
    session.finish();
  }
  const Program program = with_frees(std::move(process).finish());
  EXPECT_EQ(verify(program), std::vector<std::string>{});
  return program;
}

Tensor make(Session& s, std::string_view name) { return s.empty({8}, DType::BF16, name); }
void copy(Session& s, const Tensor& from, const Tensor& to) { s.stream(Streaming::Copy, {from}, {to}); }

TEST(Process, SaysNothingOfATensorThatGoesBeforeMemoryIsAskedForAgain) {
  EXPECT_EQ(text(written([](Session& s) {
              const Tensor x = make(s, "x");
              Tensor y = make(s, "y");
              copy(s, x, y);
              copy(s, x, x);
              y = {};
            })),
            "alloc b0 16 temporaries s0 x\n"
            "alloc b1 16 temporaries s0 y\n"
            "launch s0 copy 16+16 b0 -> b1\n"
            "free b1\n"
            "launch s0 copy 16+16 b0 -> b0\n"
            "free b0\n");
}

TEST(Process, FreesATensorThatOutlivesItsLastUseWhereItGoes) {
  EXPECT_EQ(text(written([](Session& s) {
              Tensor x = make(s, "x");
              const Tensor y = make(s, "y");
              copy(s, x, y);
              const Tensor z = make(s, "z");
              x = {};
              copy(s, y, z);
            })),
            "alloc b0 16 temporaries s0 x\n"
            "alloc b1 16 temporaries s0 y\n"
            "launch s0 copy 16+16 b0 -> b1\n"
            "alloc b2 16 temporaries s0 z\n"
            "bind released b0\n"
            "unbind released\n"
            "free b0\n"
            "launch s0 copy 16+16 b1 -> b2\n"
            "free b1\n"
            "free b2\n");
}

// What another stream may still use is freed once this one waits for it.
TEST(Process, KeepsATensorUntilTheStreamThatUsesItIsWaitedFor) {
  const auto summed = [](Session& s) {
    Tensor x = make(s, "x");
    const EventId sum =
        s.process.collective_aside(CommSlot{0}, CollectiveKind::AllReduce, x.buffer(), x.buffer(), x.bytes());
    s.process.join(sum);
    x = {};
  };
  EXPECT_TRUE(text(written(summed)).ends_with("wait s0 e1\nbind released b0\nunbind released\nfree b0\n"))
      << text(written(summed));
}

TEST(Process, CallsWhatItKeepsByItsLabel) {
  EXPECT_EQ(text(written([](Session& s) {
              const Tensor weight = s.empty({8}, DType::BF16, "weight", Category::Parameters);
              const Tensor moment = s.empty({8}, DType::BF16, "moment", Category::OptimizerMoments);
              Tensor replaced = s.empty({8}, DType::BF16, "moment", Category::OptimizerMoments);
              replaced = {};
              const Tensor loss = make(s, "loss");
              s.finish();
            })),
            "alloc b0 16 parameters s0 weight\n"
            "bind weight b0\n"
            "alloc b1 16 optimizer_moments s0 moment\n"
            "bind moment b1\n"
            "alloc b2 16 optimizer_moments s0 moment\n"
            "bind moment[1] b2\n"
            "unbind moment[1]\n"
            "free b2\n"
            "alloc b3 16 temporaries s0 loss\n"
            "bind loss b3\n");
}

}  // namespace
}  // namespace tidemark::tests
