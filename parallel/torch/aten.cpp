#include "parallel/torch/aten.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/reduction.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {
namespace {

// An output laid out as an elementwise operation does it.
Tensor elementwise(Session& s, std::string_view name, Streaming kind, const std::vector<const Tensor*>& operands,
                   DType dtype) {
  Shape sizes = operands.front()->sizes;
  for (const Tensor* t : operands) sizes = broadcast(sizes, t->sizes);
  Shape strides = elementwise_strides(operands, sizes);
  const Tensor out = s.empty_strided(std::move(sizes), std::move(strides), dtype, name);
  std::vector<Tensor> inputs;
  for (const Tensor* t : operands) inputs.push_back(*t);
  s.stream(kind, inputs, {out});
  return out;
}

Tensor unary(Session& s, std::string_view name, Streaming kind, const Tensor& x) {
  return elementwise(s, name, kind, {&x}, x.dtype);
}

// autocast_mode.h: operations that run in fp32.
Tensor in_fp32(Session& s, const Tensor& x) { return s.autocast ? to(s, x, DType::FP32) : x; }

// Type promotion among floating-point tensors that have dimensions.
DType promoted(DType a, DType b) { return a == b ? a : DType::FP32; }

// A view, and what gives its gradient the sizes of the input again.
template <class Back>
Tensor viewed(Session& s, const Tensor& x, Shape sizes, Shape strides, Back back) {
  auto node = s.node({&x});
  Tensor out{x.storage, std::move(sizes), std::move(strides), x.dtype, {}, true};
  if (node) node->apply = [&s, back](const Gradients& g) { return Gradients{back(s, g.front())}; };
  return with(std::move(out), std::move(node));
}

Shape with_size(Shape sizes, int dimension, std::int64_t size) {
  sizes[static_cast<std::size_t>(dimension < 0 ? static_cast<int>(sizes.size()) + dimension : dimension)] = size;
  return sizes;
}

}  // namespace

// ---- views ---------------------------------------------------------------------------------------------------------

Tensor view(Session& s, const Tensor& x, Shape sizes) {
  Shape strides = strides_of_view(x, sizes);
  ensure(!strides.empty(), "a view has strides");
  return viewed(s, x, std::move(sizes), std::move(strides),
                [before = x.sizes](Session& session, const Tensor& g) { return reshape(session, g, before); });
}

Tensor transpose(Session& s, const Tensor& x, int a, int b) {
  const auto at = [&](int d) { return static_cast<std::size_t>(d < 0 ? static_cast<int>(x.sizes.size()) + d : d); };
  Shape sizes = x.sizes, strides = x.strides;
  std::swap(sizes[at(a)], sizes[at(b)]);
  std::swap(strides[at(a)], strides[at(b)]);
  return viewed(s, x, std::move(sizes), std::move(strides),
                [a, b](Session& session, const Tensor& g) { return transpose(session, g, a, b); });
}

Tensor unsqueeze(Session& s, const Tensor& x, int dimension) {
  Shape sizes = x.sizes, strides = x.strides;
  const auto at = static_cast<std::ptrdiff_t>(dimension);
  const std::int64_t stride = dimension < static_cast<int>(x.sizes.size())
                                  ? x.sizes[static_cast<std::size_t>(at)] * x.strides[static_cast<std::size_t>(at)]
                                  : 1;
  sizes.insert(sizes.begin() + at, 1);
  strides.insert(strides.begin() + at, stride);
  return viewed(s, x, std::move(sizes), std::move(strides), [dimension](Session&, const Tensor& g) {
    Tensor squeezed = g;
    squeezed.sizes.erase(squeezed.sizes.begin() + dimension);
    squeezed.strides.erase(squeezed.strides.begin() + dimension);
    squeezed.view = true;
    return squeezed;
  });
}

Tensor expand(Session& s, const Tensor& x, Shape sizes) {
  Shape strides(sizes.size(), 0);
  const std::size_t missing = sizes.size() - x.sizes.size();
  for (std::size_t d = 0; d < x.sizes.size(); ++d)
    strides[missing + d] = x.sizes[d] == sizes[missing + d] ? x.strides[d] : 0;
  return viewed(s, x, std::move(sizes), std::move(strides),
                [before = x.sizes](Session& session, const Tensor& g) { return sum_to(session, g, before); });
}

