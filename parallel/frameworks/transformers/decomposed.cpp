#include <utility>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/indexing.hpp"

// PEFT's DoRA: of what a linear and its adapter make together, each output is scaled by its magnitude, which is
// trained, over the length of its row in the sum of both weights, which is not. That sum is made anew in every pass, in
// the type of the adapter's input, and so is the adapter's own weight, of a unit matrix.
//
// Read in peft 0.21.2: tuners/lora/dora.py DoraLinearLayer, tuners/lora/variants.py DoraLinearVariant.

namespace tidemark::parallel::transformers {
namespace {

// torch.eye.
Tensor unit_matrix(Session& s, std::int64_t size, DType dtype) {
  const Tensor made = zeros(s, {size, size}, dtype);
  Tensor diagonal = made;
  diagonal.sizes = {size};
  diagonal.strides = {size + 1};
  diagonal.view = true;
  s.launch({Operation::Fill, {1}}, {}, {diagonal});
  return made;
}

// torch.linalg.norm(x, dim=1), which autocast makes of fp32.
Tensor lengths_of_rows(Session& s, const Tensor& x) {
  const DType dtype = s.autocast ? DType::FP32 : x.dtype;
  const Tensor squares = s.in_registers(x.sizes, x.strides, dtype, "squares");
  s.launch({Operation::Power, {2}}, {x}, {squares});
  const Tensor sums = sum_to(s, squares, {x.size(0), 1});
  s.launch({Operation::Power, {0.5}}, {sums}, {sums});
  return to(s, sized(sums, {x.size(0)}), x.dtype);
}

}  // namespace

// DoraLinearLayer.forward, and what the variant makes around it. What is local there stays until it returns.
Tensor Linear::decomposed(Session& s, const Tensor& given, const Tensor& result) const {
  const auto turned_over = [&](const Tensor& its) { return inputs_first ? transpose(s, its, 0, 1) : its; };
  const auto through = [&](const Tensor& x) {
    const Tensor made = linear(s, x, lora->down->value, {});
    return linear(s, made, lora->up->value, {});
  };
  const bool drops = lora->dropout > 0;
  const Tensor x = drops ? dropout(s, given, lora->dropout) : given;
  const auto change = [&] {
    Tensor adapter;
    {
      const Tensor unit = unit_matrix(s, inputs(), lora->down->value.dtype);
      const Tensor made = through(unit);
      adapter = transpose(s, made, 0, 1);
    }
    adapter = to(s, adapter, x.dtype);
    const Tensor base = to(s, weight->value, x.dtype);
    Tensor lengths;
    {
      Tensor scaled = mul_number(s, adapter.detached(), lora->scale);
      const Tensor sum = add(s, turned_over(base), scaled);
      scaled = {};
      lengths = lengths_of_rows(s, sum);
    }
    const Tensor ratio = div(s, lora->magnitude->value, lengths);
    const Tensor factor = view(s, ratio, {1, outputs()});
    const Tensor adapted = through(x);
    Tensor own = result;
    if (drops)
      own = linear(s, x, turned_over(base), {});
    else if (bias)
      own = sub(s, result, bias->value);
    const auto of_own = [&] {
      const Tensor less = add_number(s, factor, -1);
      return mul(s, less, own);
    };
    const Tensor left = of_own();
    Tensor right = mul(s, factor, adapted);
    right = mul_number(s, right, lora->scale);
    return add(s, left, right);
  };
  const Tensor added = change();
  return add(s, result, added);
}

// DoraLinearLayer.update_layer: lengths of what the linear and its adapter, both as they are then, make together.
Tensor CausalLM::first_magnitudes(const AdapterSite& site) {
  const auto made = [&](const Shape& sizes, std::string_view what) {
    return s_.empty(sizes, site.base, what, Category::Temporaries);
  };
  const Shape sizes{site.up[0], site.down[1]};
  const Tensor product = made(sizes, "lora_weight");
  Tensor scaled = made(sizes, "scaled");
  const Tensor sum = made(sizes, "sum");
  scaled = {};
  return made({sizes[0]}, "adapter");
}

}  // namespace tidemark::parallel::transformers
