#include "parallel/frameworks/megatron/ssm/ssd_scan.hpp"

#include <algorithm>
#include <utility>
#include <vector>

// mamba_ssm 2.2.6, ops/triton/ssd_combined.py and the files of its kernels, with causal_conv1d 1.5.3: what is made in
// which order, and how long variables refer to it. What lies between a function's operands and its results is one
// operation here.

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

constexpr std::int64_t chunk_size = 128;  // MambaMixer's, which no flag sets

std::int64_t parts_of(std::int64_t whole, std::int64_t size) { return (whole + size - 1) / size; }

// What the function is given of each token: parts of one tensor's rows, [batch, sequence, width].
struct Projected {
  Tensor gate, mixed, steps;  ///< z; x, B and C together; dt
};
struct Mixed {
  Tensor x, b, c;
};
// Gradients of what is no activation.
struct ScanGradients {
  Tensor skip, dt_bias, rates;
};

// What both directions make.
class ScanCall {
 public:
  ScanCall(Worker& w, const SsdScan& scan)
      : w_(w),
        scan_(scan),
        batch_(w.sizes.micro_batch),
        sequence_(w.sizes.sequence),
        chunks_(parts_of(sequence_, chunk_size)) {}

  [[nodiscard]] Projected parts(const Tensor& projected) const {
    const std::int64_t row = projected.size(-1), inner = scan_.inner();
    const Tensor rows = sized(projected.detached(), {batch_, sequence_, row});
    const auto part = [&](std::int64_t first, std::int64_t width) { return narrowed(rows, -1, first, width); };
    return {part(0, inner), part(inner, scan_.channels()), part(inner + scan_.channels(), scan_.heads)};
  }
  [[nodiscard]] Mixed parts_of_mixed(const Tensor& mixed) const {
    const std::int64_t inner = scan_.inner(), shared = scan_.groups * scan_.state;
    return {narrowed(mixed, -1, 0, inner), narrowed(mixed, -1, inner, shared),
            narrowed(mixed, -1, inner + shared, shared)};
  }
  // B and C are copied where the convolution's kernel left them channel by channel.
  [[nodiscard]] Mixed side_by_side(const Projected& in, const Tensor& convolved) const {
    Mixed of = parts_of_mixed(convolved);
    if (!aligned(in.mixed)) of.b = copied("b", of.b), of.c = copied("c", of.c);
    return of;
  }
  // rearrange_and_update_stride: the kernel takes rows that begin at multiples of eight elements.
  [[nodiscard]] Tensor convolved(const Tensor& mixed) const {
    Tensor x = aligned(mixed) ? mixed : copied("conv_input", mixed);
    Tensor made = w_.temporary(scan_.name("convolved"), mixed.sizes);
    w_.launch(Operation::CausalConv1d, {std::move(x), scan_.conv_weight->value, scan_.conv_bias->value}, {made});
    return made;
  }
  [[nodiscard]] bool aligned(const Tensor& mixed) const { return mixed.strides[1] % 8 == 0; }
  [[nodiscard]] Tensor copied(std::string_view use, const Tensor& x) const {
    Tensor made = w_.temporary(scan_.name(use), x.sizes);
    w_.launch(Operation::Copy, {x}, {made});
    return made;
  }
  [[nodiscard]] Tensor computed(std::string_view use, Shape shape) const {
    return w_.temporary(scan_.name(use), std::move(shape));
  }
  [[nodiscard]] Tensor fp32(std::string_view use, Shape shape) const {
    return w_.temporary(scan_.name(use), std::move(shape), DType::FP32);
  }
  // A number of each token and head.
  [[nodiscard]] Tensor of_chunks(std::string_view use) const {
    return fp32(use, {batch_, scan_.heads, chunks_, chunk_size});
  }
  [[nodiscard]] Tensor states(std::string_view use, DType dtype) const {
    return w_.temporary(scan_.name(use), {batch_, chunks_, scan_.heads, state_size()}, dtype);
  }
  [[nodiscard]] Tensor last_states() const { return fp32("last_states", {batch_, scan_.heads, state_size()}); }
  // Of C B^T, chunk by chunk.
  [[nodiscard]] Tensor scores(std::string_view use, std::int64_t splits = 1) const {
    return fp32(use, {batch_, chunks_, splits * scan_.groups, chunk_size, chunk_size});
  }
  [[nodiscard]] std::int64_t state_size() const { return scan_.head_dim * scan_.state; }
  [[nodiscard]] Attributes numbers() const {
    return {static_cast<double>(scan_.groups), static_cast<double>(chunk_size)};
  }