Tensor slice(Session& s, const Tensor& x, int dimension, std::int64_t begin, std::int64_t end) {
  // python_variable_indexing.cpp THPVariable_getitem: all of it is an alias.
  if (begin == 0 && end == x.size(dimension))
    return viewed(s, x, x.sizes, x.strides, [](Session&, const Tensor& g) { return g; });
  return viewed(s, x, with_size(x.sizes, dimension, end - begin), x.strides,
                [before = x.sizes](Session& session, const Tensor& g) {
                  const Tensor whole = session.empty(before, g.dtype, "slice_gradient");
                  session.stream(Streaming::Fill, {}, {whole});
                  session.stream(Streaming::Copy, {g}, {whole});
                  return whole;
                });
}

std::vector<Tensor> split_last(Session& s, const Tensor& x, const std::vector<std::int64_t>& pieces) {
  auto node = s.node({&x});
  if (node) {
    node->outputs = pieces.size();
    node->apply = [&s, sizes = x.sizes](const Gradients& g) {
      Tensor like;
      for (const Tensor& t : g)
        if (t.defined()) like = t;
      const Tensor whole = s.empty(sizes, like.dtype, "split_gradient");
      std::vector<Tensor> parts;
      for (const Tensor& t : g)
        if (t.defined()) parts.push_back(t);
      s.stream(Streaming::Copy, parts, {whole});
      return Gradients{whole};
    };
  }
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    parts.push_back(with({x.storage, with_size(x.sizes, -1, pieces[i]), x.strides, x.dtype, {}, true}, node, i));
  return parts;
}

// ---- copies --------------------------------------------------------------------------------------------------------

Tensor to(Session& s, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  auto node = s.node({&x});
  const bool empty = x.elements() == 0;  // takes no memory
  Tensor out =
      empty ? Tensor{x.storage, x.sizes, x.strides, dtype, {}} : elementwise(s, "to", Streaming::Copy, {&x}, dtype);
  if (node) node->apply = [&s, before = x.dtype](const Gradients& g) { return Gradients{to(s, g.front(), before)}; };
  return with(std::move(out), std::move(node));
}

Tensor clone(Session& s, const Tensor& x, Shape strides) {
  auto node = s.node({&x});
  Tensor out = s.empty_strided(x.sizes, std::move(strides), x.dtype, "clone");
  s.stream(Streaming::Copy, {x}, {out});
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front()}; };
  return with(std::move(out), std::move(node));
}

Tensor contiguous(Session& s, const Tensor& x) { return x.contiguous() ? x : clone(s, x, contiguous_strides(x.sizes)); }

Tensor reshape(Session& s, const Tensor& x, Shape sizes) {
  if (x.sizes == sizes) return x;
  if (!strides_of_view(x, sizes).empty()) return view(s, x, std::move(sizes));
  return view(s, clone(s, x, contiguous_strides(x.sizes)), std::move(sizes));
}

Tensor cat_last(Session& s, const std::vector<Tensor>& parts, std::optional<DType> dtype) {
  std::vector<const Tensor*> inputs;
  std::int64_t width = 0;
  std::vector<std::int64_t> widths;
  for (const Tensor& t : parts) {
    inputs.push_back(&t);
    widths.push_back(t.size(-1));
    width += t.size(-1);
  }
  auto node = s.node(inputs);
  Tensor out = s.empty(with_size(parts.front().sizes, -1, width), dtype.value_or(parts.front().dtype), "cat");
  s.stream(Streaming::Copy, parts, {out});
  if (node)
    node->apply = [widths](const Gradients& g) {
      Gradients views;
      for (const std::int64_t w : widths) {
        Tensor part = g.front();
        part.sizes.back() = w;
        views.push_back(std::move(part));
      }
      return views;
    };
  return with(std::move(out), std::move(node));
}

// ---- element by element --------------------------------------------------------------------------------------------

Tensor add(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  Tensor out = elementwise(s, "add", Streaming::Add, {&a, &b}, promoted(a.dtype, b.dtype));
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front(), g.front()}; };
  return with(std::move(out), std::move(node));
}

