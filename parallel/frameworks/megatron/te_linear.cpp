#include <utility>

#include "parallel/frameworks/megatron/te.hpp"
#include "parallel/frameworks/megatron/user_buffers.hpp"

namespace tidemark::parallel::megatron {

using torch::usual_epsilon;
using torch::with;

// ---- norms ---------------------------------------------------------------------------------------------------------

double norm_weight_offset(const Worker& w) { return w.model.zero_centered_norms ? 1 : 0; }

Tensor norm_forward(Worker& w, const Norm& norm, Tensor x, NormContext* context) {
  if (context != nullptr) context->input = w.session.save(x);
  const Shape statistics = w.residual(1);
  Tensor out = w.like(norm.name("out"), x), mean;
  if (norm.bias != nullptr) mean = w.temporary(norm.name("mean"), statistics, DType::FP32);
  Tensor rstd = w.temporary(norm.name("rstd"), statistics, DType::FP32);
  const Attributes numbers{usual_epsilon, norm_weight_offset(w)};
  if (norm.bias != nullptr)
    w.launch({Operation::LayerNorm, numbers}, {std::move(x), norm.weight->value, norm.bias->value}, {out, mean, rstd});
  else
    w.launch({Operation::RmsNorm, numbers}, {std::move(x), norm.weight->value, Tensor{}}, {out, rstd});
  if (context == nullptr) return out;
  if (mean.defined()) context->mean = w.session.save(mean);
  context->rstd = w.session.save(rstd);
  return out;
}

Gradients norm_backward(Worker& w, const Norm& norm, Tensor gradient, NormContext context) {
  Tensor x = w.take(context.input), mean;
  if (context.mean) mean = w.take(context.mean);
  Tensor rstd = w.take(context.rstd);
  Tensor dx = w.like(norm.name("input_gradient"), x);
  Tensor dweight = w.temporary(norm.name("weight_gradient"), norm.weight->shape()), dbias;
  if (norm.bias != nullptr) dbias = w.temporary(norm.name("bias_gradient"), norm.bias->shape());
  const Attributes numbers{norm_weight_offset(w)};
  if (norm.bias != nullptr)
    w.launch({Operation::LayerNormBackward, numbers},
             {std::move(gradient), std::move(x), std::move(mean), std::move(rstd), norm.weight->value},
             {dx, dweight, dbias});
  else
    w.launch({Operation::RmsNormBackward, numbers},
             {std::move(gradient), std::move(x), std::move(rstd), norm.weight->value, Tensor{}}, {dx, dweight});
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

Tensor norm(Worker& w, const Norm& norm, Tensor x) {
  static const Tensor none;
  w.mark(Phase::Forward, norm.name);
  const auto node = w.node(norm.name(), {&x, &norm.weight->value, norm.bias != nullptr ? &norm.bias->value : &none});
  NormContext context;
  Tensor out = norm_forward(w, norm, std::move(x), node ? &context : nullptr);
  if (!node) return out;
  node->sum = norm.name("gradient_sum");
  node->apply = [&w, &norm, context = std::move(context)](Gradients& gradients) mutable {
    return norm_backward(w, norm, std::move(gradients.front()), std::move(context));
  };
  return with(std::move(out), node);
}

// ---- linears -------------------------------------------------------------------------------------------------------

void forward_product(const Worker& w, const Weight& weight, const Weight* bias, Tensor x, const Tensor& out,
                     BufferId workspace, ConcurrentKernels concurrent) {
  w.launch({Operation::Matmul, {1, concurrent.spared, concurrent.alike}},
           {std::move(x), swapped(weight.value, 0, 1), bias != nullptr ? bias->value : Tensor{}, Tensor{}}, {out},
           workspace);
}

void data_gradient_product(const Worker& w, const Weight& weight, const Tensor& gradient, const Tensor& out,
                           BufferId workspace, ConcurrentKernels concurrent) {
  w.launch({Operation::Matmul, {1, concurrent.spared, concurrent.alike}}, {gradient, weight.value, Tensor{}, Tensor{}},
           {out}, workspace);
}

Tensor weight_gradient_product(Worker& w, const Name& name, const Weight& weight, Tensor input, Tensor gradient,
                               BufferId workspace, ConcurrentKernels concurrent) {
  const Computation product{Operation::Matmul, {1, concurrent.spared, concurrent.alike}};
  if (w.runtime.dummy_gradient == DummyGradient::None) {
    Tensor own = w.temporary(name("weight_gradient"), weight.shape());
    w.launch(product, {swapped(std::move(gradient), 0, 1), std::move(input), Tensor{}, Tensor{}}, {own}, workspace);
    return own;
  }
  w.launch(product, {swapped(std::move(gradient), 0, 1), std::move(input), Tensor{}, weight.main_gradients},
           {weight.main_gradients}, workspace);
  return {};
}

// A weight that is used once has its gradient already (grad_added_to_main_grad).
Tensor given_gradient(Worker& w, const Weight& weight, Tensor own) {
  if (w.runtime.dummy_gradient == DummyGradient::None) return own;
  Tensor dummy = w.dummy_gradient(weight);
  if (weight.uses > 1) return dummy;
  // Autograd hands it over all the same. A cached one is never free, and that the wrapper's stream waits for it matters
  // only to a hook that has something to do (overlapped_buckets.cpp).
  if (w.runtime.core.wraps_aside && !w.caches_dummy(weight)) {
    w.process.wait(wrapper_stream, w.process.record(w.session.stream()));
    w.session.record_stream(dummy, wrapper_stream);
  }
  return {};
}

Tensor weight_gradient(Worker& w, const Name& name, const Weight& weight, Tensor input, Tensor gradient,
                       BufferId workspace, ConcurrentKernels concurrent) {
  Tensor own = weight_gradient_product(w, name, weight, std::move(input), std::move(gradient), workspace, concurrent);
  return given_gradient(w, weight, std::move(own));
}

namespace {

void bias_gradient(Worker& w, const Linear& linear, Tensor gradient) {
  Tensor made = w.temporary(linear.name("bias_gradient"), linear.bias->shape());
  w.launch(Operation::Sum, {std::move(gradient)}, {made});
  w.accumulate(*linear.bias, std::move(made));
  if (linear.bias->gradient_arrived) linear.bias->gradient_arrived();
}

// core/tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication gathers into the buffer that is never
// given back, TransformerEngine's linears into a tensor.
Tensor room_for_gathered(Worker& w, const Linear& linear) {
  const Shape whole = w.whole(linear.weight->columns);
  return w.runtime.framework_linears ? w.global_buffer(whole) : w.communicated(linear.name("gathered"), whole);
}

Tensor gathered_input(Worker& w, const Linear& linear, Tensor x) {
  Tensor gathered = room_for_gathered(w, linear);
  w.session.collective(w.comms.tensor, CollectiveKind::AllGather, x, gathered);
  return gathered;
}

// Of a norm and a linear in one function nothing goes round where no gradients will be asked for.
enum class Rings : std::uint8_t { Allowed, None };

Tensor linear_forward(Worker& w, const Linear& linear, Tensor x, Rings rings) {
  const Weight& weight = *linear.weight;
  const bool row_parallel = linear.row_parallel(), column_parallel = linear.column_parallel();
  if (column_parallel && rings == Rings::Allowed && gathers_in_ring(w, linear)) return ring_forward(w, linear, x);
  if (row_parallel && scatters_in_pieces(w, linear)) return pipelined_forward(w, linear, x);
  if (column_parallel && w.sequence_parallel()) x = gathered_input(w, linear, std::move(x));
  // PyTorch's products make what they give before they ask for a workspace.
  BufferId workspace = w.runtime.framework_linears ? BufferId{} : w.linear_workspace(HostThread::Main);
  if (row_parallel && w.sequence_parallel()) {
    Tensor partial = w.temporary(linear.name("partial_sum"), w.whole(weight.rows));
    if (w.runtime.framework_linears) workspace = w.linear_workspace(HostThread::Main);
    forward_product(w, weight, linear.bias, std::move(x), partial, workspace);
    Tensor out = w.temporary(linear.name("out"), w.residual(weight.rows));
    w.session.collective(w.comms.tensor, CollectiveKind::ReduceScatter, partial, out);
    return out;
  }
  Tensor out = w.temporary(linear.name("out"), {x.size(0), weight.rows});
  if (w.runtime.framework_linears) workspace = w.linear_workspace(HostThread::Main);
  if (linear.bias != nullptr && w.runtime.framework_linears) {  // output + bias
    Tensor product = std::move(out);
    forward_product(w, weight, nullptr, std::move(x), product, workspace);
    out = w.like(linear.name("out"), product);
    w.launch(Operation::Add, {std::move(product), linear.bias->value}, {out});
    return out;
  }
  forward_product(w, weight, linear.bias, std::move(x), out, workspace);
  if (row_parallel) w.all_reduce(out);
  return out;
}

struct LinearGradients {
  Tensor input, weight;
};

// Until the pipeline's schedule asks for the weights' gradients.
void defer_weight_gradient(Worker& w, const Linear& linear, Tensor whole_input, Tensor gradient, BufferId workspace) {
  w.weight_gradients_later->push_back([&w, &linear, whole_input = std::move(whole_input),
                                       gradient = std::move(gradient), workspace]() mutable {
    w.mark(Phase::Backward, linear.name);
    Tensor of_bias;
    if (linear.bias != nullptr) of_bias = gradient;
    Tensor own =
        weight_gradient_product(w, linear.name, *linear.weight, std::move(whole_input), std::move(gradient), workspace);
    if (own.defined()) w.accumulate(*linear.weight, std::move(own));
    if (linear.bias != nullptr) bias_gradient(w, linear, std::move(of_bias));
  });
}

// The next product writes over what is in the communication buffer.
Tensor out_of_buffer(Worker& w, const Linear& linear, Tensor received, const Shape& shape) {
  Tensor own = w.temporary(linear.name("input_gradient_scattered"), shape);
  w.launch(Operation::Copy, {std::move(received)}, {own});
  return own;
}

// The sum over ranks of the input's gradient, which is made beside the product of the weight's gradient.
Coming reduce_input_gradient(Worker& w, const Linear& linear, const Tensor& dgrad, const Shape& shape, bool scatters) {
  if (scatters) return bulk_scatter(w, linear);
  if (!linear.column_parallel()) return {dgrad, {}};
  if (!w.sequence_parallel()) return {dgrad, w.aside(CollectiveKind::AllReduce, dgrad, dgrad)};
  Tensor part = w.communicated(linear.name("input_gradient_scattered"), shape);
  const EventId reducing = w.aside(CollectiveKind::ReduceScatter, dgrad, part);
  return {std::move(part), reducing};
}

// The whole input of the weight's gradient, gathered beside the product of the input's gradient.
Coming gather_input(Worker& w, const Linear& linear, const Tensor& input, bool in_bulk) {
  if (in_bulk) return bulk_gather(w, linear, input);
  Tensor whole = room_for_gathered(w, linear);
  const EventId gathering = w.aside(CollectiveKind::AllGather, input, whole);
  return {std::move(whole), gathering};
}

// Collectives run beside the GEMM that does not wait for them. Where the norm before it is part of the same function,
// the variables `dgrad` and `grad_output` stay in its frame.
LinearGradients linear_backward(Worker& w, const Linear& linear, Tensor gradient, Saved saved, Node* frame) {
  const Weight& weight = *linear.weight;
  const bool row_parallel = linear.row_parallel(), column_parallel = linear.column_parallel();
  const bool sequence_parallel = w.sequence_parallel();
  const bool ring = row_parallel && gathers_in_ring(w, linear);
  // A linear by itself is not told to go in bulk (core/extensions/transformer_engine.py TELinear).
  const bool in_bulk = column_parallel && frame != nullptr;
  const bool gathers = in_bulk && gathers_in_bulk(w, linear), scatters = in_bulk && scatters_in_bulk(w, linear);
  if (frame != nullptr) frame->frame.push_back(gradient);
  const auto workspace_of = [&](bool by_user_buffers) {
    return by_user_buffers ? w.user_buffer_workspace() : w.linear_workspace(HostThread::Autograd);
  };
  const bool of_framework = w.runtime.framework_linears;
  BufferId workspace = ring || of_framework ? BufferId{} : workspace_of(gathers);
  if (row_parallel && sequence_parallel && !ring)
    gradient = w.all_gather(linear.name("gradient_gathered"), std::move(gradient), w.whole(weight.rows));

  Tensor input = w.take(saved), dgrad;
  if (ring) {
    RingGradients made = ring_backward(w, linear, std::move(gradient));
    dgrad = std::move(made.input), gradient = std::move(made.gathered);
  }
  const Shape input_shape = input.sizes;
  Tensor whole_input = input;
  EventId gathering;  // while the GEMM of the input's gradient runs
  if (gathers || (column_parallel && sequence_parallel)) {
    Coming coming = gather_input(w, linear, input, gathers);
    whole_input = std::move(coming.whole), gathering = coming.come;
  }
  if (!ring) {
    dgrad = scatters ? bulk_room(w, linear)
                     : w.temporary(linear.name("input_gradient"),
                                   row_parallel || column_parallel ? w.whole(weight.columns) : input_shape);
    if (of_framework) workspace = workspace_of(gathers);
    data_gradient_product(w, weight, gradient, dgrad, workspace, {.spared = gathers ? spared_multiprocessors : 0});
  }
  if (ring || gathers != scatters) workspace = workspace_of(scatters);
  Coming reduced = reduce_input_gradient(w, linear, dgrad, input_shape, scatters);
  Tensor result = std::move(reduced.whole);
  const EventId reducing = reduced.come;  // while the GEMM of the weight's gradient runs
  w.process.join(gathering);
  if (w.weight_gradients_later != nullptr) {
    defer_weight_gradient(w, linear, std::move(whole_input), std::move(gradient), workspace);
    w.process.join(reducing);
    if (frame != nullptr) frame->frame.push_back(std::move(dgrad));
    return {std::move(result), given_gradient(w, weight, {})};
  }
  Tensor of_bias, held_input, held_gradient;  // variables of Megatron's function
  if (linear.bias != nullptr) of_bias = gradient;
  if (of_framework) held_input = whole_input.detached(), held_gradient = gradient.detached();
  Tensor wgrad = weight_gradient(w, linear.name, weight, std::move(whole_input), std::move(gradient), workspace,
                                 {.spared = scatters ? spared_multiprocessors : 0});
  w.process.join(reducing);
  if (scatters) {
    result = out_of_buffer(w, linear, std::move(result), input_shape);
    dgrad = {};
  }
  input = {};  // TransformerEngine clears it as soon as the weight gradient is done
  if (linear.bias != nullptr) bias_gradient(w, linear, std::move(of_bias));
  if (frame != nullptr && dgrad.defined()) frame->frame.push_back(std::move(dgrad));
  return {std::move(result), std::move(wgrad)};
}

}  // namespace

Tensor linear(Worker& w, const Linear& linear, Tensor x) {
  w.mark(Phase::Forward, linear.name);
  const auto node = w.node(linear.name(), {&linear.weight->value, &x});
  Saved saved;
  if (node) saved = w.session.save(x);
  Tensor out = linear_forward(w, linear, std::move(x), Rings::Allowed);
  if (!node) return out;
  node->sum = linear.name("gradient_sum");
  node->apply = [&w, &linear, saved = std::move(saved)](Gradients& gradients) mutable {
    LinearGradients made = linear_backward(w, linear, std::move(gradients.front()), std::move(saved), nullptr);
    return Gradients{std::move(made.weight), std::move(made.input)};
  };
  return with(std::move(out), node);
}

Tensor norm_linear(Worker& w, const Norm& norm, const Linear& linear, Tensor x) {
  static const Tensor none;
  if (!w.runtime.fused_norm_linear) return megatron::linear(w, linear, megatron::norm(w, norm, std::move(x)));
  w.mark(Phase::Forward, norm.name);
  const auto node = w.node(linear.name(), {&x, &norm.weight->value, norm.bias != nullptr ? &norm.bias->value : &none,
                                           &linear.weight->value});
  NormContext context;
  Tensor normed = norm_forward(w, norm, std::move(x), node ? &context : nullptr);
  w.mark(Phase::Forward, linear.name);
  Saved saved;
  if (node) saved = w.session.save(normed);
  Tensor out = linear_forward(w, linear, std::move(normed), node ? Rings::Allowed : Rings::None);
  if (!node) return out;
  node->sum = norm.name("gradient_sum");
  node->apply = [&w, &norm, &linear, frame = node.get(), context = std::move(context),
                 saved = std::move(saved)](Gradients& gradients) mutable {
    LinearGradients of_linear = linear_backward(w, linear, std::move(gradients.front()), std::move(saved), frame);
    w.mark(Phase::Backward, norm.name);
    Gradients made = norm_backward(w, norm, std::move(of_linear.input), std::move(context));
    made.push_back(std::move(of_linear.weight));
    return made;
  };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
