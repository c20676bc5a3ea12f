#include <memory>
#include <numeric>
#include <utility>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/experts/token_traffic.hpp"
#include "parallel/frameworks/megatron/mappings.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

// DeepEP 1.2.1 (csrc/deep_ep.cpp, deep_ep/buffer.py): a token goes once to each rank that holds any of its experts, and
// comes back as the sum over ranks. Kernels run, and tensors are made, on the buffer's own stream. What they do is
// written here in steps; rows that are on their way lie in the buffer, which is priced as its communicator.

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

constexpr std::int64_t ranks_of_a_node = 8;  // csrc/kernels/configs.cuh NUM_MAX_NVL_PEERS

Shape strides_of(const Shape& sizes) {
  Shape strides = sizes;
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) strides[i] = std::exchange(stride, stride * sizes[i]);
  return strides;
}

// The process's first layer with experts.
bool is_first(const Worker& w, std::int32_t layer) {
  for (const Stage& chunk : w.chunks)
    for (std::int32_t its = chunk.first; its < chunk.last + (chunk.head ? w.model.further.size() : 0); ++its)
      if (w.model.has_experts(its)) return its == layer;
  return false;
}

/// token_dispatcher.py MoEFlexTokenDispatcher and _DeepepManager; fused_a2a.py.
class DeepEpDispatcher final : public TokenDispatcher {
 public:
  DeepEpDispatcher(Worker& worker, const std::string& path, std::int32_t layer);

  [[nodiscard]] Rows preprocess(const Tensor& hidden, const Router::Choice& choice) override;
  [[nodiscard]] Rows dispatch(const Rows& own) override;
  [[nodiscard]] Rows postprocess(Rows dispatched) override;
  [[nodiscard]] const std::vector<std::int64_t>& rows_of_experts() const override { return rows_; }
  [[nodiscard]] Tensor combine_preprocess(Tensor rows) override;
  [[nodiscard]] Tensor combine(const Tensor& rows) override;
  [[nodiscard]] Tensor combine_postprocess(const Tensor& rows) override { return rows; }

 private:
  // What a dispatch gives to those that go the same way: which tokens go to which rank, and what kernels look up
  // besides.
  struct Handle {
    Tensor in_rank;
    std::vector<Tensor> tables;
  };
  struct Sent {
    Tensor tokens, ids, probabilities;
    std::shared_ptr<const Handle> handle;
  };
  enum class Kind : std::uint8_t { Tokens, Probabilities, Ids };

  [[nodiscard]] Tensor in_registers(const Shape& sizes, DType dtype, std::string_view what) const {
    return w_.session.in_registers(sizes, strides_of(sizes), dtype, what);
  }
  [[nodiscard]] Tensor received(const Shape& sizes, DType dtype, std::string_view what) const {
    return w_.session.empty(sizes, dtype, what, Category::CommEp);
  }
  [[nodiscard]] MatrixId matrix(Kind kind, bool back) const {
    return MatrixId{8 * layer_ + 2 * static_cast<std::int32_t>(kind) + (back ? 1 : 0)};
  }
  [[nodiscard]] Tensor map_of(const Handle& handle) const;
  void send(Kind kind, const Tensor& x, const Tensor& map, const Tensor& out) const;
  void sum(Kind kind, const Tensor& rows, const Tensor& map, const Tensor& out, const Handle& handle) const;
  void make_buffer();
  void begin() const;
  void end(const std::vector<Tensor>& used) const;
  [[nodiscard]] Sent buffer_dispatch(const Tensor& x, const Tensor& ids, const Tensor& probabilities) const;
  [[nodiscard]] Tensor buffer_dispatch(const Tensor& x, const std::shared_ptr<const Handle>& handle) const;
  [[nodiscard]] Rows buffer_combine(const Tensor& x, const Handle& handle, const Tensor& probabilities) const;
  void keep(const Handle& handle) const;
  [[nodiscard]] Tensor selected(const Tensor& x, const Tensor& mask) const;
  [[nodiscard]] Tensor places_of(const Tensor& rows, const Tensor& columns, const Shape& strides) const;
  void to_multihot();