Tensor mul(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  Saved saved_a, saved_b;
  if (node && node->needs(0)) saved_b = s.save(b);
  if (node && node->needs(1)) saved_a = s.save(a);
  Tensor out = elementwise(s, "mul", Streaming::Add, {&a, &b}, promoted(a.dtype, b.dtype));
  if (node)
    node->apply = [&s, saved_a, saved_b](const Gradients& g) {
      const Tensor self = saved_a ? s.unpack(saved_a) : Tensor{}, other = saved_b ? s.unpack(saved_b) : Tensor{};
      const auto times = [&](const Tensor& factor) {
        return elementwise(s, "mul_gradient", Streaming::Add, {&g.front(), &factor},
                           promoted(g.front().dtype, factor.dtype));
      };
      Gradients made(2);
      if (saved_a) made[1] = times(self);
      if (saved_b) made[0] = times(other);
      return made;
    };
  return with(std::move(out), std::move(node));
}

Tensor add_number(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Tensor out = unary(s, "add_number", Streaming::Activation, x);
  if (node) node->apply = [](const Gradients& g) { return Gradients{g.front()}; };
  return with(std::move(out), std::move(node));
}

namespace {

// Operations whose backward pass makes one tensor from the gradient and, at most, one saved tensor.
enum class Saves : std::uint8_t { Nothing, Input, Output };

Tensor simple(Session& s, std::string_view name, std::string_view backward_name, const Tensor& x, Saves what) {
  auto node = s.node({&x});
  Saved saved;
  if (node && what == Saves::Input) saved = s.save(x);
  Tensor out = unary(s, name, Streaming::Activation, x);
  if (node && what == Saves::Output) saved = s.save(out);
  if (node)
    node->apply = [&s, saved, backward_name](const Gradients& g) {
      if (!saved) return Gradients{unary(s, backward_name, Streaming::Activation, g.front())};
      const Tensor other = s.unpack(saved);
      return Gradients{elementwise(s, backward_name, Streaming::Activation, {&g.front(), &other}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

Tensor mul_number(Session& s, const Tensor& x) { return simple(s, "mul_number", "mul_gradient", x, Saves::Nothing); }
Tensor neg(Session& s, const Tensor& x) { return simple(s, "neg", "neg_gradient", x, Saves::Nothing); }
Tensor tanh(Session& s, const Tensor& x) { return simple(s, "tanh", "tanh_gradient", x, Saves::Output); }
Tensor silu(Session& s, const Tensor& x) { return simple(s, "silu", "silu_gradient", x, Saves::Input); }
Tensor gelu(Session& s, const Tensor& x) { return simple(s, "gelu", "gelu_gradient", x, Saves::Input); }
Tensor relu(Session& s, const Tensor& x) { return simple(s, "relu", "relu_gradient", x, Saves::Output); }

Tensor pow_number(Session& s, const Tensor& given) {
  const Tensor x = in_fp32(s, given);
  auto node = s.node({&x});
  Saved saved;
  if (node) saved = s.save(x);
  Tensor out = unary(s, "pow", Streaming::Activation, x);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      // pow_backward: gradient * (exponent * self.pow(exponent - 1)).
      const Tensor self = s.unpack(saved);
      const Tensor lower = unary(s, "lower_power", Streaming::Activation, self);
      const Tensor scaled = unary(s, "scaled_power", Streaming::Activation, lower);
      return Gradients{elementwise(s, "pow_gradient", Streaming::Add, {&g.front(), &scaled}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

Tensor rsqrt(Session& s, const Tensor& given) {
  const Tensor x = in_fp32(s, given);
  auto node = s.node({&x});
  Tensor out = unary(s, "rsqrt", Streaming::Activation, x);
  Saved saved;
  if (node) saved = s.save(out);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      const Tensor result = s.unpack(saved);
      const Tensor scaled = unary(s, "scaled_gradient", Streaming::Activation, g.front());
      const Tensor cubed = unary(s, "cubed", Streaming::Activation, result);
      return Gradients{elementwise(s, "rsqrt_gradient", Streaming::Add, {&scaled, &cubed}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

Tensor dropout(Session& s, const Tensor& x, double probability) {
  if (probability == 0) return x;
  auto node = s.node({&x});
  // Dropout.cu dropout_cuda: the mask comes first.
  const Tensor mask = elementwise(s, "dropout_mask", Streaming::Fill, {&x}, DType::BOOL);
  Tensor out = unary(s, "dropout", Streaming::Activation, x);
  Saved saved;
  if (node) saved = s.save(mask);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      const Tensor kept = s.unpack(saved);
      return Gradients{elementwise(s, "dropout_gradient", Streaming::Activation, {&g.front(), &kept}, g.front().dtype)};
    };
  return with(std::move(out), std::move(node));
}

// ---- over the last dimension ---------------------------------------------------------------------------------------

Tensor mean_last(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Tensor out = s.empty(with_size(x.sizes, -1, 1), x.dtype, "mean");
  s.stream(Streaming::Reduce, {x}, {out});
  if (node)
    node->apply = [&s, sizes = x.sizes](const Gradients& g) {
      const NoGrad no_grad(s);
      const Tensor repeated = expand(s, g.front(), sizes);
      const Tensor divided = s.empty(sizes, g.front().dtype, "mean_gradient");
      s.stream(Streaming::Activation, {repeated}, {divided});
      return Gradients{divided};
    };
  return with(std::move(out), std::move(node));
}

Tensor softmax_last(Session& s, const Tensor& x, DType dtype) {
  // SoftMax.cpp softmax: other types are converted first; of fp16 the kernel itself makes fp32.
  if (x.dtype != dtype && x.dtype != DType::FP16) return softmax_last(s, to(s, x, dtype), dtype);
  auto node = s.node({&x});
  Tensor out = s.empty(x.sizes, dtype, "softmax");
  s.stream(Streaming::Activation, {x}, {out});
  Saved saved;
  if (node) saved = s.save(out);
  if (node)
    node->apply = [&s, saved, narrow = x.dtype](const Gradients& g) {
      const Tensor result = s.unpack(saved);
      const Tensor made = s.empty(result.sizes, narrow, "softmax_gradient");
      std::vector<Tensor> outputs{made};
      // SoftMax.cu softmax_backward_cuda_out: the product of gradient and result, before the kernel.
      if (s.habits().kernel_workspaces)
        outputs.push_back(s.empty(result.sizes, g.front().dtype, "softmax_gradient_product"));
      s.stream(Streaming::Activation, {g.front(), result}, outputs);
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

Tensor layer_norm(Session& s, const Tensor& given, const Tensor& weight, const Tensor& bias) {
  const Tensor x = in_fp32(s, given);
  auto node = s.node({&x, &weight, &bias});
  Saved saved_x, saved_weight;
  if (node) saved_x = s.save(x), saved_weight = s.save(weight);
  Tensor out = s.empty(x.sizes, x.dtype, "layer_norm");
  const Shape rows = with_size(x.sizes, -1, 1);
  const Tensor mean = s.empty(rows, DType::FP32, "layer_norm_mean");
  const Tensor deviation = s.empty(rows, DType::FP32, "layer_norm_rstd");
  s.stream(Streaming::Norm, {x, weight, bias}, {out, mean, deviation});
  if (node)
    node->apply = [&s, saved_deviation = s.save(deviation), saved_mean = s.save(mean), saved_weight, saved_x,
                   bias_sizes = bias.sizes](const Gradients& g) {
      const Tensor in = s.unpack(saved_x), scale = s.unpack(saved_weight);
      const Tensor dx = s.empty(in.sizes, in.dtype, "layer_norm_gradient");
      const Tensor dweight = s.empty(scale.sizes, scale.dtype, "weight_gradient");
      const Tensor dbias = s.empty(bias_sizes, scale.dtype, "bias_gradient");
      s.stream(Streaming::Norm, {g.front(), in, s.unpack(saved_mean), s.unpack(saved_deviation), scale},
               {dx, dweight, dbias});
      return Gradients{dx, dweight, dbias};
    };
  return with(std::move(out), std::move(node));
}

Tensor sum_to(Session& s, const Tensor& x, const Shape& sizes) {
  if (x.sizes == sizes) return x;
  const Tensor sum = s.empty(sizes, x.dtype, "sum");
  std::vector<Tensor> outputs{sum};
  if (s.habits().kernel_workspaces) {
    const ReductionScratch scratch = sum_scratch(x, sizes, s.habits().device_threads);
    for (const Bytes size : {scratch.partial_sums, scratch.counters})
      if (size > Bytes{})
        outputs.push_back(s.empty({size / size_of(DType::FP32)}, DType::FP32, "sum_scratch", Category::Temporaries));
  }
  s.stream(Streaming::Reduce, {x}, outputs);
  while (outputs.size() > 1) outputs.pop_back();
  return sum;
}

// ---- products ------------------------------------------------------------------------------------------------------

// autocast_mode.cpp cached_cast: leaves, and so weights, are converted once. Of several arguments the last comes first,
// as in the order in which GCC, which builds PyTorch, evaluates them.
Tensor operand(Session& s, const Tensor& x) {
  if (!s.autocast || x.dtype != DType::FP32) return x;
  const bool leaf = x.gradient.node && x.gradient.node->leaf;
  if (!leaf) return to(s, x, *s.autocast);
  const auto known = s.autocast_cache.find(x.storage.get());
  if (known != s.autocast_cache.end()) return known->second;
  return s.autocast_cache.emplace(x.storage.get(), to(s, x, *s.autocast)).first->second;
}

namespace {

// CUDABlas.cpp: of a product to which a bias is added, cuBLASLt's work, where CUBLASLT_WORKSPACE_SIZE is not set.
constexpr Bytes blas_lt_workspace{std::int64_t{1} << 20};

void gemm(Session& s, Gemm shape, const std::vector<Tensor>& inputs, const Tensor& out, Pass pass) {
  std::vector<BufferId> in;
  for (const Tensor& t : inputs) in.push_back(t.buffer());
  Tensor workspace;
  if (s.habits().kernel_workspaces && s.habits().keeps_blas_workspace) {
    in.push_back(s.process.blas_workspace(pass));
  } else if (s.habits().kernel_workspaces) {
    s.process.blas_handle(pass);
    const Bytes size = inputs.size() > 2 ? blas_lt_workspace : s.process.blas_workspace_size();
    workspace = s.empty({size / size_of(DType::INT64)}, DType::INT64, "workspace.cublas", Category::Workspaces);
    in.push_back(workspace.buffer());
  }
  const std::vector<BufferId> made{out.buffer()};
  s.process.launch(shape, in, made);
  s.launched(inputs, {out});
}

// [rows, inputs] times a weight, in which outputs are the first dimension or the second. Where they are the first, the
// weight is transposed on its way in, and so its gradient is a view.
enum class WeightLayout : std::uint8_t { OutputsFirst, InputsFirst };

Tensor product(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const bool outputs_first = layout == WeightLayout::OutputsFirst, added = bias.defined();
  const std::int64_t outputs = weight.sizes[outputs_first ? 0 : 1], inputs = weight.sizes[outputs_first ? 1 : 0];
  const std::int64_t rows = x.sizes.front();
  auto node = s.node(added ? std::vector<const Tensor*>{&x, &weight, &bias} : std::vector<const Tensor*>{&x, &weight});
  // Arguments go, and gradients come, in the order of their names: mm(self, mat2), addmm(self, mat1, mat2). An array's
  // last element goes first.
  const std::size_t of_x = added ? 1 : 0, of_weight = 1 - of_x;
  std::array<Saved, 2> saved;
  if (node && node->needs(1)) saved[of_x] = s.save(x);
  if (node && node->needs(0)) saved[of_weight] = s.save(weight);
  Tensor out = s.empty({rows, outputs}, x.dtype, "mm");
  std::vector<Tensor> operands{x, weight};
  if (added) operands.push_back(bias);
  gemm(s, {rows, outputs, inputs, x.dtype}, operands, out, Pass::Forward);
  if (node)
    node->apply = [saved, of_x, of_weight, &s, rows, outputs, inputs, weight_sizes = weight.sizes, dtype = x.dtype,
                   bias_sizes = bias.sizes, added, transposed = outputs_first,
                   of_bias = added && node->needs(2)](const Gradients& g) {
      Gradients made(of_bias ? 3 : 2);
      // What a node unpacks, and so what is recomputed for it, lives until its backward pass is over
      // (MmBackward0::apply in torch/csrc/autograd/generated/Functions.cpp).
      const Tensor its = saved[of_weight] ? s.unpack(saved[of_weight]) : Tensor{};
      const Tensor in = saved[of_x] ? s.unpack(saved[of_x]) : Tensor{};
      const auto to_weight = [&] {
        if (!saved[of_x]) return;
        made[1] = s.empty(weight_sizes, dtype, "weight_gradient");
        gemm(s, {outputs, inputs, rows, dtype}, {g.front(), in}, made[1], Pass::Backward);
        made[1].view = transposed;
      };
      const auto to_input = [&] {
        if (!saved[of_weight]) return;
        made[0] = s.empty({rows, inputs}, dtype, "input_gradient", Category::Temporaries);
        gemm(s, {rows, inputs, outputs, dtype}, {g.front(), its}, made[0], Pass::Backward);
      };
      if (!added) to_weight();
      to_input();
      if (added) to_weight();
      if (!of_bias) return made;
      made[2] = sum_to(s, g.front(), {1, outputs});
      made[2].sizes = bias_sizes, made[2].strides = {1};
      return made;
    };
  return with(std::move(out), std::move(node));
}

Tensor flat_product(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  // linear(input, weight, bias), addmm(bias, input, weight).
  const bool addmm = layout == WeightLayout::InputsFirst;
  Tensor added = bias.defined() && !addmm ? operand(s, bias) : Tensor{};
  const Tensor its = operand(s, weight);
  const Tensor in = operand(s, x);
  if (bias.defined() && addmm) added = operand(s, bias);
  Shape sizes = in.sizes;
  sizes.back() = weight.sizes[layout == WeightLayout::OutputsFirst ? 0 : 1];
  const std::int64_t width = in.size(-1);
  const Tensor rows = reshape(s, in, {in.elements() / width, width});
  return view(s, product(s, rows, its, added, layout), std::move(sizes));
}

}  // namespace

Tensor linear(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return flat_product(s, x, weight, bias, WeightLayout::OutputsFirst);
}

Tensor conv1d(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return flat_product(s, x, weight, bias, WeightLayout::InputsFirst);
}

namespace {

// [batch, m, k] times [batch, k, n].
Tensor batched(Session& s, const Tensor& a, const Tensor& b) {
  auto node = s.node({&a, &b});
  Saved saved_a, saved_b;
  if (node && node->needs(1)) saved_a = s.save(a);
  if (node && node->needs(0)) saved_b = s.save(b);
  const std::int64_t batch = a.sizes[0], m = a.sizes[1], k = a.sizes[2], n = b.sizes[2];
  Tensor out = s.empty({batch, m, n}, a.dtype, "bmm");
  gemm(s, {batch * m, n, k, a.dtype}, {a, b}, out, Pass::Forward);
  if (node)
    node->apply = [&s, saved_a, saved_b, batch, m, n, k, dtype = a.dtype](const Gradients& g) {
      const Tensor left = saved_a ? s.unpack(saved_a) : Tensor{}, right = saved_b ? s.unpack(saved_b) : Tensor{};
      Gradients made(2);
      if (saved_a) {
        made[1] = s.empty({batch, k, n}, dtype, "bmm_gradient");
        gemm(s, {batch * k, n, m, dtype}, {left, g.front()}, made[1], Pass::Backward);
      }
      if (saved_b) {
        made[0] = s.empty({batch, m, k}, dtype, "bmm_gradient");
        gemm(s, {batch * m, k, n, dtype}, {g.front(), right}, made[0], Pass::Backward);
      }
      return made;
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

Tensor matmul(Session& s, const Tensor& first, const Tensor& second) {
  const Tensor b = operand(s, second), a = operand(s, first);
  // LinearAlgebra.cpp _matmul_impl: batches are expanded to each other and folded into one dimension.
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape batch(a.sizes.begin(), a.sizes.end() - 2);
  batch = broadcast(batch, Shape(b.sizes.begin(), b.sizes.end() - 2));
  const std::int64_t count = elements_of(batch);
  const auto folded = [&](const Tensor& t, std::int64_t rows, std::int64_t columns) {
    Shape whole = batch;
    whole.push_back(rows);
    whole.push_back(columns);
    return reshape(s, t.sizes == whole ? t : expand(s, t, whole), {count, rows, columns});
  };
  const Tensor product = batched(s, folded(a, m, k), folded(b, k, n));
  Shape sizes = batch;
  sizes.push_back(m);
  sizes.push_back(n);
  return view(s, product, std::move(sizes));
}

// ---- embedding and loss --------------------------------------------------------------------------------------------

namespace {

// Embedding.cu embedding_dense_backward_cuda, EmbeddingBackwardKernel.cu: many tokens are sorted, and what goes to one
// row is summed in parts of ten tokens. CUB's own space is what it asked for in torch 2.15 (tests/ground_truth).
Tensor sum_of_rows(Session& s, std::int64_t tokens, const Shape& sizes, DType dtype) {
  constexpr std::int64_t few = 3072, of_part = 10;
  constexpr std::int64_t histograms = 6655, of_scan = 1279;  // bytes
  if (tokens <= few || !s.habits().kernel_workspaces) return s.empty(sizes, dtype, "weight_gradient");
  const auto indices = [&s](std::int64_t count) { return s.empty({count}, DType::INT64, "embedding_indices"); };
  const auto bytes = [&s](std::int64_t count) { return s.empty({count}, DType::BOOL, "embedding_scratch"); };
  const Tensor sorted = indices(tokens), original = indices(tokens);
  {
    const Tensor range = indices(tokens);
    (void)bytes(2 * tokens * size_of(DType::INT64).count() + histograms);
  }
  Tensor made = s.empty(sizes, dtype, "weight_gradient");
  const Tensor segments = indices(tokens), segment_count = indices(1);
  {
    const Tensor unique = indices(tokens);
    (void)bytes(of_scan);
  }
  const std::int64_t most_segments = std::min(tokens, sizes.front()), most_parts = tokens / of_part + most_segments;
  const Tensor parts = indices(most_segments), offsets = indices(most_segments);
  (void)bytes(of_scan);
  const Tensor part_count = indices(1), part_offsets = indices(most_parts);
  const Tensor sums = s.empty({most_parts, sizes.back()}, DType::FP32, "embedding_part_sums");
  s.stream(Streaming::Copy, {sorted, original, segments, segment_count, parts, offsets, part_count},
           {part_offsets, sums});
  return made;
}

}  // namespace

Tensor embedding(Session& s, const Tensor& ids, const Tensor& weight) {
  auto node = s.node({&weight});
  Saved saved;
  if (node) saved = s.save(ids);
  Shape sizes = ids.sizes;
  sizes.push_back(weight.size(-1));
  Tensor out = s.empty(std::move(sizes), weight.dtype, "embedding");
  s.launch(Stream{Streaming::Lookup, out.bytes(), out.bytes()}, {ids, weight}, {out});
  if (node)
    node->apply = [&s, saved, weight_sizes = weight.sizes, dtype = weight.dtype](const Gradients& g) {
      const Tensor places = s.unpack(saved);
      const Tensor made = sum_of_rows(s, places.elements(), weight_sizes, dtype);
      s.launch(Stream{Streaming::Lookup, g.front().bytes(), made.bytes()}, {g.front(), places}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

namespace {

Tensor log_softmax(Session& s, const Tensor& x) {
  auto node = s.node({&x});
  Tensor out = s.empty(x.sizes, x.dtype, "log_softmax");
  s.stream(Streaming::Loss, {x}, {out});
  Saved saved;
  if (node) saved = s.save(out);
  if (node)
    node->apply = [&s, saved](const Gradients& g) {
      const Tensor result = s.unpack(saved);
      const Tensor made = s.empty(result.sizes, result.dtype, "log_softmax_gradient");
      s.stream(Streaming::Loss, {g.front(), result}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels) {
  const Tensor probabilities = log_softmax(s, in_fp32(s, logits));
  auto node = s.node({&probabilities});
  Saved saved, saved_labels;
  if (node) saved = s.save(probabilities), saved_labels = s.save(labels);
  Tensor out = s.empty({}, probabilities.dtype, "nll_loss");
  const Tensor weight = s.empty({}, probabilities.dtype, "nll_loss_weight");
  s.launch(Stream{Streaming::Loss, labels.bytes(), out.bytes()}, {probabilities, labels}, {out, weight});
  if (node)
    node->apply = [&s, saved_weight = s.save(weight), saved_labels, saved](const Gradients& g) {
      const Tensor result = s.unpack(saved), places = s.unpack(saved_labels), total = s.unpack(saved_weight);
      const Tensor made = s.empty(result.sizes, result.dtype, "nll_loss_gradient");
      s.launch(Stream{Streaming::Fill, {}, made.bytes()}, {g.front(), result, places, total}, {made});
      return Gradients{made};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
