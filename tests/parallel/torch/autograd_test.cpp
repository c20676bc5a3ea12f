#include "parallel/torch/autograd.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/torch/checkpoint.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/stage_3_linear.hpp"
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

// The first sizes of what is unpacked, in order. No two of a case are equal.
struct PredictionDetail final : PackedTensor {
  PredictionDetail(const Tensor& tensor, std::vector<std::int64_t>& order)
      : tensor_(tensor.detached()), order_(order) {}
  Tensor unpack(Session&) override {
    order_.push_back(tensor_.sizes.front());
    return tensor_;
  }
  Tensor tensor_;
  std::vector<std::int64_t>& order_;
};

std::vector<std::int64_t> unpacked_by(
    const std::function<Tensor(Session&, const Tensor& narrow, const Tensor& wide)>& op) {
  std::vector<std::int64_t> order;
  (void)written([&](Session& s) {
    const auto of_rows = [&](std::int64_t count) {
      const Tensor made = s.empty({count, width}, DType::BF16, "x");
      s.launch(Operation::Initialize, {}, {made});
      return leaf(s, made)->value;
    };
    Tensor out;
    {
      const SavedTensorsHooks hooks(
          s, [&](const Tensor& tensor) { return std::make_unique<PredictionDetail>(tensor, order); });
      out = op(s, of_rows(1), of_rows(rows));
    }
    const Tensor gradient = s.empty(out.sizes, out.dtype, "gradient");
    s.launch(Operation::Initialize, {}, {gradient});
    backward(s, out, gradient);
  });
  return order;
}

// torch/csrc/autograd/generated/Functions.cpp has them in the order of their names: mat1 and mat2 of addmm, mat2 and
// self of mm and bmm, other and self of mul.
TEST(SavedTensorsHooks, NodesUnpackInTheOrderOfNames) {
  using Order = std::vector<std::int64_t>;
  EXPECT_EQ(unpacked_by([](Session& s, const Tensor& a, const Tensor& b) { return linear(s, a, b, {}); }),
            (Order{width, 1}))
      << "mat2, which is transposed, and self";
  EXPECT_EQ(unpacked_by([](Session& s, const Tensor& a, const Tensor& b) {
              const Tensor bias = s.empty({rows}, DType::BF16, "bias");
              s.launch(Operation::Initialize, {}, {bias});
              return linear(s, a, b, leaf(s, bias)->value);
            }),
            (Order{1, width}))
      << "mat1 and mat2";
  EXPECT_EQ(unpacked_by([](Session& s, const Tensor& a, const Tensor& b) { return mul(s, a, b); }), (Order{rows, 1}))
      << "other and self";
}

// validate_outputs sums a gradient over repeated dimensions once the node's function has returned.
TEST(Autograd, ABiasIsSummedWhenWhatItsProductUnpackedIsGone) {
  const Program program = written([](Session& s) {
    const Tensor bias = s.empty({width}, DType::BF16, "bias");
    s.launch(Operation::Initialize, {}, {bias});
    Tensor out;
    {
      const SavedTensorsHooks hooks(s, [](const Tensor& tensor) { return std::make_unique<MadeAnew>(tensor); });
      out = linear(s, leaf(s, matrix(s, "x"))->value, weight(s, "a")->value, leaf(s, bias)->value);
    }
    run_backward(s, out);
  });
  std::map<BufferId, std::string> live;
  bool summed = false;
  for (const Op& op : program.ops) {
    if (const Alloc* alloc = std::get_if<Alloc>(&op)) {
      const std::string& label = live[alloc->buffer] = program[alloc->label];
      if (!label.ends_with("sum")) continue;
      summed = true;
      for (const auto& [buffer, its] : live) EXPECT_FALSE(its.ends_with("made_anew")) << its;
    }
    if (const Free* free = std::get_if<Free>(&op)) live.erase(free->buffer);
  }
  EXPECT_TRUE(summed);
}

// input_buffer.cpp can_accumulate_inplace has plain tensors alone.
TEST(Autograd, GradientsThatAreDTensorsAreNotSummedInPlace) {
  const auto sums = [](bool of_dtensor) {
    return count(written([&](Session& s) {
                   const Tensor x = tanh(s, leaf(s, matrix(s, "x"))->value);
                   x.gradient.node->of_dtensor = of_dtensor;
                   const Tensor all = tanh(s, x), more = tanh(s, x), most = tanh(s, x);
                   run_backward(s, add(s, add(s, all, more), most));
                 }),
                 "add") -
           2;  // of the forward pass
  };
  EXPECT_EQ(sums(false), 0);
  EXPECT_EQ(sums(true), 2);
}

// mm's own backward pass begins with the weight.
TEST(Autograd, DeepSpeedsLinearBeginsWithItsInputsGradient) {
  const auto gradients = [](Tensor (*product)(Session&, const Tensor&, const Tensor&)) {
    const Program program = written(
        [&](Session& s) { run_backward(s, product(s, leaf(s, matrix(s, "x"))->value, weight(s, "a")->value)); });
    std::string order;
    for (const Op& op : program.ops)
      if (const Alloc* alloc = std::get_if<Alloc>(&op))
        for (const std::string_view which : {"input_gradient", "weight_gradient"})
          if (program[alloc->label].ends_with(which)) order += std::string(which) + " ";
    return order;
  };
  EXPECT_EQ(gradients([](Session& s, const Tensor& x, const Tensor& a) { return linear(s, x, a, {}); }),
            "weight_gradient input_gradient ");
  EXPECT_EQ(gradients(linear_of_stage_3), "input_gradient weight_gradient ");
}

// autocast_mode.h has layer_norm among what runs in fp32: parameters in a narrower type, as a wrapper shows them, are
// converted as its input is, and all three are saved.
TEST(Autograd, ALayerNormUnderAutocastSavesParametersInFp32) {
  const Program program = written([](Session& s) {
    const auto vector = [&](std::string_view name) {
      const Tensor made = s.empty({width}, DType::BF16, name, Category::Parameters);
      s.launch(Operation::Initialize, {}, {made});
      return leaf(s, made);
    };
    const auto scale = vector("scale"), shift = vector("shift");
    const Autocast autocast(s, DType::BF16);
    const Tensor out = layer_norm(s, matrix(s, "x"), scale->value, shift->value);
    EXPECT_EQ(out.dtype, DType::FP32);
    backward(s, out, to(s, matrix(s, "gradient"), DType::FP32));
    EXPECT_EQ(scale->gradient.dtype, DType::BF16);
  });
  EXPECT_EQ(count(program, Category::SavedActivations), 5) << "input, scale, shift, means and deviations";
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
