#include "scenarios/validate/arithmetic/rank_training.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include <fmt/format.h>

#include "kernels/arithmetic/meaning_mutation.hpp"
#include "kernels/arithmetic/op_clock.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/validate/arithmetic/seeds.hpp"

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

// Plain PyTorch's loop adds up what micro-batches come to, and replicas average them: one rank comes to the same where
// it takes theirs together.
Replicas replicas_of(const Job& job) { return job.runtime.eager ? Replicas::Together : Replicas::InTurn; }

}  // namespace

double direction(const std::string& parameter, std::int64_t element) {
  return normal("direction of " + parameter, element);
}

RankTraining::RankTraining(const Job& job, Rank rank, const Job& requested, double aside)
    : job_(job),
      rank_(rank),
      aside_(aside),
      place_(coordinates(job.scenario.layout, rank)),
      draws_(job.scenario.layout, job.scenario.train, replicas_of(job), place_),
      parameters_(job, place_),
      program_(lower_role(job.lowering(), {place_, {rank}})),
      groups_(groups_of(Workload{{}, {}, communicators_of(job.lowering()).table}, rank)),
      state_(training_state(job.lowering(), {place_, {rank}})),
      context_(requested.scenario.layout.context),
      tokens_(routed_tokens(requested.scenario)),
      chosen_(top_k_experts_of(requested.scenario).value()) {}

// Tokens of a rank, and of a rank alone those of as many. Rows of the sequence are cut into parts that follow each
// other; for context-parallel ranks into chunks first, of which each has one from the beginning and the one that is as
// far from the end.
std::int64_t RankTraining::expert_of(std::int32_t layer, std::int64_t token, std::int64_t choice) const {
  if (const std::int64_t ranks = context_ / job_.scenario.layout.context; ranks > 1) {
    const std::int64_t sequences = job_.scenario.train.micro_batch;
    const std::int64_t chunk = job_.scenario.train.sequence_length / (2 * ranks);
    const std::int64_t row = token / sequences, second = row / chunk < ranks ? 0 : chunk;
    token = (second + row % chunk) * sequences + token % sequences;
  }
  const std::int64_t each = job_.scenario.model.experts()->chosen;
  return chosen_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(token % tokens_ * each + choice)];
}

std::string RankTraining::spoil(Mutation mutation) {
  Workload workload;
  workload.communicators = communicators_of(job_.lowering()).table;
  for (Rank rank{0}; rank.value < job_.scenario.gpus; ++rank.value) {
    workload.programs.push_back(lower_role(job_.lowering(), {coordinates(job_.scenario.layout, rank), {rank}}));
    workload.program_of_rank.push_back(rank.value);
  }
  std::optional<WrongMeaning> wrong = with_wrong_meaning(workload, rank_, mutation);
  if (!wrong)
    throw InputError(Problem{.file = "--mutate",
                             .message = fmt::format("{} has nothing to change in this job", name(mutation)),
                             .hint = "more ranks, axes, biases or recomputation give it something"});
  program_ = std::move(wrong->program);
  groups_ = std::move(wrong->groups);
  return std::move(wrong->what);
}

std::string RankTraining::run(World& world, math::Calculator& calculator, math::Storage storage) {
  ArithmeticRank its(
      program_, groups_, world, calculator, storage,
      {.initial = [this](const Mark& at, std::string_view tensor,
                         std::int64_t element) { return initial(at, tensor, element); },
       .route = [this](std::int32_t layer, std::int64_t token,
                       std::int64_t choice) { return expert_of(layer, token, choice); },
       .draws = [this](const ArithmeticRank& run, const Launch& launch,
                       math::Setting& setting) { describe_draws(run, launch, setting); },
       .before_mark = [this](const ArithmeticRank& run, const Mark*) { look(run); },
       .after_launch = [this](const ArithmeticRank& run, const Launch& launch) { note_loss(run, launch); }});
  its.run();
  wrong_ = its.wrong();
  return std::move(found_);
}