  Worker& w_;
  Name name_;
  std::int32_t layer_;
  std::int64_t ranks_, experts_, chosen_;  ///< of the group of all who hold parts of a layer's experts
  std::int64_t held_, first_;              ///< experts of this rank
  std::int64_t tokens_, tokens_received_;  ///< of this rank; that come to it, each once
  std::int64_t tokens_of_node_ = 0;        ///< that come to its node from ranks of its number, where there are several
  std::vector<std::int64_t> rows_;         ///< that its experts get
  Traffic traffic_;
  bool makes_buffer_;  ///< its first call is the process's first
  // Attributes.
  Tensor token_probabilities_, token_ids_, ids_, probabilities_, map_, order_;
  std::shared_ptr<const Handle> handle_;
};

DeepEpDispatcher::DeepEpDispatcher(Worker& w, const std::string& path, std::int32_t layer)
    : w_(w),
      name_(w.name(path + ".dispatcher")),
      layer_(layer),
      tokens_(w.residual(1)[0]),
      makes_buffer_(is_first(w, layer)) {
  const Experts& experts = *w.model.layer(layer).experts();
  const std::int64_t within = w.layout.expert_tensor_parallel(), places = w.layout.expert;
  ranks_ = places * within;
  held_ = experts.count / places;
  experts_ = experts.count * within;
  chosen_ = experts.chosen * within;
  const Mesh mesh = expert_mesh(w.layout);
  const Rank rank = rank_at(w.layout, w.place);
  const std::int32_t place = mesh.coordinate(rank, axis::ep);
  const std::int64_t number = place * within + mesh.coordinate(rank, axis::etp);
  first_ = number * held_;
  const LayerRouting routing(w.model, w.train.routing, layer, tokens_, w.layout.expert);
  rows_ = routing.received(place, ranks_);
  tokens_received_ = routing.received_tokens(place, ranks_);
  if (!routing.tokens().eights.empty())
    tokens_of_node_ =
        routing.received_by_eight(static_cast<std::int32_t>(number / ranks_of_a_node), ranks_ / ranks_of_a_node);
  for (std::int64_t r = 0; r < ranks_; ++r) {
    traffic_.sends.push_back(routing.tokens().ranks[static_cast<std::size_t>(r / within)]);
    traffic_.receives.push_back(part_of(tokens_received_, r, ranks_));
  }
}

// ---- DeepEP's buffer ------------------------------------------------------------------------------------------------

// fused_a2a.py get_buffer: Buffer.__init__ asks all ranks for their devices and handles by all_gather_object, for which
// the group gets a communicator of NCCL; what goes through it is a few bytes.
void DeepEpDispatcher::make_buffer() {
  if (!std::exchange(makes_buffer_, false)) return;
  const Tensor own = in_registers({1}, DType::INT64, "object_size"),
               all = in_registers({ranks_}, DType::INT64, "object_sizes");
  w_.session.launch({Operation::Fill, {0}}, {}, {own});
  w_.session.collective(w_.comms.expert_model, CollectiveKind::AllGather, own, all);
  w_.process.synchronize();
}

// EventOverlap(EventHandle()): what the buffer's stream does next waits for what was computed.
void DeepEpDispatcher::begin() const {
  w_.process.wait(token_stream, w_.process.record(torch::Process::compute_stream));
}

// EventOverlap.current_stream_wait, and record_stream of all that either stream has and the other uses.
void DeepEpDispatcher::end(const std::vector<Tensor>& used) const {
  w_.process.join(w_.process.record(token_stream));
  for (const Tensor& tensor : used) {
    w_.session.record_stream(tensor, token_stream);
    w_.session.record_stream(tensor, torch::Process::compute_stream);
  }
}

// Where each token's rows lie among those that are sent, rank by rank.
Tensor DeepEpDispatcher::map_of(const Handle& handle) const {
  const Tensor map = in_registers({tokens_, 2 * ranks_ + 1}, DType::INT32, "sent");
  w_.session.launch(Operation::TokenMap, {handle.in_rank}, {map}, handle.tables);
  return map;
}

void DeepEpDispatcher::send(Kind kind, const Tensor& x, const Tensor& map, const Tensor& out) const {
  const std::int64_t rows = std::accumulate(traffic_.sends.begin(), traffic_.sends.end(), std::int64_t{0});
  const Tensor sent = in_registers({rows, x.size(1)}, x.dtype, "sent_rows");
  w_.session.launch(Operation::PermuteRows, {x, map, Tensor{}}, {sent, Tensor{}});
  exchange_rows(w_, w_.comms.token_buffers, matrix(kind, false), traffic_, sent, out);
}

