#include "parallel/frameworks/deepspeed/flat_parameters.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tidemark::parallel::deepspeed {

Tensor flatten(Session& s, const FlatLayout& layout, const NamedParameters& parameters, DType dtype) {
  const NoGrad no_grad(s);
  const Session::Scope scope(s, "flat");
  Tensor flat = s.empty({layout.elements()}, dtype, "parameters", Category::Parameters);
  std::vector<Tensor> from, to;
  for (const std::size_t p : layout.order) {
    const Tensor& value = parameters[p].leaf->value;
    from.push_back(flattened(value));
    to.push_back(narrowed(flat, 0, layout.offsets[p], layout.sizes[p]));
  }
  s.launch(Operation::Copy, from, to);
  if (const std::int64_t used = layout.used(); used < layout.elements())
    s.launch({Operation::Fill, {0}}, {}, {narrowed(flat, 0, used, layout.elements() - used)});
  from.clear();
  for (std::size_t i = 0; i < to.size(); ++i) {
    Tensor& value = parameters[layout.order[i]].leaf->value;
    Tensor moved = sized(to[i], value.sizes);
    moved.gradient = value.gradient;
    value = std::move(moved);
  }
  return flat;
}

std::shared_ptr<Leaf> wide_copy(Session& s, const Tensor& part) {
  const NoGrad no_grad(s);
  const Session::Scope scope(s, "flat");
  const auto copied = [&](const Tensor& x, DType dtype) {
    Tensor made = s.empty(x.sizes, dtype, "partition", Category::OptimizerMaster);
    s.launch(Operation::Copy, {x}, {made});
    return made;
  };
  Tensor copy = copied(part, part.dtype);
  if (part.dtype != DType::FP32) copy = copied(copy, DType::FP32);
  return leaf(s, copy);
}

}  // namespace tidemark::parallel::deepspeed
