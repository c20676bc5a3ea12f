#include "scenarios/estimate/envelope.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/job/sharing.hpp"
#include "parallel/job/sizes.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/estimate/reasons.hpp"

namespace tidemark::scenarios {
namespace {

double as_double(Bytes bytes) { return static_cast<double>(bytes.count()); }

rules::State state_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::AdamW:
    case Optimizer::PagedAdamW:
    case Optimizer::ApolloAdamW:
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return rules::State::Adam;
    case Optimizer::AdamW8Bit:
    case Optimizer::PagedAdamW8Bit:
      return rules::State::Adam8bit;
    case Optimizer::SgdMomentum:
    case Optimizer::Muon:
    case Optimizer::Lion:
    case Optimizer::Lion8Bit:
    case Optimizer::PagedLion:
    case Optimizer::PagedLion8Bit:
      return rules::State::Momentum;
    case Optimizer::Sgd:
    case Optimizer::Adafactor:
      return rules::State::None;
  }
  return rules::State::Adam;
}

/// The same scenario with another recomputation, where one value can stand for the other.
std::optional<Scenario> checkpointed(const Scenario& s, bool every_layer) {
  if (s.runtime.distribute_saved || s.runtime.module_offload.any() || s.runtime.offloaded_layers > 0) return {};
  Scenario other = s;
  other.train.recompute = {};
  if (every_layer) other.train.recompute.kind = Recompute::Full;
  return other;
}

/// … with the attention that stores its scores, or with one that does not.
std::optional<Scenario> with_scores(const Scenario& s, bool stored) {
  if (s.model.latent() || s.model.attention_softcap > 0 || s.model.attention_sinks || s.layout.context > 1 ||
      s.train.attention == AttentionKernel::Local || s.train.recompute.kind != Recompute::None)
    return {};
  Scenario other = s;
  other.train.attention = stored ? AttentionKernel::Unfused : AttentionKernel::Flash;
  return other;
}

Buckets simulated(const Scenario& scenario) {
  return buckets_of(predict(scenario, {}, {.reported = PredictionDetail::Figures}).highest().memory);
}

Bytes activations_in(const Composition& tensors) {
  return tensors[Category::SavedActivations] + tensors[Category::Recompute] + tensors[Category::Temporaries] +
         tensors[Category::LogitsLoss];
}

class Rows {
 public:
  explicit Rows(Envelope& envelope)
      : e_(envelope),
        s_(envelope.prediction.scenario),
        b_(envelope.buckets),
        why_(envelope.prediction, envelope.buckets) {}

  void add_all() {
    add_state();
    add_activations();
    add_rollout();
    add_totals();
  }

 private:
  void add(std::string bucket, std::string rule, rules::Source source, rules::Range guide, Bytes its, std::string why) {
    e_.rows.push_back({std::move(bucket), std::move(rule), source, guide, its, std::move(why)});
  }
  void add(std::string bucket, std::string rule, rules::Source source, double guide, Bytes its, std::string why) {
    add(std::move(bucket), std::move(rule), source, rules::Range{guide, guide}, its, std::move(why));
  }

  void add_state() {
    const double parameters = rules::parameters(count_, each_), gradients = rules::gradients(count_, each_);
    const double states = rules::optimizer_states(count_, state_of(s_.train.optimizer));
    const auto mine = [&](double bytes) { return rules::divided(bytes, s_.layout.tensor, s_.layout.pipeline); };
    const std::string by = s_.layout.tensor * s_.layout.pipeline > 1 ? " / (TP x PP)" : "";
    add("parameters", fmt::format("parameters x {:g} B{}", each_, by), rules::parameters_rule, mine(parameters),
        b_.parameters, why_.parameters());
    add("gradients", fmt::format("parameters x {:g} B{}", each_, by), rules::gradients_rule, mine(gradients),
        b_.gradients, why_.gradients());
    add("optimizer", fmt::format("parameters x {:g} B{}", rules::bytes_of_state(state_of(s_.train.optimizer)), by),
        rules::optimizer_rule, mine(states), b_.optimizer, why_.optimizer());
    state_ = mine(parameters + gradients + states);
    const Bytes held = b_.parameters + b_.gradients + b_.optimizer;
    add("all three", fmt::format("their sum{}", by), rules::division_rule, state_, held, why_.division());
    if (s_.layout.sharding == Sharding::None || sharing(s_.layout) == 1) return;
    const double ranks = sharing(s_.layout);
    const bool of_gradients = s_.layout.sharding != Sharding::Zero1;
    const bool of_parameters = s_.layout.sharding == Sharding::Zero3;
    const double shared = mine((of_parameters ? parameters : 0) + (of_gradients ? gradients : 0) + states);
    state_ += rules::sharded(shared, ranks) - shared;
    add("all three", fmt::format("their sum, ZeRO's part of it over {} ranks", sharing(s_.layout)), rules::zero_rule,
        state_, held, why_.zero());
  }