// … and back: a token's rows are summed.
void DeepEpDispatcher::sum(Kind kind, const Tensor& rows, const Tensor& map, const Tensor& out,
                           const Handle& handle) const {
  const std::int64_t all = std::accumulate(traffic_.sends.begin(), traffic_.sends.end(), std::int64_t{0});
  const Tensor back = in_registers({all, rows.size(1)}, rows.dtype, "summed_rows");
  exchange_rows(w_, w_.comms.token_buffers, matrix(kind, true), traffic_.back(), rows, back);
  w_.session.launch(Operation::UnpermuteRows, {back, map, Tensor{}, Tensor{}}, {out, Tensor{}}, handle.tables);
}

// Buffer.get_dispatch_layout and Buffer.dispatch.
DeepEpDispatcher::Sent DeepEpDispatcher::buffer_dispatch(const Tensor& x, const Tensor& ids,
                                                         const Tensor& probabilities) const {
  Session& s = w_.session;
  begin();
  Sent sent;
  Handle handle;
  const std::int64_t nodes = ranks_ / ranks_of_a_node, channels = w_.runtime.experts.exchange_processors / 2;
  const bool over_network = ranks_ > ranks_of_a_node;
  std::vector<Tensor> layout;
  const auto numbers = [&](Shape sizes, std::string_view what) {
    return s.empty(std::move(sizes), DType::INT32, what);
  };
  {
    const torch::OnStream aside(s, token_stream);
    layout = {numbers({ranks_}, "tokens_per_rank"), numbers({experts_}, "tokens_per_expert")};
    handle.in_rank = s.empty({tokens_, ranks_}, DType::BOOL, "is_token_in_rank");
    if (over_network) layout.push_back(numbers({nodes}, "tokens_per_node"));
    const Tensor chosen = in_registers({tokens_, experts_}, DType::BOOL, "chosen");
    s.launch({Operation::Scatter, {1}}, {Tensor{}, ids, Tensor{}}, {chosen});
    s.launch(Operation::Largest, {sized(chosen, {tokens_, ranks_, held_})},
             {sized(handle.in_rank, {tokens_, ranks_, 1})}, layout);
    // Ranks tell each other how many rows come, and the host waits for that.
    std::vector<Tensor>& tables = handle.tables;
    if (over_network)
      tables = {numbers({nodes, channels}, "node_channels"), numbers({nodes}, "node_sums"),
                numbers({ranks_, channels}, "channels"), numbers({ranks_}, "sums")};
    else
      tables = {numbers({ranks_, ranks_}, "ranks"), numbers({ranks_, channels}, "channels")};
    const Tensor counts = in_registers({ranks_}, DType::INT32, "counts"),
                 others = in_registers({ranks_}, DType::INT32, "counts_received");
    s.launch(Operation::Sum, {handle.in_rank}, {sized(counts, {1, ranks_})}, tables);
    s.collective(w_.comms.token_buffers, CollectiveKind::AllToAll, counts, others);
    w_.process.synchronize(w_.process.record(token_stream));

    sent.tokens = received({tokens_received_, x.size(1)}, x.dtype, "received");
    if (over_network) {
      tables.push_back(s.empty({tokens_received_, 8}, DType::UINT8, "sources"));
      tables.push_back(numbers({nodes, channels}, "received_node_channels"));
      tables.push_back(numbers({ranks_, channels}, "received_channels"));
      tables.push_back(numbers({tokens_, nodes}, "node_heads"));
      tables.push_back(numbers({tokens_of_node_, ranks_of_a_node}, "heads"));
    } else {
      tables.push_back(numbers({tokens_received_}, "sources"));
      tables.push_back(numbers({ranks_, channels}, "received_channels"));
      tables.push_back(numbers({tokens_, ranks_}, "heads"));
    }
    sent.ids = received({tokens_received_, chosen_}, DType::INT64, "received_ids");
    sent.probabilities = received({tokens_received_, chosen_}, DType::FP32, "received_probs");
    const Tensor map = map_of(handle);
    send(Kind::Tokens, x, map, sent.tokens);
    // Of the experts that are not this rank's, numbers are -1 and probabilities 0.
    const Tensor ids_sent = in_registers(sent.ids.sizes, DType::INT64, "ids_received"),
                 probabilities_sent = in_registers(sent.ids.sizes, DType::FP32, "probs_received"),
                 outside = in_registers(sent.ids.sizes, DType::BOOL, "outside"),
                 within = in_registers(sent.ids.sizes, DType::INT64, "ids_within");
    send(Kind::Ids, ids, map, ids_sent);
    send(Kind::Probabilities, probabilities, map, probabilities_sent);
    s.launch({Operation::VocabularyMask, {static_cast<double>(first_), static_cast<double>(first_ + held_)}},
             {ids_sent}, {outside, within});
    s.launch({Operation::MaskedFill, {-1}}, {within, outside}, {sent.ids});
    s.launch({Operation::MaskedFill, {0}}, {probabilities_sent, outside}, {sent.probabilities});
  }
  std::vector<Tensor> used{x, handle.in_rank, sent.tokens, ids, probabilities, sent.ids, sent.probabilities};
  used.insert(used.end(), layout.begin(), layout.end());
  used.insert(used.end(), handle.tables.begin(), handle.tables.end());
  end(used);
  sent.handle = std::make_shared<const Handle>(std::move(handle));
  return sent;
}

