#include "scenarios/arithmetic/rank_training.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "kernels/execute/mutation.hpp"
#include "scenarios/arithmetic/seeds.hpp"

namespace tidemark::scenarios {
namespace {

/// Which of its outputs a kernel leaves losses in; none of others.
std::optional<std::size_t> losses_of(Operation operation) {
  if (operation == Operation::VocabularyLoss || operation == Operation::CrossEntropyFromStatistics) return 1;
  if (operation == Operation::NllLoss) return 0;
  return std::nullopt;
}

bool touches(const Program& program, const Operand& operand, const View& view, const StateTensor& tensor) {
  const Bytes begin = program[operand.offset];
  return operand.buffer == tensor.buffer && begin < tensor.offset + tensor.view.extent() &&
         tensor.offset < begin + view.extent();
}

// The place of the last launch before the one that runs that wrote to it; 0 where none did.
std::int64_t last_write(const ArithmeticRank& run, const StateTensor& tensor) {
  const Program& program = run.program();
  const auto writes = [&](const Launch& launch) {
    std::size_t next = 0;
    for (const ViewId view : program[launch.kernel].outputs)
      if (view.valid() && touches(program, program[launch.outputs][next++], program[view], tensor)) return true;
    return false;
  };
  for (std::size_t op = run.op(); op-- > 0;)
    if (const Launch* const launch = std::get_if<Launch>(&program.ops[op]); launch != nullptr && writes(*launch))
      return static_cast<std::int64_t>(op);
  return 0;
}

}  // namespace

RankTraining::RankTraining(const JobOutline& job, Rank rank, const JobOutline& asked)
    : job_(job),
      rank_(rank),
      place_(coordinates(job.scenario.layout, rank)),
      micro_batches_(micro_batches_of(job.scenario.train, job.scenario.layout)),
      parameters_(job, place_),
      state_(training_state(job.lowering(), {place_, {rank}})),
      tokens_(routed_tokens(asked.scenario)),
      choices_(choices_of(asked.scenario)) {}

// Tokens of a rank, and of a rank alone those of as many: rows of the sequence are cut into parts that follow each
// other.
std::int64_t RankTraining::expert_of(std::int64_t token, std::int64_t choice) const {
  return chosen_expert(choices_, tokens_, token % tokens_, choice);
}

std::string RankTraining::run(World& world, math::Calculator& calculator, math::Storage storage) {
  const Program program = lower_role(job_.lowering(), {place_, {rank_}});
  Workload groups;
  groups.communicators = communicators_of(job_.lowering()).table;
  const std::vector<Group> mine = execute::groups_of(groups, rank_);
  ArithmeticRank its(
      program, mine, world, calculator, storage,
      {.initial = [this](const Mark& at, std::string_view tensor,
                         std::int64_t element) { return initial(at, tensor, element); },
       .route = [this](const Mark&, std::int64_t token, std::int64_t choice) { return expert_of(token, choice); },
       .before_mark = [this](const ArithmeticRank& run, const Mark*) { look(run); },
       .after_launch = [this](const ArithmeticRank& run, const Launch& launch) { note_loss(run, launch); }});
  its.run();
  return std::move(found_);
}

// Large enough that every tensor matters to the loss, small enough that a few layers stay far from overflow.
double RankTraining::initial(const Mark& at, std::string_view tensor, std::int64_t element) const {
  const ParameterPart* const part = parameters_.labelled(tensor);
  if (part == nullptr) return of_batch(at, tensor, element);
  const double drawn = normal(part->name(), part->place(element));
  const bool scale = !part->matrix() && part->name().ends_with("weight");
  if (scale && !job_.scenario.model.zero_centered_norms) return in_any_type(1 + 0.1 * drawn);
  return in_any_type((part->matrix() || scale ? 0.1 : 0.05) * drawn);
}

double RankTraining::of_batch(const Mark& at, std::string_view tensor, std::int64_t element) const {
  const Train& train = job_.scenario.train;
  const std::int64_t data = job_.scenario.layout.data, micro_batch = std::max(at.micro_batch, 0);
  // Plain PyTorch's loop adds up what micro-batches come to, and replicas average them: one rank comes to the same
  // where it takes theirs together.
  const std::int64_t of_step = micro_batches_ * data, tokens = train.micro_batch * train.sequence_length;
  const std::int64_t its =
      job_.runtime.eager ? micro_batch * data + place_.data : place_.data * micro_batches_ + micro_batch;
  const std::int64_t token = (at.step * of_step + its) * tokens + element;
  if (tensor == "batch.tokens" || tensor == "batch.input_ids" || tensor == "batch.labels")
    return std::floor(uniform(tensor, token) * static_cast<double>(job_.scenario.model.vocabulary));
  if (tensor == "batch.position_ids") return static_cast<double>(element % train.sequence_length);
  return tensor == "batch.loss_mask" ? 1 : 0;
}

void RankTraining::look(const ArithmeticRank& run) {
  for (; next_ < state_.size() && state_[next_].marks == marks_; ++next_) note(run, state_[next_]);
  ++marks_;
}

void RankTraining::note(const ArithmeticRank& run, const StateMoment& moment) {
  const bool gradients = moment.what == StateMoment::What::Gradients;
  for (const StateTensor& tensor : moment.tensors)
    append(found_, {gradients ? Found::Gradient : Found::Parameter, moment.step, tensor.parameter, tensor.first,
                    last_write(run, tensor), run.values(tensor.buffer, tensor.offset, tensor.view)});
}

// The first rank of each tensor-parallel group tells; the others have the same.
void RankTraining::note_loss(const ArithmeticRank& run, const Launch& launch) {
  const Kernel& kernel = run.program()[launch.kernel];
  const std::optional<std::size_t> losses = losses_of(kernel.operation);
  if (!losses || place_.tensor > 0) return;
  append(found_, {Found::Loss, run.at().step, "loss", 0, static_cast<std::int64_t>(run.op()),
                  run.values(run.program()[launch.outputs][*losses], run.program()[kernel.outputs[*losses]])});
}

}  // namespace tidemark::scenarios
