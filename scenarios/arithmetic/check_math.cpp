#include "scenarios/arithmetic/check_math.hpp"

#include <span>
#include <utility>

#include "parallel/sizes.hpp"
#include "scenarios/arithmetic/comparison.hpp"
#include "scenarios/arithmetic/rank_training.hpp"
#include "scenarios/job.hpp"

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

// The same model and batches on one rank that holds it whole and recomputes nothing; as many rows of the vocabulary are
// padding. Replicas of plain PyTorch average what each adds up over its micro-batches: here they take one together.
Scenario on_one_rank(const JobOutline& job) {
  Scenario scenario = job.scenario;
  const Sizes sizes = sizes_of(scenario.model, scenario.layout, scenario.train, job.runtime);
  scenario.model.vocabulary_multiple = sizes.vocabulary;
  if (job.runtime.eager) scenario.train.micro_batch *= scenario.layout.data;
  scenario.gpus = 1;
  scenario.train.routing.loads = choices_of(job.scenario);
  scenario.layout = {};
  scenario.train.recompute = {};
  return scenario;
}

}  // namespace

std::string beyond_arithmetic(const Scenario& scenario) {
  if (scenario.train.hidden_dropout > 0 || scenario.train.attention_dropout > 0)
    return "dropout: ranks would draw other numbers than one rank\nhidden_dropout = 0 and attention_dropout = 0 in "
           "[train]";
  if (scenario.runtime.name != "megatron") return "runtimes other than Megatron\nname = \"megatron\" in [runtime]";
  if (scenario.train.precision != DType::FP32) return "training in 16 bits\nprecision = \"fp32\" in [train]";
  return {};
}

MathCheck check_math(const Scenario& asked, World& world, math::Storage storage) {
  math::HostCalculator host;
  return check_math(asked, world, storage, {host, world});
}

MathCheck check_math(const Scenario& asked, World& world, math::Storage storage, const Machine& machine) {
  const JobOutline job(asked);
  std::string mine;
  try {
    mine = RankTraining(job, world.rank(), job).run(machine.messages, machine.calculator, storage);
  } catch (const WrongProgram& error) {
    world.report_failure(error.what());
  }
  const std::vector<std::string> all = world.gather(mine);
  const bool wide = storage == math::Storage::Wide;
  MathCheck check{wide ? "float64" : "fp32", wide ? 1e-12 : 1e-5, {}, {}, 0, {}};
  if (world.rank().value != 0) return check;

  const JobOutline alone(on_one_rank(job));
  OneRank one;
  math::HostCalculator host;
  Comparison comparison(std::move(check), job.scenario.train.optimizer,
                        RankTraining(alone, {0}, job).run(one, host, storage));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Rank rank{static_cast<std::int32_t>(r)};
    comparison.add(rank, RankParameters(job, coordinates(job.scenario.layout, rank)), all[r]);
  }
  return std::move(comparison).finish();
}

}  // namespace tidemark::scenarios