std::vector<Duration> RankTraining::op_times(World& world, math::Calculator& calculator, math::Storage storage) const {
  execute::OpClock clock;
  ArithmeticRank its(program_, groups_, world, calculator, storage,
                     {.initial = [this](const Mark& at, std::string_view tensor,
                                        std::int64_t element) { return initial(at, tensor, element); },
                      .route = [this](std::int32_t layer, std::int64_t token,
                                      std::int64_t choice) { return expert_of(layer, token, choice); },
                      .draws = [this](const ArithmeticRank& run, const Launch& launch,
                                      math::Setting& setting) { describe_draws(run, launch, setting); },
                      .before_mark = {},
                      .after_launch = {},
                      .after_op = clock.hook()});
  world.barrier();
  clock.start();
  its.run();
  return clock.times();
}

// Large enough that every tensor matters to the loss, small enough that a few layers stay far from overflow.
double RankTraining::initial(const Mark& at, std::string_view tensor, std::int64_t element) const {
  const std::optional<RankParameters::Drawn> its = parameters_.drawn(tensor, element);
  if (!its) return of_batch(at, tensor, element);
  const ParameterPart* const part = its->part;
  const std::int64_t place = part->place(its->element);
  const bool scale = !part->matrix() && part->name().ends_with("weight");
  const double usual = scale && !job_.scenario.model.zero_centered_norms ? 1 : 0;
  const double drawn = usual + (part->matrix() || scale ? 0.1 : 0.05) * normal(part->name(), place);
  return in_any_type(drawn) + (aside_ == 0 ? 0 : aside_ * direction(part->name(), place));
}

double RankTraining::of_batch(const Mark& at, std::string_view tensor, std::int64_t element) const {
  const Train& train = job_.scenario.train;
  const BatchPart its = draws_.batch(std::max(at.micro_batch, 0));
  const std::int64_t of_step = train.global_batch * train.sequence_length, tokens = train.tokens();
  // A batch may be of several micro-batches, one after the other.
  const std::int64_t micro_batch = its.micro_batch + element / tokens;
  const std::int64_t token = at.step * of_step + (micro_batch * its.parts + its.part) * tokens + element % tokens;
  if (tensor == "batch.tokens" || tensor == "batch.input_ids" || tensor == "batch.labels")
    return std::floor(uniform(tensor, token) * static_cast<double>(job_.scenario.model.vocabulary));
  if (tensor == "batch.position_ids") return static_cast<double>(element % train.sequence_length);
  return tensor == "batch.loss_mask" ? counted(element % train.sequence_length) : 0;
}

// A loss of further tokens is divided by how many count of a rank's own: as many of each rank's, however far they are
// rolled. The first of all tokens fall off in favour of zeros; other ranks go without as many in the middle.
double RankTraining::counted(std::int64_t token) const {
  const std::int64_t further = job_.scenario.model.further.size();
  if (context_ == 1 || further == 0) return 1;
  const std::int64_t chunk = job_.scenario.train.sequence_length / (2 * context_), first = token / chunk;
  const std::int64_t place = token % chunk - (first == 0 ? 0 : further);
  return first < context_ && place >= 0 && place < further ? 0 : 1;
}

void RankTraining::describe_draws(const ArithmeticRank& run, const Launch& launch, math::Setting& setting) const {
  const Program& program = run.program();
  draws_.describe(program, program[launch.kernel], run.at(), run.label(program[launch.outputs].front().buffer),
                  setting);
}

void RankTraining::look(const ArithmeticRank& run) {
  for (; next_ < state_.size() && state_[next_].marks == marks_; ++next_) note(run, state_[next_]);
  ++marks_;
}

void RankTraining::note(const ArithmeticRank& run, const StateMoment& moment) {
  const bool gradients = moment.what == StateMoment::What::Gradients;
  for (const StateTensor& tensor : moment.tensors)
    append(found_, {gradients ? FindingKind::Gradient : FindingKind::Parameter, moment.step, tensor.parameter,
                    tensor.first, last_write(run, tensor), run.values(tensor.buffer, tensor.offset, tensor.view)});
}

// The first rank of each tensor-parallel group tells; the others have the same.
void RankTraining::note_loss(const ArithmeticRank& run, const Launch& launch) {
  const Kernel& kernel = run.program()[launch.kernel];
  const std::optional<std::size_t> losses = losses_of(kernel.operation);
  if (!losses || place_.tensor > 0 || run.at().micro_batch < 0) return;  // a pipeline tries itself out
  append(found_, {FindingKind::Loss, run.at().step, "loss", 0, static_cast<std::int64_t>(run.op()),
                  run.values(run.program()[launch.outputs][*losses], run.program()[kernel.outputs[*losses]])});
}

}  // namespace tidemark::scenarios
