#include "scenarios/validate/arithmetic/check_math.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "parallel/job/sizes.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/validate/arithmetic/comparison.hpp"
#include "scenarios/validate/arithmetic/rank_training.hpp"
#include "scenarios/validate/arithmetic/rounding.hpp"

namespace tidemark::scenarios {
namespace {

// The world of a rank that is alone.
class OneRank final : public World {
 public:
  [[nodiscard]] Rank rank() const override { return {0}; }
  [[nodiscard]] std::int32_t size() const override { return 1; }
  void exchange(std::span<const Message>, const std::string&) override {}
  void report_failure(const std::string& why) override { throw RunFailure(why); }
};

// Which experts the ranks' tokens choose.
ListedLoads loads_of(const Scenario& scenario) {
  ListedLoads loads{choices_of(scenario)};
  std::erase_if(loads.of_layers, [](const std::vector<std::int64_t>& choices) { return choices.empty(); });
  return loads;
}

// The same model and batches on one rank that holds it whole, recomputes and compiles nothing, and takes the plainest
// kernels, which have nothing in common with fused ones, and the plainest optimizer; as many rows of the vocabulary are
// padding. Replicas of plain PyTorch average what each adds up over its micro-batches: here they take one together.
Scenario on_one_rank(const Job& job) {
  Scenario scenario = job.scenario;
  const Sizes sizes = sizes_of(scenario.model, scenario.layout, scenario.train, job.runtime);
  scenario.model.vocabulary_multiple = sizes.vocabulary;
  if (job.runtime.eager) {
    // DeepSpeed's gradients are means over micro-batches, where plain loops have sums: one batch of all has them too.
    if (job.runtime.eager->zero)
      scenario.train.micro_batch = scenario.train.global_batch;
    else
      scenario.train.micro_batch *= scenario.layout.data;
    if (!job.runtime.eager->titan) scenario.runtime.name = "pytorch";
    EagerSettings& settings = scenario.runtime.eager;
    settings.compiled = CompiledParts::None;
    settings.titan.compile_layers = settings.titan.compile_loss = false;
  }
  scenario.runtime.optimizer = {};
  scenario.runtime.optimizer.muon = job.scenario.runtime.optimizer.muon;
  scenario.runtime.offloaded_layers = 0;
  scenario.runtime.module_offload = {};
  scenario.gpus = 1;
  if (scenario.model.experts()) scenario.train.routing.loads = loads_of(job.scenario);
  scenario.layout = {};
  scenario.train.recompute = {};
  scenario.train.cross_entropy = CrossEntropy::Unfused;
  // Local says more than which kernel runs; LitGPT and torchtitan call one alone.
  const bool has_unfused = scenario.train.attention != AttentionKernel::Local &&
                           !(job.runtime.eager && job.runtime.eager->titan) &&
                           scenario.runtime.eager.modules != ModuleLibrary::LitGpt;
  if (has_unfused) scenario.train.attention = AttentionKernel::Unfused;
  return scenario;
}

}  // namespace

namespace {

// Optimizers that do with a rank's shards what one rank does not do with whole parameters.
std::string_view beyond_replicas(const Scenario& scenario) {
  if (runtime_kind(scenario.runtime.name).id != RuntimeId::Fsdp || scenario.layout.data == 1) return {};
  switch (scenario.train.optimizer) {
    case Optimizer::Adafactor:
      return "moments of flat parameters have no rows and columns, and their sizes are each rank's own";
    case Optimizer::AdamW8Bit:
    case Optimizer::Lion8Bit:
    case Optimizer::PagedAdamW8Bit:
    case Optimizer::PagedLion8Bit:
      return "the blocks of shards are not those of whole parameters";
    case Optimizer::AdamW:
    case Optimizer::Sgd:
    case Optimizer::SgdMomentum:
    case Optimizer::Muon:
    case Optimizer::Lion:
    case Optimizer::PagedAdamW:
    case Optimizer::PagedLion:
    case Optimizer::ApolloAdamW:
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return {};
  }
  return {};
}

}  // namespace

std::string beyond_arithmetic(const Scenario& scenario) {
  if (runtime_kind(scenario.runtime.name).id == RuntimeId::TorchTitan && scenario.layout.tensor > 1)
    return "torchtitan's tensor parallelism: a rank's parts of parameters are not mapped yet\ntensor = 1";
  if (runtime_kind(scenario.runtime.name).id == RuntimeId::TorchTitan && scenario.layout.sharding == Sharding::None &&
      scenario.layout.data > 1 && scenario.runtime.versions.torchtitan >= Version{0, 2, 2})
    return "torchtitan 0.2.2 divides by all replicas' tokens, and DistributedDataParallel by their number once more\n"
           "torchtitan = \"0.2.1\"";
  if (scenario.train.quantization) return "quantized weights: their codes are not decoded\nno table [quantization]";
  if (scenario.train.adapter && runtime_kind(scenario.runtime.name).id == RuntimeId::DeepSpeed &&
      scenario.layout.sharding == Sharding::Zero3)
    return "adapters under DeepSpeed's stage 3: parts of frozen parameters are not mapped yet\nsharding = \"zero2\"";
  if (scenario.train.packed > 0)
    return "packed sequences: their starts are read from positions that are not computed\npacked_sequences left out";
  const OptimizerBehavior& optimizer = scenario.runtime.optimizer;
  if (optimizer.mean == DType::E4M3 || optimizer.squares == DType::E4M3)
    return "moments in fp8: they cannot be computed in float64\nexp-avg-dtype and exp-avg-sq-dtype = "
           "\"fp16\"";
  if (scenario.train.optimizer == Optimizer::ApolloAdamW)
    return "APOLLO's random projections: Tidemark does not draw them\noptimizer = \"adamw\"";
  if (scenario.train.optimizer == Optimizer::GaloreAdamW || scenario.train.optimizer == Optimizer::GaloreAdamWLayerwise)
    return "GaLore's projections: singular value decompositions are not computed here\noptimizer = \"adamw\"";
  if (scenario.runtime.eager.neftune > 0)
    return "noise that is added to embeddings: Tidemark does not draw it\nneftune_noise_alpha left out";
  if (const std::string_view why = beyond_replicas(scenario); !why.empty())
    return fmt::format("optimizer = \"{}\": {}\noptimizer = \"adamw\"", word(optimizer_names, scenario.train.optimizer),
                       why);
  if (!top_k_experts_of(scenario))
    return "experts that are chosen by groups: no choice was found by which the stated loads come out\nimbalance = "
           "\"uniform\" in [moe]";
  // On one rank data-parallel ranks' tokens come one after the other, where they are counted together.
  if (scenario.runtime.experts.balances_by(LoadBalancing::GlobalLoss) && scenario.layout.data > 1)
    return "a loss of all data-parallel ranks' tokens: one rank has them one after the other\ndata = 1, or "
           "moe-router-load-balancing-type = \"aux_loss\"";
  // RankTraining::counted needs as many tokens.
  const std::int64_t least = 4 * scenario.model.further.size() * scenario.layout.context;
  if (scenario.layout.context > 1 && scenario.train.sequence_length < least)
    return fmt::format(
        "losses of further tokens, which ranks divide by how many of their own count: of so few, others "
        "would than on one rank\nsequence_length = {}",
        least);
  // core/distributed/distributed_data_parallel.py: a gradient that autograd sums counts only where the head's GEMM has
  // not added its own, or where both stand on one rank (zero_out_wgrad).
  if (!scenario.model.further.empty() && scenario.model.tied_embeddings && scenario.layout.pipeline > 1 &&
      scenario.runtime.gradient_accumulation_fusion)
    return "lookups of further tokens on a last stage with a tied head: Megatron drops their gradient\n"
           "no-gradient-accumulation-fusion = true in [runtime.switches]";
  // What is added to all keys alike changes no softmax: of its gradient there is nothing but roundings.
  const Model& model = scenario.model;
  if (model.qk_norm == QkNorm::PerHead && model.normalization == Normalization::Layer &&
      model.positions == Positions::Learned)
    return "keys' biases, which have no gradient where positions do not turn keys\nposition_embedding_type = \"rope\" "
           "in "
           "[model_override]";
  return {};
}

MathCheck check_math(const Scenario& requested, World& world, math::Storage storage, Mutation mutation) {
  math::HostCalculator host;
  return check_math(requested, world, storage, {host, world}, mutation);
}

MathCheck check_math(const Scenario& requested, World& world, math::Storage storage, const Machine& machine,
                     Mutation mutation) {
  const Job job(executed(requested));
  RankTraining training(job, world.rank(), job);
  const std::string spoiled = mutation == Mutation::None ? "" : training.spoil(mutation);
  const std::vector<std::string> all = world.gather(training.run(machine.messages, machine.calculator, storage));
  const std::vector<std::string> wrong = world.gather(training.wrong());
  if (world.rank().value != 0) return {};

  const Job alone(on_one_rank(job));
  OneRank one;
  // What is rounded to 16 bits is compared with exact numbers: on one rank it would be rounded elsewhere.
  const bool wide = storage == math::Storage::Wide, rounded = !wide && rounds_to_16_bits(job.scenario.train);
  MathCheck check;
  check.spoiled = spoiled;
  std::ranges::copy_if(wrong, std::back_inserter(check.wrong), [](const std::string& w) { return !w.empty(); });
  check.type = wide ? "float64" : name(job.scenario.train.precision);
  // Adam divides by a gradient's own size: what rounding does to it is more in the next step.
  const Optimizer optimizer = job.scenario.train.optimizer;
  const bool sgd = optimizer == Optimizer::Sgd || optimizer == Optimizer::SgdMomentum;
  const double exact = sgd ? 1e-12 : 1e-11;
  check.tolerance = wide ? exact : rounded ? most_rounding(alone) : 1e-5;
  math::HostCalculator host;
  Comparison comparison(std::move(check), job.scenario.train.optimizer,
                        RankTraining(alone, {0}, job).run(one, host, rounded ? math::Storage::Wide : storage));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Rank rank{static_cast<std::int32_t>(r)};
    comparison.add(rank, RankParameters(job, coordinates(job.scenario.layout, rank)), all[r]);
  }
  return std::move(comparison).finish();
}

}  // namespace tidemark::scenarios
