#include "parallel/torch/ops/products.hpp"

#include <array>
#include <span>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/stage_3_linear.hpp"

// Matrix products: CUDABlas.cpp, Blas.cpp and LinearAlgebra.cpp of aten/src/ATen/native.

namespace tidemark::parallel::torch {

// autocast_mode.cpp cached_cast: leaves, and so weights, are converted once. Of several arguments the last comes first,
// as in the order in which GCC, which builds PyTorch, evaluates them.
Tensor operand(Session& s, const Tensor& x) {
  if (!s.autocast || x.dtype != DType::FP32) return x;
  const bool leaf = x.gradient.node && x.gradient.node->leaf;
  if (!leaf) return to(s, x, *s.autocast);
  const auto known = s.autocast_cache.find(x.buffer());
  if (known != s.autocast_cache.end()) return known->second;
  return s.autocast_cache.emplace(x.buffer(), to(s, x, *s.autocast)).first->second;
}

namespace {

// CUDABlas.cpp: of a product to which a bias is added, cuBLASLt's work, where CUBLASLT_WORKSPACE_SIZE is not set.
constexpr Bytes blas_lt_workspace{std::int64_t{1} << 20};

// out = scale a b, + bias and `added` where there are any.
void gemm(Session& s, Tensor a, Tensor b, const Tensor& bias, const Tensor& out, double scale = 1,
          const Tensor& added = {}) {
  const auto launch = [&](const Scratch& workspace) {
    s.launch({Operation::Matmul, {scale}}, {std::move(a), std::move(b), bias, added}, {out}, workspace);
  };
  const auto launch_in_own = [&](Bytes size) {
    launch(s.empty({size / size_of(DType::INT64)}, DType::INT64, "workspace.cublas", Category::Workspaces));
  };
  if (!s.behavior().kernel_workspaces) return launch({});
  // The device's thread runs graphs backward, and what is computed again for them.
  const HostThread thread = s.engine ? HostThread::Autograd : HostThread::Main;
  if (!s.behavior().keeps_blas_workspace) {
    s.process.blas_handle(thread);
    return launch_in_own(bias.defined() ? blas_lt_workspace : s.process.blas_workspace_size());
  }
  const BufferId shared = s.process.blas_workspace(thread);  // comes with the handle
  if (!bias.defined() || s.behavior().lt_workspace == BlasLtWorkspace::Shared) return launch(shared);
  if (s.behavior().lt_workspace == BlasLtWorkspace::Anew) return launch_in_own(blas_lt_workspace);
  launch(s.process.blas_lt_workspace(thread, blas_lt_workspace));
}

// [rows, inputs] times a weight, in which outputs are the first dimension or the second. Where they are the first, the
// weight is transposed on its way in, and so its gradient is a view.
enum class WeightLayout : std::uint8_t { OutputsFirst, InputsFirst };
enum class SavedInput : std::uint8_t { ForTheWeight, Always };

Tensor product(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout,
               SavedInput kept = SavedInput::ForTheWeight) {
  const bool outputs_first = layout == WeightLayout::OutputsFirst, added = bias.defined();
  const std::int64_t outputs = weight.sizes[outputs_first ? 0 : 1], inputs = weight.sizes[outputs_first ? 1 : 0];
  const std::int64_t rows = x.sizes.front();
  const std::array<Operands::Operand, 3> all{x, weight, bias};
  const Operands operands{std::span(all).first(added ? 3 : 2)};
  auto node = s.node(operands);
  // Arguments go, and gradients come, in the order of their names: mm(self, mat2), addmm(self, mat1, mat2). An array's
  // last element goes first.
  const std::size_t of_x = added ? 1 : 0, of_weight = 1 - of_x;
  std::array<Saved, 2> saved;
  const bool to_the_weight = node && node->needs(1);
  if (to_the_weight || (node && kept == SavedInput::Always)) saved[of_x] = s.save(x);
  // mm and addmm save what they are given: weight.t(). DeepSpeed's function saves the weight.
  const bool saved_transposed = outputs_first && kept == SavedInput::ForTheWeight;
  if (node && node->needs(0)) saved[of_weight] = s.save(saved_transposed ? swapped(weight, 0, 1) : weight);
  Tensor out;
  const Dispatched op = added ? Dispatched::AddedProduct : Dispatched::MatrixProduct;
  if (!s.recalled(op, {&out, 1})) {
    out = s.empty({rows, outputs}, x.dtype, "mm");
    gemm(s, x, outputs_first ? swapped(weight, 0, 1) : weight, bias, out);
    s.made(op, {&out, 1});
  }
  if (node)
    node->apply = [saved, of_x, of_weight, &s, rows, inputs, weight_sizes = weight.sizes, dtype = x.dtype, added,
                   transposed = outputs_first, saved_transposed, to_the_weight,
                   input_first = added || kept == SavedInput::Always,  // addmm, and DeepSpeed's function
                   of_bias = added && node->needs(2)](const Gradients& g) {
      Gradients made(of_bias ? 3 : 2);
      // What a node unpacks, and so what is recomputed for it, lives until its backward pass is over
      // (MmBackward0::apply in torch/csrc/autograd/generated/Functions.cpp).
      // They come in the order of their names: mat1 and mat2 of addmm, mat2 and self of mm.
      std::array<Tensor, 2> unpacked;
      for (std::size_t i = unpacked.size(); i-- > 0;)
        if (saved[i]) unpacked[i] = s.unpack(saved[i]);
      const Tensor &its = unpacked[of_weight], &in = unpacked[of_x];
      const auto to_weight = [&] {
        if (!to_the_weight || !s.asks_for(1)) return;
        made[1] = s.empty(weight_sizes, dtype, "weight_gradient");
        const Tensor &left = transposed ? g.front() : in, &right = transposed ? in : g.front();
        gemm(s, swapped(left, 0, 1), right, {}, made[1]);
        made[1].view = transposed;
      };
      const auto to_input = [&] {
        if (!saved[of_weight] || !s.asks_for(0)) return;
        made[0] = s.empty({rows, inputs}, dtype, "input_gradient", Category::Temporaries);
        const bool as_multiplied = transposed && !saved_transposed;
        gemm(s, g.front(), as_multiplied ? its : swapped(its, 0, 1), {}, made[0]);
      };
      if (!input_first) to_weight();
      to_input();
      if (input_first) to_weight();
      if (of_bias) made[2] = g.front();  // which the engine sums, when what was unpacked is gone
      return made;
    };
  return with(std::move(out), std::move(node));
}

Tensor flat_product(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout,
                    SavedInput kept = SavedInput::ForTheWeight) {
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
  return view(s, product(s, rows, its, added, layout, kept), std::move(sizes));
}

}  // namespace

Tensor linear(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return flat_product(s, x, weight, bias, WeightLayout::OutputsFirst);
}

Tensor linear_of_stage_3(Session& s, const Tensor& x, const Tensor& weight) {
  return flat_product(s, x, weight, {}, WeightLayout::OutputsFirst, SavedInput::Always);
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
  gemm(s, a, b, {}, out);
  if (node)
    node->apply = [&s, saved_a, saved_b, batch, m, n, k, dtype = a.dtype](const Gradients& g) {
      const Tensor right = saved_b ? s.unpack(saved_b) : Tensor{}, left = saved_a ? s.unpack(saved_a) : Tensor{};
      Gradients made(2);
      if (saved_a) {
        made[1] = s.empty({batch, k, n}, dtype, "bmm_gradient");
        // torch/_native/ops/bmm_outer_product: of single rows it is Triton's kernel, in 2.15, as the workspaces are.
        if (m == 1 && !s.behavior().keeps_blas_workspace)
          s.launch({Operation::Matmul, {1}}, {swapped(left, 1, 2), g.front(), Tensor{}, Tensor{}}, {made[1]});
        else
          gemm(s, swapped(left, 1, 2), g.front(), {}, made[1]);
      }
      if (saved_b) {
        made[0] = s.empty({batch, m, k}, dtype, "bmm_gradient");
        gemm(s, g.front(), swapped(right, 1, 2), {}, made[0]);
      }
      return made;
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

void mm_into(Session& s, const Tensor& a, const Tensor& b, const Tensor& out) { gemm(s, a, b, {}, out); }

void add_mm_into(Session& s, const Tensor& a, const Tensor& b, const Tensor& out) { gemm(s, a, b, {}, out, 1, out); }

Tensor addmm(Session& s, const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  const Tensor out = s.empty({a.size(0), b.size(1)}, x.dtype, "addmm");
  // The product's kernel multiplies x, too.
  const Tensor scaled = s.in_registers(x.sizes, x.strides, x.dtype, "scaled");
  s.launch({Operation::Scale, {beta}}, {x}, {scaled});
  gemm(s, a, b, {}, out, alpha, scaled);
  return out;
}

namespace {

// Blas.cpp prepare_batch_matrix_for_cublas: matrices whose rows, or columns, lie in one piece, or copies of them.
Tensor in_rows_or_columns(Session& s, const Tensor& x) {
  const bool can = x.strides[1] == 1 || x.strides[2] == 1;
  return can ? x.detached() : clone(s, x.detached(), contiguous_strides(x.sizes));
}

Tensor batched_into(Session& s, const Tensor& a, const Tensor& b, std::string_view name, double scale = 1,
                    const Tensor& added = {}) {
  Tensor out = s.empty({a.size(0), a.size(1), b.size(2)}, a.dtype, name);
  const Tensor left = in_rows_or_columns(s, a), right = in_rows_or_columns(s, b);
  gemm(s, left, right, {}, out, scale, added.defined() ? added.detached() : Tensor{});
  return out;
}

}  // namespace

// derivatives.yaml baddbmm; FunctionsManual.cpp maybe_multiply.
Tensor baddbmm(Session& s, const Tensor& x, const Tensor& a, const Tensor& b, double alpha) {
  auto node = s.node({&x, &a, &b});
  Saved saved_a, saved_b;
  if (node && node->needs(2)) saved_a = s.save(a);
  if (node && node->needs(1)) saved_b = s.save(b);
  Tensor out = batched_into(s, a, b, "baddbmm", alpha, x);
  if (node)
    node->apply = [&s, saved_a, saved_b, alpha, of_x = node->needs(0)](const Gradients& g) {
      const Tensor left = saved_a ? s.unpack(saved_a) : Tensor{}, right = saved_b ? s.unpack(saved_b) : Tensor{};
      const auto scaled = [&](const Tensor& made) { return alpha == 1 ? made : mul_number(s, made, alpha); };
      Gradients made(3);
      if (saved_b) made[1] = scaled(batched_into(s, g.front(), swapped(right, 1, 2), "baddbmm_gradient"));
      if (saved_a) made[2] = scaled(batched_into(s, swapped(left, 1, 2), g.front(), "baddbmm_gradient"));
      if (of_x) made[0] = g.front();
      return made;
    };
  return with(std::move(out), std::move(node));
}

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

}  // namespace tidemark::parallel::torch