  // triton/runtime/autotuner.py: when a kernel of several configurations is launched for the first time, each is timed,
  // and testing.py do_bench empties the L2 cache before each run by means of a buffer of 256 MiB.
  void tune(std::string_view kernel) const {
    constexpr std::int64_t cache = std::int64_t{256} << 20;
    if (w_.tuned_kernels.insert(kernel).second)
      (void)w_.make(w_.process.label("triton.l2_cache"), {cache}, DType::BOOL, Category::Workspaces);
  }
  // The same kernel for other types is tuned by itself.
  void tune_state_passing(DType made) const {
    tune(made == DType::FP32 ? std::string_view("state_passing_fwd in fp32") : "state_passing_fwd");
  }

  Worker& w_;
  const SsdScan& scan_;
  std::int64_t batch_, sequence_, chunks_;
};

// _mamba_chunk_scan_combined_fwd
Tensor scanned(const ScanCall& call, const Projected& in, const Tensor& convolved, const Tensor& dt_bias,
               const Tensor& rates, Tensor& before_gate) {
  const Mixed of = call.side_by_side(in, convolved);
  const Tensor steps = call.of_chunks("steps"), decays = call.of_chunks("decays");
  call.tune("chunk_cumsum_fwd");
  Tensor states = call.states("chunk_states", DType::FP32);
  call.tune("chunk_state_fwd");
  const DType dtype = call.w_.train.precision;
  Tensor passed = call.states("states", dtype);
  const Tensor last = call.last_states();
  call.tune_state_passing(dtype);
  states = std::move(passed);
  const Tensor scores = call.scores("scores");
  call.tune("bmm_chunk_fwd");
  // As MambaMixer looks at it: [tokens, width] where there is nothing to put in order.
  const Shape rows{call.w_.tokens(), call.scan_.inner()};
  Tensor out = call.computed("out", call.batch_ > 1 ? in.gate.sizes : rows);
  before_gate = call.computed("before_gate", in.gate.sizes);
  call.tune("chunk_scan_fwd");
  call.w_.launch({Operation::SsdScan, call.numbers()},
                 {of.x, in.steps, rates, of.b, of.c, call.scan_.skip->value, in.gate, dt_bias},
                 {sized(out, in.gate.sizes), before_gate}, std::vector{steps, decays, states, last, scores});
  return out;
}

// _mamba_chunk_scan_combined_bwd, whose variables live until it returns, or until they get another value.
class ScanBackward {
 public:
  ScanBackward(const ScanCall& call, const Projected& in, const Tensor& convolved)
      : call_(call), in_(in), of_(call.side_by_side(in, convolved)), dtype_(call.w_.train.precision) {}

  // Into `made` and `mixed_gradient`, but for what it gives.
  ScanGradients run(const Tensor& gradient, const Tensor& dt_bias, const Tensor& rates, const Tensor& before_gate,
                    const Projected& made, const Tensor& mixed_gradient) {
    compute_again();
    const Tensor skip = of_gate();
    of_states();
    of_tokens();
    of_decays();
    const Tensor own_bias = call_.fp32("dt_bias_gradient", {call_.scan_.heads});
    const Tensor own_rates = call_.fp32("rates_gradient", {call_.scan_.heads});
    call_.tune("chunk_cumsum_bwd");
    const Mixed into = call_.parts_of_mixed(mixed_gradient);
    const SsdScan& scan = call_.scan_;
    call_.w_.launch({Operation::SsdScanBackward, call_.numbers()},
                    {gradient, of_.x, in_.steps, rates, of_.b, of_.c, scan.skip->value, in_.gate, dt_bias, before_gate},
                    {into.x, made.steps, own_rates, into.b, into.c, skip, made.gate, own_bias},
                    std::vector{steps_copy_, steps_, decays_, scores_, states_, last_, before_gate_, state_gradients_});
    return {skip, own_bias, own_rates};
  }

