#include <algorithm>
#include <utility>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// bitsandbytes' linears, read in bitsandbytes 0.43 to 0.50 (nn/modules.py, autograd/_functions.py, functional.py,
// backends/cuda/ops.py), and how transformers and PEFT make them.

namespace tidemark::parallel::transformers {

std::int64_t Linear::outputs() const {
  return quantized ? quantized->sizes[0] : weight->value.sizes[inputs_first ? 1 : 0];
}

std::int64_t Linear::inputs() const {
  return quantized ? quantized->sizes[1] : weight->value.sizes[inputs_first ? 0 : 1];
}

namespace {

constexpr std::int64_t codes_of_a_byte = 2;  // of 4 bits
constexpr std::int64_t scales_of_a_block = 256;
constexpr double largest_code = 127;  // of 8 bits
constexpr std::int64_t values_of_4_bits = 16, values_of_a_byte = 256;

std::int64_t ceiled(std::int64_t n, std::int64_t of) { return (n + of - 1) / of; }

// Codes times the scale of their block, where blocks are whole.
void scale(Session& s, const Tensor& codes, const Tensor& scales, const Tensor& made) {
  const std::int64_t blocks = scales.elements(), count = codes.elements(), each = made.elements() / count;
  if (count % blocks != 0) return s.launch(Operation::Copy, {sized(codes, {count, 1})}, {sized(made, {count, each})});
  const std::int64_t of_block = count / blocks;
  s.launch(Operation::Multiply, {sized(codes, {blocks, of_block, 1}), sized(scales, {blocks, 1, 1})},
           {sized(made, {blocks, of_block, each})});
}

// What stands for parts of as many elements each: a sum here, the largest there.
void reduce(Session& s, const Tensor& all, const Tensor& made) {
  const std::int64_t parts = made.elements(), count = all.elements();
  if (count % parts != 0) return s.launch({Operation::Fill, {1}}, {}, {made});
  s.launch(Operation::Sum, {sized(all, {parts, count / parts})}, {sized(made, {parts, 1})});
}

// What an operation of bitsandbytes' own makes for itself, which nobody sees but the allocator.
Tensor within(Session& s, const Shape& sizes, DType dtype, std::string_view what) {
  return s.behavior().kernel_workspaces ? s.empty(sizes, dtype, what)
                                        : s.in_registers(sizes, contiguous_strides(sizes), dtype, what);
}

// functional.py dequantize_4bit, and backends/cuda/ops.py _dequant_linear_fallback, which the forward pass takes from
// 0.50 on and which adds the offset out of place.
Tensor dequantized(Session& s, const QuantizedWeight& q, const Tensor& codes, DType dtype, bool forward) {
  Tensor scales = q.scales, sums;
  const bool at_once = forward && q.converts_once;
  const auto empty = [&](const Shape& sizes, DType its, std::string_view what) {
    return at_once ? within(s, sizes, its, what) : s.empty(sizes, its, what);
  };
  if (q.scales_of_scales.defined()) {
    scales = empty(q.scales.sizes, DType::FP32, "scales");
    scale(s, q.scales, q.scales_of_scales, scales);
    if (at_once) sums = empty(q.scales.sizes, DType::FP32, "scales");
    s.launch(Operation::Add, {scales, q.offset}, {sums.defined() ? sums : scales});
  }
  const Tensor made = empty(q.sizes, at_once ? dtype : q.dtype, "dequantized");
  scale(s, codes, sums.defined() ? sums : scales, made);
  if (!at_once) scales = {};
  return to(s, made, dtype);
}

// bias.data = bias.data.to(…): for good, with the first input that is of another type.
void becomes(Session& s, Leaf& bias, DType dtype) {
  if (bias.value.dtype == dtype) return;
  const NoGrad no_grad(s);
  const LabelId label = s.process.allocation(bias.value.buffer()).label;
  Tensor converted = s.empty(bias.value.sizes, dtype, label, Category::Parameters);
  s.launch(Operation::Copy, {bias.value}, {converted});
  bias.value = std::move(converted);
}

}  // namespace

// Linear4bit.forward, MatMul4Bit: nothing is saved but what the weight is anyway, which is dequantized once more for
// the input's gradient. Its context holds a view of the codes, which hooks on saved tensors do not see, as long as the
// graph is there.
Tensor Linear::quantized_product(Session& s, const Tensor& given) const {
  if (quantized->format == QuantizedFormat::Int8) return int8_product(s, given);
  if (!quantized->computed) quantized->computed = given.dtype;
  const Tensor x = to(s, given, *quantized->computed);
  if (bias && quantized->keeps_biases) becomes(s, *bias, quantized->converts_once ? x.dtype : given.dtype);
  const Tensor added = bias ? to(s, bias->value, x.dtype) : Tensor{};
  auto node = s.node({x});
  Tensor out;
  {
    const NoGrad no_grad(s);
    const Tensor its = dequantized(s, *quantized, weight->value, x.dtype, true);
    out = times(s, x, its, added);
  }
  if (node) {
    const auto codes = std::make_shared<Tensor>(weight->value.detached());
    s.outlives_backward.push_back(codes);
    node->apply = [&s, its = quantized, codes](const Gradients& g) {
      const NoGrad no_grad(s);
      const Tensor again = dequantized(s, *its, *codes, g.front().dtype, false);
      return Gradients{conv1d(s, g.front(), again, {})};
    };
  }
  return to(s, with(std::move(out), std::move(node)), given.dtype);
}

namespace {

// What goes into a product of bytes: codes of rows, and the largest of each.
struct Rows {
  Tensor codes, scales;
};

// backends/cuda/ops.py int8_vectorwise_quant, of 16-bit numbers. That there are outliers, the host reads from the
// device; here none is found.
Rows rows_of_bytes(Session& s, const Tensor& x, bool finds_outliers) {
  const Tensor scales = s.empty({x.size(0)}, DType::FP32, "row_stats");
  const Tensor codes = s.empty(x.sizes, byte_type, "codes");
  const auto outliers = [&] {
    const Tensor sizes = within(s, x.sizes, x.dtype, "abs");
    s.launch(Operation::Copy, {x}, {sizes});
    const Tensor made = within(s, x.sizes, DType::BOOL, "outliers");
    s.launch(Operation::Copy, {sizes}, {made});
    s.process.synchronize();
    return made;
  };
  const Tensor found = finds_outliers ? outliers() : Tensor{};
  reduce(s, x, scales);
  s.launch(Operation::Copy, {x}, {codes});
  return {codes, scales};
}

// int8_scaled_mm: sums of 32 bits, numbers of fp16, and then of the type asked for. Clusters say no rate of such
// products; they take the time of 16-bit ones.
Tensor scaled_product(Session& s, const Rows& x, const Tensor& weight, const Tensor& scales, const Tensor& bias,
                      DType dtype) {
  const std::int64_t rows = x.codes.size(0), outputs = weight.size(0);
  const auto in_16_bits = [&s](const Tensor& codes) {
    const Tensor made = s.in_registers(codes.sizes, codes.strides, DType::FP16, "codes");
    s.launch(Operation::Copy, {codes}, {made});
    return made;
  };
  const Tensor sums = within(s, {rows, outputs}, DType::INT32, "int8_mm");
  const Tensor wide = in_16_bits(x.codes), its = in_16_bits(weight);
  s.launch({Operation::Matmul, {1}}, {wide, swapped(its, 0, 1), Tensor{}, Tensor{}}, {sums});
  const Tensor out = dtype == DType::FP16 ? s.empty(sums.sizes, DType::FP16, "int8_mm_dequant")
                                          : within(s, sums.sizes, DType::FP16, "int8_mm_dequant");
  const Tensor half = s.in_registers(sums.sizes, sums.strides, DType::FP32, "scaled");
  s.launch(Operation::Multiply, {sums, sized(x.scales, {rows, 1})}, {half});
  s.launch(Operation::Multiply, {half, sized(scales, {1, outputs})}, {out});
  if (bias.defined()) s.launch(Operation::Add, {out, bias}, {out});
  return to(s, out, dtype);
}

}  // namespace

// Linear8bitLt.forward, MatMul8bitLt: its context holds the input itself, which hooks on saved tensors do not see, as
// long as the graph is there; backward dequantizes the weight in the input's type.
Tensor Linear::int8_product(Session& s, const Tensor& x) const {
  if (bias) becomes(s, *bias, x.dtype);
  auto node = s.node({x});
  const std::int64_t width = inputs();
  Shape sizes = x.sizes;
  sizes.back() = outputs();
  Tensor rows, out;
  {
    const NoGrad no_grad(s);
    rows = reshape(s, x.detached(), {x.elements() / width, width});
    const Rows codes = [&] { return rows_of_bytes(s, to(s, rows, DType::FP16), quantized->finds_outliers); }();
    out = scaled_product(s, codes, sized(quantized->codes, quantized->sizes), quantized->scales,
                         bias ? bias->value.detached() : Tensor{}, x.dtype);
    out = view(s, out, std::move(sizes));
  }
  weight->value.storage = quantized->codes.storage;  // self.weight.data = self.state.CB, wherever it was gathered to
  if (node) {
    s.keep_saved(rows);
    s.outlives_backward.push_back(std::make_shared<Tensor>(rows));
    node->apply = [&s, its = quantized, dtype = x.dtype](const Gradients& g) {
      const NoGrad no_grad(s);
      const Tensor given = contiguous(s, g.front());
      const Tensor again = s.empty(its->sizes, dtype, "dequantized");
      s.launch(Operation::Copy, {sized(its->codes, its->sizes)}, {again});
      {
        const Tensor of_rows = sized(its->scales, {its->sizes[0], 1});
        const Tensor shares = s.empty(of_rows.sizes, DType::FP32, "scales");
        s.launch({Operation::Scale, {1 / largest_code}}, {of_rows}, {shares});
        s.launch(Operation::Multiply, {again, shares}, {again});
      }
      return Gradients{conv1d(s, given, again, {})};
    };
  }
  return with(std::move(out), std::move(node));
}

// ---- construction --------------------------------------------------------------------------------------------------

// integrations/bitsandbytes.py: every linear but the head, which get_keys_to_not_convert leaves out, unless the modules
// to skip are named.
bool CausalLM::quantizes(const std::string& name) const {
  if (!train_.quantization) return false;
  const std::string path = path_of(model_, name);
  return std::ranges::none_of(train_.quantization->skipped,
                              [&](const std::string& skipped) { return is_or_ends(path, skipped); });
}

Linear CausalLM::make_quantized(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
  const Quantization& requested = *train_.quantization;
  const Session::Scope scope(s_, name);
  Linear made;
  made.name = name;
  made.quantized = std::make_shared<QuantizedWeight>();
  QuantizedWeight& q = *made.quantized;
  q.format = requested.format;
  q.sizes = {outputs, inputs};
  q.dtype = dtype_;
  q.finds_outliers = requested.threshold > 0;
  made.adds_apart = behavior_.stage_3_linear;
  q.keeps_biases = !make_ && !behavior_.stage_3_linear;
  if (!behavior_.quantized.input_sets_type) q.computed = requested.computed;
  q.converts_once = behavior_.quantized.converts_once;
  if (q.format == QuantizedFormat::Int8)
    make_codes_of_8_bits(made);
  else
    make_codes_of_4_bits(made);
  parameters_.push_back(made.weight);
  if (bias) made.bias = parameter(name + ".bias", {outputs});
  return made;
}

// Int8Params._quantize: the weight goes to the device in fp16; codes of a byte, and the largest of each row.
void CausalLM::make_codes_of_8_bits(Linear& made) {
  QuantizedWeight& q = *made.quantized;
  const Tensor loaded = s_.empty(q.sizes, DType::FP16, "loaded", Category::Temporaries);
  q.scales = s_.empty({q.sizes[0]}, DType::FP32, "scales", Category::Quantization);
  made.weight = std::make_shared<Leaf>();
  made.weight->value = s_.empty(q.sizes, byte_type, trained_parameter, Category::Quantization);
  s_.launch(Operation::Initialize, {}, {loaded});
  q.codes = made.weight->value.detached();
  s_.launch(Operation::Copy, {loaded}, {q.codes});
  reduce(s_, loaded, q.scales);
}

// Params4bit._quantize: the weight goes to the device as it was loaded; functional.py quantize_4bit makes codes and the
// scales of blocks, and of these codes of a byte each.
void CausalLM::make_codes_of_4_bits(Linear& made) {
  const Quantization& requested = *train_.quantization;
  QuantizedWeight& q = *made.quantized;
  const auto kept = [&](Shape sizes, DType dtype, std::string_view what) {
    return s_.empty(std::move(sizes), dtype, what, Category::Quantization);
  };
  const std::int64_t elements = q.sizes[0] * q.sizes[1], blocks = ceiled(elements, requested.block);
  const DType stored = requested.stored.value_or(byte_type);
  // What is sharded comes from the host, quantized: only what undoes it is whole on every rank.
  Tensor loaded;
  if (!make_) loaded = s_.empty(q.sizes, dtype_, "loaded", Category::Temporaries);
  Tensor scales;
  if (!requested.nested)
    scales = kept({blocks}, DType::FP32, "scales");
  else if (!make_)
    scales = s_.empty({blocks}, DType::FP32, "scales", Category::Temporaries);
  const std::int64_t of_one = codes_of_a_byte * size_of(stored).count();
  const Shape of_codes{ceiled(elements, codes_of_a_byte) * codes_of_a_byte / of_one, 1};
  if (make_) {
    made.weight = make_(made.name + ".weight", of_codes, stored);
  } else {
    made.weight = std::make_shared<Leaf>();
    made.weight->value = kept(of_codes, stored, trained_parameter);
    s_.launch(Operation::Initialize, {}, {loaded});
    reduce(s_, loaded, made.weight->value);
    reduce(s_, loaded, scales);
  }
  q.table = kept({values_of_4_bits}, DType::FP32, "table");
  if (requested.nested) {
    q.offset = kept({}, DType::FP32, "offset");
    Tensor centred;
    if (!make_) centred = s_.empty({blocks}, DType::FP32, "scales", Category::Temporaries);
    if (!table_of_scales_.defined()) table_of_scales_ = kept({values_of_a_byte}, DType::FP32, "table_of_scales");
    q.scales_of_scales = kept({ceiled(blocks, scales_of_a_block)}, DType::FP32, "scales_of_scales");
    q.scales = kept({blocks}, byte_type, "scales");
    // A copy from 0.46 on; that release is taken for those before it.
    q.table_of_scales = behavior_.quantized.input_sets_type ? table_of_scales_
                                                            : kept({values_of_a_byte}, DType::FP32, "table_of_scales");
    if (make_) {
      s_.launch({Operation::Fill, {1}}, {}, {q.offset});
      s_.launch({Operation::Fill, {1}}, {}, {q.scales_of_scales});
      s_.launch({Operation::Fill, {1}}, {}, {q.scales});
    } else {
      s_.launch(Operation::Mean, {scales}, {q.offset});
      s_.launch({Operation::AddScaled, {-1}}, {scales, q.offset}, {centred});
      reduce(s_, centred, q.scales_of_scales);
      s_.launch(Operation::Copy, {centred}, {q.scales});
    }
  } else {
    if (make_) s_.launch({Operation::Fill, {1}}, {}, {scales});
    q.scales = std::move(scales);
  }
}

// peft/utils/other.py prepare_model_for_kbit_training: what is not quantized is made fp32, one parameter after another.
// Nothing of the model is trained.
void CausalLM::prepare_for_training() {
  for (const std::shared_ptr<Leaf>& p : parameters_) p->freeze();
  const auto widen = [&](const std::shared_ptr<Leaf>* p) {
    if (p == nullptr || !*p || (*p)->value.dtype == DType::FP32 || make_) return;
    Tensor& value = (*p)->value;
    const LabelId label = s_.process.allocation(value.buffer()).label;
    Tensor wide = s_.empty(value.sizes, DType::FP32, label, Category::Parameters);
    s_.launch(Operation::Copy, {value}, {wide});
    value = std::move(wide);
  };
  for (const NamedModule& its : named_modules()) {
    const bool ends = its.name == "embed_tokens" || its.name == "embed_positions" || &head_ == its.linear;
    const bool norm = its.linear == nullptr && !ends;
    if (train_.quantization->prepared == Prepared::All || (norm && train_.quantization->prepared == Prepared::Norms)) {
      if (its.linear == nullptr || !its.linear->quantized) widen(its.weight);
      widen(its.bias);
    }
  }
}

}  // namespace tidemark::parallel::transformers