// Buffer.dispatch again, with the handle of an earlier one. Within a node it makes tables anew, which nobody keeps.
Tensor DeepEpDispatcher::buffer_dispatch(const Tensor& x, const std::shared_ptr<const Handle>& handle) const {
  Session& s = w_.session;
  begin();
  Tensor tokens;
  std::vector<Tensor> used{x, handle->in_rank};
  {
    const torch::OnStream aside(s, token_stream);
    tokens = received({tokens_received_, x.size(1)}, x.dtype, "received");
    if (ranks_ <= ranks_of_a_node) {
      const std::int64_t channels = w_.runtime.experts.exchange_processors / 2;
      used.push_back(s.empty({tokens_received_}, DType::INT32, "sources"));
      used.push_back(s.empty({ranks_, channels}, DType::INT32, "received_channels"));
      used.push_back(s.empty({tokens_, ranks_}, DType::INT32, "heads"));
    }
    send(Kind::Tokens, x, map_of(*handle), tokens);
  }
  used.push_back(tokens);
  end(used);
  return tokens;
}

// Buffer.combine.
Rows DeepEpDispatcher::buffer_combine(const Tensor& x, const Handle& handle, const Tensor& probabilities) const {
  Session& s = w_.session;
  begin();
  Rows made;
  {
    const torch::OnStream aside(s, token_stream);
    if (probabilities.defined()) made.probabilities = received({tokens_, chosen_}, DType::FP32, "combined_probs");
    made.tokens = received({tokens_, x.size(1)}, x.dtype, "combined");
    const Tensor map = map_of(handle);
    sum(Kind::Tokens, x, map, made.tokens, handle);
    if (probabilities.defined()) sum(Kind::Probabilities, probabilities, map, made.probabilities, handle);
  }
  std::vector<Tensor> used{x, made.tokens};
  if (probabilities.defined()) used.push_back(probabilities), used.push_back(made.probabilities);
  used.insert(used.end(), handle.tables.begin(), handle.tables.end());
  end(used);
  return made;
}

// ---- Megatron's functions -------------------------------------------------------------------------------------------

// _initialize_metadata, and _DeepepManager.setup_metadata: what is chosen of all ranks' experts, each of which those
// that share it hold.
Rows DeepEpDispatcher::preprocess(const Tensor& hidden, const Router::Choice& choice) {
  w_.mark(Phase::Forward, name_);
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  const std::int64_t within = w_.layout.expert_tensor_parallel(), places = w_.layout.expert;
  Tensor map = choice.map, probabilities = choice.probabilities;
  if (within > 1) {
    const auto spread = [&](const Tensor& x) {
      const Tensor apart = torch::view(s, x, {tokens_, places, 1, held_});
      return torch::reshape(s, torch::expand(s, apart, {tokens_, places, within, held_}), {tokens_, experts_});
    };
    map = spread(map);
    probabilities = spread(probabilities);
  }
  torch::TopK top = torch::top_k(s, probabilities, chosen_);
  token_probabilities_ = top.values;
  token_ids_ = std::move(top.ids);
  return {hidden, std::move(top.values)};
}

