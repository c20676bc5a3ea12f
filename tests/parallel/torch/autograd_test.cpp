#include "parallel/torch/autograd.hpp"

#include <map>

#include "parallel/torch/aten.hpp"
#include "parallel/torch/checkpoint.hpp"
#include "tests/parallel/torch/written.hpp"

namespace tidemark::tests::autograd_test {
namespace {

using namespace parallel::torch;

constexpr std::int64_t rows = 4, width = 8;

Tensor matrix(Session& s, std::string_view name) {
  const Tensor made = s.empty({rows, width}, DType::BF16, name);
  s.launch(Operation::Initialize, {}, {made});
  return made;
}
std::shared_ptr<Leaf> weight(Session& s, std::string_view name) {
  auto made = leaf(s, s.empty({width, width}, DType::BF16, name, Category::Parameters));
  made->parameter = true;
  return made;
}
void run_backward(Session& s, const Tensor& out) { backward(s, out, matrix(s, "gradient")); }

int count(const Program& program, Category category) {
  int found = 0;
  for (const Op& op : program.ops)
    if (const Alloc* alloc = std::get_if<Alloc>(&op)) found += alloc->category == category ? 1 : 0;
  return found;
}
// Of labels that end so: nodes run in the scope in which they were made.
int count(const Program& program, const std::string& label) {
  int found = 0;
  for (const Op& op : program.ops)
    if (const Alloc* alloc = std::get_if<Alloc>(&op)) found += program[alloc->label].ends_with(label) ? 1 : 0;
  return found;
}

enum class First : std::uint8_t { Trained, Frozen };

// y = tanh(x A^T) B^T.
Program two_layers(First first) {
  return written([&](Session& s) {
    const auto a = weight(s, "a"), b = weight(s, "b");
    if (first == First::Frozen) a->value.gradient = {};  // requires_grad_(False)
    const Tensor none;
    const Tensor out = linear(s, tanh(s, linear(s, matrix(s, "x"), a->value, none)), b->value, none);
    run_backward(s, out);
    EXPECT_EQ(a->gradient.defined(), first == First::Trained);
    EXPECT_TRUE(b->gradient.defined());
  });
}

// A weight's gradient needs its input, an activation's its output; who asks for neither saves neither.
TEST(Autograd, AFrozenLayerSavesNothing) {
  const Program trained = two_layers(First::Trained), frozen = two_layers(First::Frozen);
  EXPECT_EQ(count(trained, Category::SavedActivations), 2) << "x and tanh's output";
  EXPECT_EQ(count(frozen, Category::SavedActivations), 1) << "tanh's output, which is the second layer's input";
  EXPECT_EQ(count(trained, Category::Gradients), 2);
  EXPECT_EQ(count(frozen, Category::Gradients), 1);
  EXPECT_EQ(count(trained, "tanh_gradient"), 1);
  EXPECT_EQ(count(frozen, "tanh_gradient"), 0);
}

// A frozen layer behind a trained one passes gradients on, for which it needs its weight alone.
TEST(Autograd, AFrozenLayerBehindATrainedOneKeepsOnlyItsWeight) {
  const Program program = written([](Session& s) {
    const auto a = weight(s, "a"), b = weight(s, "b");
    b->value.gradient = {};
    const Tensor none;
    run_backward(s, linear(s, linear(s, matrix(s, "x"), a->value, none), b->value, none));
    EXPECT_TRUE(a->gradient.defined());
    EXPECT_FALSE(b->gradient.defined());
  });
  EXPECT_EQ(count(program, Category::SavedActivations), 1) << "x";
  EXPECT_EQ(count(program, "input_gradient"), 1);
}

// Keeps nothing, and makes the tensor anew.
struct MadeAnew final : PackedTensor {
  explicit MadeAnew(const Tensor& tensor) : sizes(tensor.sizes) {}
  Tensor unpack(Session& s) override { return s.empty(sizes, DType::BF16, "made_anew"); }
  Shape sizes;
};

TEST(SavedTensorsHooks, PackWhatIsSavedWhileTheyAreThere) {
  int packed = 0;
  const Program program = written([&](Session& s) {
    const Tensor x = leaf(s, matrix(s, "x"))->value;
    Tensor out;
    {
      const SavedTensorsHooks hooks(s, [&](const Tensor& tensor) {
        ++packed;
        return std::make_unique<MadeAnew>(tensor);
      });
      out = tanh(s, x);
    }
    run_backward(s, tanh(s, out));
  });
  EXPECT_EQ(packed, 1);
  EXPECT_EQ(count(program, "made_anew"), 1);
  EXPECT_EQ(count(program, Category::SavedActivations), 1) << "the second output";
}

TEST(SavedTensorsHooks, MaySaveATensorAsItIs) {
  const Program program = written([&](Session& s) {
    const SavedTensorsHooks hooks(s, [](const Tensor&) { return nullptr; });
    run_backward(s, tanh(s, leaf(s, matrix(s, "x"))->value));
  });
  EXPECT_EQ(count(program, Category::SavedActivations), 1);
}

using Checkpoint = Tensor (*)(Session&, const Tensor&, Region);

// With the usual options.
Tensor checkpoint_by_hooks(Session& s, const Tensor& input, Region region) {
  return checkpoint(s, input, std::move(region));
}

Program checkpointed(Checkpoint how) {
  return written([&](Session& s) {
    const auto a = weight(s, "a");
    const Region region = [&](const Tensor& x) { return tanh(s, tanh(s, linear(s, x, a->value, {}))); };
    const Tensor x = leaf(s, matrix(s, "x"))->value;
    // The weight is used beside the region, too: its gradients come from within and from without.
    run_backward(s, add(s, how(s, x, region), linear(s, x, a->value, {})));
    EXPECT_TRUE(a->gradient.defined());
  });
}

TEST(Checkpoint, KeepsItsInputAndRunsAgain) {
  const Program program = checkpointed(checkpoint_by_hooks);
  EXPECT_EQ(count(program, Category::SavedActivations), 1) << "x";
  EXPECT_EQ(count(program, "tanh"), 4);
  EXPECT_EQ(count(program, "mm"), 3);
  EXPECT_EQ(count(program, Category::Gradients), 1);
}

TEST(Checkpoint, RunsAgainWithinABackwardFunction) {
  const Program program = checkpointed(checkpoint_reentrant);
  EXPECT_EQ(count(program, Category::SavedActivations), 1) << "x";
  EXPECT_EQ(count(program, "tanh"), 4);
  EXPECT_EQ(count(program, "mm"), 3);
  EXPECT_EQ(count(program, Category::Gradients), 1);
}

// Recomputation stops at the last tensor that was saved: what comes after is not made again.
TEST(Checkpoint, StopsWhereNothingElseIsAskedFor) {
  const auto ran = [](Checkpoint how) {
    return count(written([&](Session& s) {
                   const Region region = [&](const Tensor& x) { return neg(s, tanh(s, x)); };
                   run_backward(s, how(s, leaf(s, matrix(s, "x"))->value, region));
                 }),
                 "neg");
  };
  EXPECT_EQ(ran(checkpoint_by_hooks), 1);
  EXPECT_EQ(ran(checkpoint_reentrant), 2);
}

}  // namespace
}  // namespace tidemark::tests::autograd_test