 private:
  // What the forward pass had made, with states in fp32.
  void compute_again() {
    steps_copy_ = call_.computed("steps_copy", in_.steps.sizes);
    steps_ = call_.of_chunks("steps"), decays_ = call_.of_chunks("decays");
    call_.tune("chunk_cumsum_fwd");
    scores_ = call_.scores("scores");
    call_.tune("bmm_chunk_fwd");
    states_ = call_.states("chunk_states", DType::FP32);
    call_.tune("chunk_state_fwd");
    Tensor passed = call_.states("states", DType::FP32);
    last_ = call_.last_states();
    call_.tune_state_passing(DType::FP32);
    states_ = std::move(passed);
  }
  // Of a number of each head, what blocks of rows have added up.
  [[nodiscard]] Tensor skip_blocks() const {
    constexpr std::int64_t rows_of_block = 32;
    return call_.fp32("skip_blocks", {chunk_size / rows_of_block, call_.batch_, call_.chunks_, call_.scan_.heads, 1});
  }
  [[nodiscard]] Tensor skip_of(Tensor blocks) const {
    const Shape of_heads{call_.scan_.heads};
    Tensor sum = call_.fp32("skip_sum", of_heads);
    blocks = {};
    return dtype_ == DType::FP32 ? sum : call_.computed("skip_gradient", of_heads);
  }
  // _chunk_scan_bwd_dz
  [[nodiscard]] Tensor of_gate() {
    Tensor blocks = skip_blocks();
    before_gate_ = call_.computed("before_gate_gradient", in_.gate.sizes);
    call_.tune("chunk_scan_bwd_dz");
    return skip_of(std::move(blocks));
  }
  // _chunk_scan_bwd_dstates, _state_passing_bwd
  void of_states() {
    state_gradients_ = call_.states("state_gradients", DType::FP32);
    call_.tune("chunk_scan_bwd_dstates");
    Tensor own = call_.states("state_gradients", dtype_), converted = states_;
    if (dtype_ != DType::FP32) converted = call_.states("states", dtype_);
    constexpr std::int64_t of_block = 64;
    const std::int64_t blocks = parts_of(call_.state_size(), of_block);
    {
      const Tensor by_block = call_.fp32("decay_blocks", {call_.batch_, call_.scan_.heads, call_.chunks_, blocks});
      call_.tune("state_passing_bwd");
      chunk_decays_ = call_.fp32("chunk_decays", {call_.batch_, call_.scan_.heads, call_.chunks_});
    }
    state_gradients_ = std::move(own), states_ = std::move(converted);
  }
  // Heads of a group that a program adds up by itself: no more than leave each multiprocessor a program.
  [[nodiscard]] std::int64_t splits() const {
    const std::int64_t of_group = call_.scan_.heads / call_.scan_.groups;
    const std::int64_t each =
        parts_of(call_.batch_ * call_.chunks_ * call_.scan_.heads, call_.w_.runtime.core.multiprocessors);
    return parts_of(of_group, std::max<std::int64_t>(std::min(each, of_group), 1));
  }
  [[nodiscard]] Tensor of_groups(std::string_view use, std::string_view by_program, std::string_view kernel) const {
    const SsdScan& scan = call_.scan_;
    const Tensor parts = call_.fp32(by_program, {call_.batch_, call_.sequence_, splits(), scan.groups, scan.state});
    call_.tune(kernel);
    return call_.fp32(use, {call_.batch_, call_.sequence_, scan.groups, scan.state});
  }
  // _chunk_scan_chunk_state_bwd_dx, _chunk_state_bwd_db, _chunk_scan_bwd_dC, _chunk_scan_bwd_dcb
  void of_tokens() {
    Tensor blocks = skip_blocks();
    step_gradients_ = call_.of_chunks("step_gradients");
    call_.tune("chunk_scan_chunk_state_bwd_dx");
    skip_from_x_ = skip_of(std::move(blocks));
    decays_next_ = call_.of_chunks("decays_next");
    b_ = of_groups("b_sum", "b_parts", "chunk_state_bwd_db");
    decays_before_ = call_.of_chunks("decays_before");
    c_ = of_groups("c_sum", "c_parts", "chunk_scan_bwd_dc");
    const Tensor parts = call_.scores("score_parts", splits());
    call_.tune("chunk_scan_bwd_dcb");
    score_gradients_ = call_.scores("score_gradients");
    call_.tune("bmm_chunk_bwd");
  }
  // flip, cumsum and flip again; _chunk_scan_bwd_ddAcs_stable; their sum.
  void of_decays() {
    Tensor flipped = call_.of_chunks("decays_flipped"), summed = call_.of_chunks("decays_summed");
    flipped = {};
    flipped = call_.of_chunks("decays_flipped");
    summed = {};
    decays_summed_ = std::move(flipped);
    {
      const std::int64_t blocks = chunk_size / 32;
      const Tensor by_block =
          call_.fp32("decay_blocks", {call_.batch_, call_.scan_.heads, call_.chunks_, blocks, chunk_size});
      call_.tune("chunk_scan_bwd_ddAcs_stable");
      decay_gradients_ = call_.of_chunks("decay_gradients");
    }
    const Tensor others = call_.of_chunks("decays_added");
  }

