#include "parallel/lower/emitter.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel {

namespace {

std::vector<Segment> segments_of(const LoweringInput& input, const std::vector<Stage>& chunks) {
  std::vector<Segment> all;
  for (const Stage& stage : chunks)
    for (Segment& segment : recomputed_segments(input.graph, stage, input.train.recompute))
      all.push_back(std::move(segment));
  return all;
}

}  // namespace

Emitter::Emitter(const LoweringInput& input, const Communicators& communicators, std::vector<Stage> its_chunks)
    : Process(communicators.table, input.runtime.blas_workspace),
      graph(input.graph),
      layout(input.layout),
      train(input.train),
      runtime(input.runtime),
      comms(communicators),
      chunks(std::move(its_chunks)),
      sizes(sizes_of(input.graph.model, input.layout, input.train, input.runtime)),
      weight(input.graph.parameters.size()),
      saved_(input.graph.values.size(), false),
      kept_(input.graph.values.size(), false),
      segments_(segments_of(input, chunks)),
      strided_view_(input.graph.values.size(), false),
      uses_(input.graph.parameters.size(), 0),
      value_labels_(input.graph.values.size()),
      operator_labels_(input.graph.operators.size()) {
  const std::int32_t layers = static_cast<std::int32_t>(graph.model.layers);
  for (const Operator& op : graph.operators)
    if (std::holds_alternative<Split>(op.type) && graph.model.heads == graph.model.kv_heads)
      for (const ValueId v : op.outputs) strided_view_[v.index()] = true;
  std::vector<bool> runs_again(graph.operators.size(), false);
  for (const Segment& segment : segments_) {
    for (const OperatorId op : segment.operators) runs_again[op.index()] = true;
    for (const ValueId v : segment.inputs) kept_[v.index()] = true;
  }
  for (std::size_t o = graph.operators.size(); o-- > 0;) {
    const Operator& op = graph.operators[o];
    if (std::none_of(chunks.begin(), chunks.end(), [&](const Stage& s) { return s.holds(op.layer, layers); })) continue;
    for (const ParameterId p : op.parameters) ++uses_[p.index()];
    for (const ValueId v : op.saved) {
      saved_[v.index()] = true;
      if (!runs_again[o]) kept_[v.index()] = true;
    }
    // The transpose of one sequence that lies side by side is a view, and so is what a split cuts out of a tensor: what
    // saves them saves its input.
    const bool transposed_view =
        std::holds_alternative<Transpose>(op.type) && sizes.micro_batch == 1 && !strided_view(op.inputs.front());
    if (!transposed_view && !strided_view(op.outputs.front())) continue;
    for (std::vector<bool>* whose : {&saved_, &kept_})
      for (const ValueId view : op.outputs)
        if ((*whose)[view.index()]) (*whose)[op.inputs.front().index()] = true;
  }
}

LabelId Emitter::label(OperatorId op, std::string_view use) {
  auto& known = operator_labels_[op.index()];
  for (const auto& [text, id] : known)
    if (text == use) return id;
  const std::string& name = graph[op].name;
  const LabelId made = program.label(use.empty() ? name : fmt::format("{}.{}", name, use));
  known.emplace_back(use, made);  // uses are string literals
  return made;
}

NameId Emitter::name(Local local) {
  NameId& known = local_names_[static_cast<std::size_t>(local)];
  if (!known.valid()) known = program.name(local_names[static_cast<std::size_t>(local)]);
  return known;
}

void Emitter::mark(Phase phase, OperatorId op) { mark(phase, label(op, "")); }

BufferId Emitter::alloc(Bytes size, Category category, OperatorId op, std::string_view use) {
  return alloc(size, category, label(op, use));
}

BufferId Emitter::alloc(ValueId id) {
  const Value& value = graph[id];
  LabelId& known = value_labels_[id.index()];
  if (!known.valid()) known = program.label(value.name);
  const bool of_loss = value.name.starts_with("loss.") || value.name.starts_with("head.logits");
  const bool stays = again ? saved_[id.index()] : kept_[id.index()];
  const Category category = of_loss  ? Category::LogitsLoss
                            : !stays ? Category::Temporaries
                            : again  ? Category::Recompute
                                     : Category::SavedActivations;
  return alloc(sizes.bytes(value), category, known);
}

BufferId Emitter::kept(BufferId buffer, std::string_view name) {
  bind(name, buffer);
  return buffer;
}

BufferId Emitter::gemm_workspace() {
  if (!gemm_workspace_.valid())
    gemm_workspace_ = kept(alloc(runtime.gemm_workspace, Category::Workspaces, "workspace.gemm"), "workspace.gemm");
  return gemm_workspace_;
}

BufferId Emitter::linear_workspace(Pass thread) {
  return runtime.framework_linears ? blas_workspace(thread) : gemm_workspace();
}

BufferId Emitter::global_buffer(Bytes size) {
  if (!global_buffer_.valid() || global_buffer_size_ < size) {
    global_buffer_ = kept(alloc(size, Category::CommTp, "global_memory_buffer.mpu"), "global_memory_buffer.mpu");
    global_buffer_size_ = size;
  }
  return global_buffer_;
}

BufferId Emitter::head_gather(Bytes size) {
  return runtime.persistent_head_gather ? global_buffer(size) : alloc(size, Category::CommTp, "head.gathered");
}

BufferId Emitter::rotary_table() {
  if (rotary_table_.valid()) return rotary_table_;
  const Bytes size = train.sequence_length * graph.model.rotary_dim() * size_of(DType::FP32);
  const auto table = [&](std::string_view name) {
    const BufferId angles = alloc(size / 2, Category::Temporaries, "rotary.angles");  // one per pair of dimensions
    program.launch(Stream{Streaming::Fill, {}, size / 2}, {}, {angles});
    const BufferId made = kept(alloc(size, Category::Workspaces, name), name);
    program.launch(Stream{Streaming::Copy, size / 2, size}, {angles}, {made});
    return made;
  };
  rotary_table_ = table("rotary.table");
  if (!graph.model.window_rotary) return rotary_table_;
  // Each table's own cache keeps it, and so does that of both together, of which layers take views.
  const BufferId of_windows = table("rotary.window_table");
  const BufferId both = kept(alloc(2 * size, Category::Workspaces, "rotary.tables"), "rotary.tables");
  program.launch(Stream{Streaming::Copy, 2 * size, 2 * size}, {rotary_table_, of_windows}, {both});
  return rotary_table_ = both;
}

BufferId Emitter::dummy_gradient(const Parameter& parameter) {
  const std::int64_t rows = sizes.rows(parameter), columns = sizes.columns(parameter);
  const Bytes size = rows * columns * size_of(train.precision);
  const auto text = [&] { return fmt::format("dummy_gradient.{}x{}", rows, columns); };
  if (runtime.dummy_gradient == DummyGradient::Temporary) return alloc(size, Category::Workspaces, text());
  BufferId& cached = dummy_gradients_[{rows, columns}];
  if (!cached.valid()) cached = kept(alloc(size, Category::Workspaces, text()), text());
  return cached;
}

}  // namespace tidemark::parallel