  void add_activations() {
    const double hidden_states = rules::hidden_states(activations_);
    e_.k = rules::k_of(activations_, as_double(b_.activations));
    add("activations", "batch x sequence x hidden x layers x bytes", rules::hidden_states_rule, hidden_states,
        b_.activations, why_.hidden_states());
    add("activations", "k x batch x sequence x hidden x layers x bytes, k of 2 to 10", rules::activations_rule,
        {rules::activations(activations_, rules::usual_k.low), rules::activations(activations_, rules::usual_k.high)},
        b_.activations, why_.activations(e_.k));
    const bool stores = stores_scores(s_.train.attention);
    const double scores =
        activations_.layers * rules::attention_matrix(activations_.batch, heads(), activations_.sequence, each_);
    if (!stores)
      add("scores", "batch x heads x sequence^2 x bytes, each layer", rules::attention_rule, scores, Bytes{},
          why_.no_scores());
    else if (const auto other = with_scores(s_, false))
      add("scores", "batch x heads x sequence^2 x bytes, each layer", rules::attention_rule, scores,
          b_.activations - simulated(*other).activations, why_.scores());
    const bool checkpoints = s_.train.recompute.kind == Recompute::Full;
    if (s_.train.recompute.kind == Recompute::Selective) return;
    const auto other = checkpointed(s_, !checkpoints);
    if (!other) return;
    const Bytes others = simulated(*other).activations;
    const Bytes whole = checkpoints ? others : b_.activations, left = checkpoints ? b_.activations : others;
    if (whole == Bytes{}) return;
    add("checkpointed", "every layer checkpointed: 50 to 70 % less activations", rules::checkpointing_rule,
        rules::left_by_checkpointing(as_double(whole), rules::saved_by_checkpointing), left,
        why_.checkpointing(whole, left));
    add("checkpointed", "sqrt(layers) of the layers' activations", rules::square_root_rule,
        rules::square_root_checkpointed(as_double(whole), activations_.layers), left, why_.square_root());
  }

  void add_rollout() {
    if (!s_.train.rollout) return;
    const Rollout& r = *s_.train.rollout;
    add("kv_cache", "2 x layers x hidden x sequence x batch x bytes", rules::kv_cache_rule,
        rules::kv_cache(static_cast<double>(s_.model.layers.size()), static_cast<double>(s_.model.hidden),
                        static_cast<double>(r.prompt_length + r.response_length), static_cast<double>(r.sequences()),
                        as_double(size_of(r.kv_dtype))),
        b_.kv_cache, why_.kv_cache());
  }

  void add_totals() {
    const Bytes device = e_.prediction.highest().memory.device.bytes;
    add("overhead", "10 to 20 % of everything else", rules::overhead_rule,
        rules::overhead(as_double(device - b_.overhead)), b_.overhead, why_.overhead());
    const double low = state_ + rules::activations(activations_, rules::usual_k.low);
    const double high = state_ + rules::activations(activations_, rules::usual_k.high);
    add("total", "five buckets", rules::parameters_rule,
        {low + rules::overhead(low).low, high + rules::overhead(high).high}, device, why_.total());
    add("total", "estimate_training_memory_gb", rules::shortcut_rule,
        1e9 * rules::shortcut_gb(count_ / 1e9, each_,
                                 s_.train.optimizer == Optimizer::AdamW ? rules::State::Adam : rules::State::Momentum),
        device, why_.shortcut());
  }

  [[nodiscard]] double heads() const { return static_cast<double>(s_.model.heads); }

  Envelope& e_;
  const Scenario& s_;
  const Buckets& b_;
  Reasons why_;
  const double count_ = static_cast<double>(e_.prediction.parameters);
  const double each_ = as_double(size_of(s_.train.precision));
  const rules::Activations activations_{
      static_cast<double>(s_.train.micro_batch), static_cast<double>(s_.train.sequence_length),
      static_cast<double>(s_.model.hidden), static_cast<double>(s_.model.layers.size()), each_};
  double state_ = 0;  ///< parameters, gradients and optimizer state by the rules
};

}  // namespace

const Peak& peak_of_passes(const MemoryRecord& memory) {
  const Peak& forward = memory.allocated_by_phase[static_cast<std::size_t>(Phase::Forward)];
  const Peak& backward = memory.allocated_by_phase[static_cast<std::size_t>(Phase::Backward)];
  return activations_in(backward.composition) > activations_in(forward.composition) ? backward : forward;
}

Buckets buckets_of(const MemoryRecord& memory) {
  const Composition& tensors = peak_of_passes(memory).composition;
  Buckets buckets{
      .parameters = tensors[Category::Parameters] + tensors[Category::Adapters] + tensors[Category::Quantization],
      .gradients = tensors[Category::Gradients],
      .optimizer = tensors[Category::OptimizerMaster] + tensors[Category::OptimizerMoments],
      .activations = activations_in(tensors),
      .kv_cache = memory.allocated_by_phase[static_cast<std::size_t>(Phase::Rollout)].composition[Category::KvCache],
      .overhead = memory.device.bytes - memory.allocated.bytes};
  for (const Category c : {Category::CommTp, Category::CommCp, Category::CommEp, Category::CommDp, Category::CommPp,
                           Category::OffloadStaging, Category::Workspaces})
    buckets.overhead += tensors[c];
  return buckets;
}

double RuleRow::off() const {
  if (simulated <= Bytes{}) return 0;
  const double its = as_double(simulated);
  if (its < guide.low) return guide.low / its - 1;
  if (its > guide.high) return guide.high / its - 1;
  return 0;
}

Envelope envelope(const Scenario& scenario, const Progress& progress) {
  Envelope found{.prediction = predict(scenario, progress), .buckets = {}, .k = 0, .rows = {}};
  found.buckets = buckets_of(found.prediction.highest().memory);
  Rows(found).add_all();
  return found;
}

}  // namespace tidemark::scenarios