// fused_a2a.py FusedDispatch.
Rows DeepEpDispatcher::dispatch(const Rows& own) {
  w_.mark(Phase::Forward, name_);
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  Tensor probabilities = torch::to(s, own.probabilities, DType::FP32);
  token_probabilities_ = probabilities.detached();
  const Tensor x = torch::contiguous(s, own.tokens);
  const auto node = w_.node(name_(), {&x, &probabilities});
  make_buffer();
  Sent sent = buffer_dispatch(x, token_ids_, probabilities);
  handle_ = sent.handle;
  ids_ = sent.ids;
  probabilities_ = sent.probabilities;
  if (node) {
    keep(*handle_);
    node->outputs = 2;
    node->apply = [this, handle = handle_](Gradients& g) {
      const Session::Scope backward(w_.session, name_());
      const Tensor of_tokens = torch::contiguous(w_.session, g[0]);
      Rows made = buffer_combine(of_tokens, *handle, torch::contiguous(w_.session, g[1]));
      return Gradients{std::move(made.tokens), std::move(made.probabilities)};
    };
  }
  return {with(std::move(sent.tokens), node), with(std::move(sent.probabilities), node, 1)};
}

// ctx.handle of FusedDispatch and of FusedCombine.
void DeepEpDispatcher::keep(const Handle& handle) const {
  w_.session.keep_saved(handle.in_rank);
  for (const Tensor& table : handle.tables) w_.session.keep_saved(table);
}

// x[mask], whose backward pass is index_put_ with accumulation, in the order of sorted numbers (aten index_backward).
Tensor DeepEpDispatcher::selected(const Tensor& x, const Tensor& mask) const {
  Session& s = w_.session;
  const std::int64_t count = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
  const auto node = s.node({&x});
  const auto places = [&s, count] { return s.empty({2, count}, DType::INT64, "nonzero", Category::Temporaries); };
  const auto numbers = [&s, count] { return s.empty({count}, DType::INT64, "row_numbers", Category::Temporaries); };
  (void)places();
  Tensor out = s.empty({count}, x.dtype, "index");
  s.launch(Operation::MaskedSelect, {x, mask}, {out});
  if (node)
    node->apply = [&s, places, numbers, saved = s.save(mask), sizes = x.sizes](const Gradients& g) {
      const Tensor selected = s.unpack(saved);
      const Tensor made = s.empty(sizes, g.front().dtype, "index_gradient");
      const Tensor its = places(), linear = numbers(), sorted = numbers(), original = numbers();
      s.launch(Operation::MaskedSelectBackward, {g.front(), selected}, {made},
               std::vector{its, linear, sorted, original});
      return Gradients{made};
    };
  return with(std::move(out), node);
}

// Where elements of a matrix of those strides lie.
Tensor DeepEpDispatcher::places_of(const Tensor& rows, const Tensor& columns, const Shape& strides) const {
  const auto scaled = [&](const Tensor& x, std::int64_t stride) {
    const Tensor made = in_registers(x.sizes, DType::INT64, "places");
    w_.session.launch({Operation::Scale, {static_cast<double>(stride)}}, {x}, {made});
    return made;
  };
  const Tensor of_rows = scaled(rows, strides[0]), of_columns = scaled(columns, strides[1]),
               places = in_registers(rows.sizes, DType::INT64, "places");
  w_.session.launch(Operation::Add, {of_rows, of_columns}, {places});
  return places;
}