  const ScanCall& call_;
  const Projected& in_;
  Mixed of_;
  DType dtype_;
  Tensor steps_copy_, steps_, decays_, scores_, states_, last_, before_gate_, state_gradients_, chunk_decays_;
  Tensor step_gradients_, skip_from_x_, decays_next_, b_, decays_before_, c_, score_gradients_;
  Tensor decays_summed_, decay_gradients_;
};

// causal_conv1d_bwd_function: sums in fp32. Where rows are not aligned it writes beside its place.
Gradients conv_backward(const ScanCall& call, const Tensor& gradient, const Tensor& mixed, const Tensor& made) {
  const bool aligned = call.aligned(mixed), wide = call.w_.train.precision == DType::FP32;
  const SsdScan& scan = call.scan_;
  const Tensor x = aligned ? mixed : call.copied("conv_input", mixed);
  const Tensor into = aligned ? made : call.computed("conv_input_gradient", made.sizes);
  Tensor weight = call.fp32("conv_weight_sum", scan.conv_weight->shape());
  Tensor bias = call.fp32("conv_bias_sum", scan.conv_bias->shape());
  call.w_.launch(Operation::CausalConv1dBackward, {gradient, x, scan.conv_weight->value, scan.conv_bias->value},
                 {into, weight, bias});
  const auto converted = [&](std::string_view use, Tensor& sum) {
    if (wide) return;
    Tensor narrow = call.computed(use, sum.sizes);
    call.w_.launch(Operation::Copy, {std::move(sum)}, {narrow});
    sum = std::move(narrow);
  };
  converted("conv_weight_gradient", weight);
  converted("conv_bias_gradient", bias);
  if (!aligned) call.w_.launch(Operation::Copy, {into}, {made});
  return {std::move(weight), std::move(bias)};
}

// What the function saves beside parameters.
struct SavedScan {
  Saved projected, before_gate, dt_bias, rates;
};

// MambaSplitConv1dScanCombinedFn.backward: the gradient that came in is a variable of the function, too.
Gradients backward_of(Worker& w, const SsdScan& scan, const Tensor& gradient, SavedScan saved) {
  const Tensor projected = w.take(saved.projected), before_gate = w.take(saved.before_gate),
               rates = w.take(saved.rates), dt_bias = w.take(saved.dt_bias);
  const ScanCall call(w, scan);
  const Projected in = call.parts(projected);
  const Tensor convolved = call.convolved(in.mixed);
  Tensor made = w.like(scan.name("projected_gradient"), projected);
  const Projected into = call.parts(made);
  const Tensor mixed_gradient = call.computed("mixed_gradient", in.mixed.sizes);
  const bool by_sequence = gradient.sizes.size() == in.gate.sizes.size();
  const Tensor given = by_sequence ? gradient : sized(gradient.detached(), in.gate.sizes);
  const ScanGradients of =
      ScanBackward(call, in, convolved).run(given, dt_bias, rates, before_gate, into, mixed_gradient);
  Gradients conv = conv_backward(call, mixed_gradient, in.mixed, into.mixed);
  return {std::move(made), std::move(conv[0]), std::move(conv[1]), of.dt_bias, of.rates, of.skip};
}

}  // namespace

Tensor ssd_scan(Worker& w, const SsdScan& scan, Tensor projected, Tensor dt_bias, Tensor rates) {
  w.mark(Phase::Forward, scan.name);
  const auto node = w.node(
      scan.name(), {&projected, &scan.conv_weight->value, &scan.conv_bias->value, &dt_bias, &rates, &scan.skip->value});
  const ScanCall call(w, scan);
  const Projected in = call.parts(projected);
  const Tensor convolved = call.convolved(in.mixed);
  Tensor before_gate;
  Tensor out = scanned(call, in, convolved, dt_bias, rates, before_gate);
  if (!node) return out;
  Session& s = w.session;
  node->apply = [&w, &scan, saved = SavedScan{s.save(projected), s.save(before_gate), s.save(dt_bias), s.save(rates)}](
                    Gradients& gradients) mutable { return backward_of(w, scan, gradients.front(), std::move(saved)); };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
