#include "parallel/torch/process.hpp"

#include "tests/parallel/torch/written.hpp"

namespace tidemark::tests::process_test {
namespace {

using namespace parallel::torch;

Tensor make(Session& s, std::string_view name) { return s.empty({8}, DType::BF16, name); }
void copy(Session& s, const Tensor& from, const Tensor& to) { s.launch(Operation::Copy, {from}, {to}); }

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
            "launch s0 copy b0:bf16[8] -> b1:bf16[8]\n"
            "free b1\n"
            "launch s0 copy b0:bf16[8] -> b0:bf16[8]\n"
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
            "launch s0 copy b0:bf16[8] -> b1:bf16[8]\n"
            "alloc b2 16 temporaries s0 z\n"
            "bind released b0\n"
            "unbind released\n"
            "free b0\n"
            "launch s0 copy b1:bf16[8] -> b2:bf16[8]\n"
            "free b1\n"
            "free b2\n");
}

TEST(Process, LendsATensorOfOneStreamToAnother) {
  EXPECT_EQ(text(written([](Session& s) {
              const StreamId side{2};
              Tensor x = [&] {
                const OnStream on(s, side);
                return make(s, "x");
              }();
              const Tensor y = make(s, "y");
              s.process.wait(Process::compute_stream, s.process.record(side));
              copy(s, x, y);
              s.record_stream(x, Process::compute_stream);
              x = {};
              const OnStream on(s, side);
              const Tensor z = make(s, "z");
            })),
            "alloc b0 16 temporaries s2 x\n"
            "alloc b1 16 temporaries s0 y\n"
            "record e0 s2\n"
            "wait s0 e0\n"
            "launch s0 copy b0:bf16[8] -> b1:bf16[8]\n"
            "borrow b0 s0\n"
            "free b0\n"
            "alloc b2 16 temporaries s2 z\n"
            "free b2\n"
            "bind released b1\n"
            "unbind released\n"
            "free b1\n");
}

// What another stream may still use is freed once this one waits for it.
TEST(Process, KeepsATensorUntilTheStreamThatUsesItIsWaitedFor) {
  const auto summed = [](Session& s) {
    Tensor x = make(s, "x");
    const EventId sum = s.collective_aside(CommSlot{0}, CollectiveKind::AllReduce, x, x);
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
}  // namespace tidemark::tests::process_test