// _DeepepManager._indices_to_multihot: which of the rank's experts a token chose, and how much they count.
void DeepEpDispatcher::to_multihot() {
  Session& s = w_.session;
  const std::int64_t tokens = tokens_received_, count = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
  const Tensor multihot = torch::zeros(s, {tokens, held_}, DType::INT64),
               probabilities = torch::zeros(s, {tokens, held_}, DType::FP32);
  const Tensor mask = s.empty(ids_.sizes, DType::BOOL, "mask");
  {
    const Tensor absent = in_registers(ids_.sizes, DType::BOOL, "absent");
    s.launch({Operation::Equals, {-1}}, {ids_}, {absent});
    s.launch({Operation::Equals, {0}}, {absent}, {mask});
  }
  const Tensor valid = torch::masked_select(s, ids_, mask, count);
  // torch.arange(tokens).repeat_interleave(mask.sum(dim=1)): Repeat.cu looks at sums, and at whether any is negative.
  const Tensor numbers = s.empty({tokens}, DType::INT64, "arange");
  s.launch({Operation::Arange, {0}}, {}, {numbers});
  Tensor rows;
  {
    const Tensor repeats = torch::sum(s, mask, 1), sums = s.empty({tokens}, DType::INT64, "cumsum");
    s.launch(Operation::CumulativeSum, {repeats}, {sums});
    w_.process.synchronize();
    { (void)s.empty({tokens}, DType::BOOL, "not_negative", Category::Temporaries); }
    const Tensor repeated = s.empty({count}, DType::INT64, "repeated");
    s.launch(Operation::MaskedSelect, {expanded(sized(numbers, {tokens, 1}), {tokens, chosen_}), mask}, {repeated});
    rows = torch::gather(s, numbers, repeated);
  }
  const Tensor places = places_of(rows, valid, {held_, 1});
  const Shape flat{tokens * held_};
  const Tensor one = s.empty({1}, DType::INT64, "one");
  s.launch({Operation::Fill, {1}}, {}, {one});
  s.launch(Operation::Scatter, {sized(multihot, flat), places, expanded(one, {count})}, {sized(multihot, flat)});
  const Tensor chosen = selected(probabilities_, mask);
  const auto node = s.node({&chosen});
  s.launch(Operation::Scatter, {sized(probabilities, flat), places, chosen}, {sized(probabilities, flat)});
  if (node)
    node->apply = [this, &s, of_rows = s.save(rows), of_experts = s.save(valid)](const Gradients& g) {
      const Tensor its_rows = s.unpack(of_rows), its_experts = s.unpack(of_experts);
      const Tensor made = s.empty(its_rows.sizes, g.front().dtype, "index_put_gradient");
      // In whatever order dimensions lie.
      const Tensor whole = g.front().dense() ? g.front().detached() : torch::contiguous(s, g.front());
      Tensor line = whole;
      line.sizes = {whole.elements()};
      line.strides = {1};
      const Tensor from = places_of(its_rows, its_experts, whole.strides);
      s.launch(Operation::Gather, {line, from}, {made});
      return Gradients{made};
    };
  map_ = torch::to(s, multihot, DType::BOOL);
  probabilities_ = with(Tensor(probabilities), node);
}

// get_permuted_hidden_states_by_experts.
Rows DeepEpDispatcher::postprocess(Rows dispatched) {
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(w_.session, name_());
  probabilities_ = dispatched.probabilities;
  to_multihot();
  const Tensor multihot = std::exchange(probabilities_, probabilities_.detached());
  const std::int64_t count = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
  Permuted permuted = permute(w_, dispatched.tokens, map_, multihot, count);
  order_ = std::move(permuted.order);
  if (w_.runtime.experts.router_type == DType::FP64)  // DeepEP's are fp32 on their way
    permuted.rows.probabilities = torch::to(w_.session, permuted.rows.probabilities, DType::FP64);
  return std::move(permuted.rows);
}

Tensor DeepEpDispatcher::combine_preprocess(Tensor rows) {
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(w_.session, name_());
  return unpermute(w_, rows, order_, tokens_received_);
}

// fused_a2a.py FusedCombine.
Tensor DeepEpDispatcher::combine(const Tensor& rows) {
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(w_.session, name_());
  const auto node = w_.node(name_(), {&rows});
  Tensor combined = buffer_combine(rows, *handle_, {}).tokens;
  if (node)
    node->apply = [this, handle = handle_](Gradients& g) {
      const Session::Scope backward(w_.session, name_());
      return Gradients{buffer_dispatch(torch::contiguous(w_.session, g.front()), handle)};
    };
  handle_ = {};
  return with(std::move(combined), node);
}

}  // namespace

std::unique_ptr<TokenDispatcher> deep_ep_dispatcher(Worker& w, const std::string& path, std::int32_t layer) {
  return std::make_unique<DeepEpDispatcher>(w, path, layer);
}

}  // namespace tidemark::parallel::megatron
