#include "scenarios/arithmetic/check_math.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numbers>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "kernels/execute/arithmetic_rank.hpp"
#include "kernels/execute/mutation.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "scenarios/job.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"

namespace tidemark::scenarios {
namespace {

using execute::ArithmeticHooks;
using execute::ArithmeticRank;
using execute::Group;
using execute::Message;
using execute::World;

// ---- numbers from seeds --------------------------------------------------------------------------------------------

std::uint64_t seed_of(std::string_view name) { return std::hash<std::string_view>{}(name); }

// In (0, 1), by name and place.
double uniform(std::uint64_t seed, std::int64_t place) {
  const std::uint64_t bits = mixed(seed ^ mixed(static_cast<std::uint64_t>(place) + 1));
  return (static_cast<double>(bits >> 11U) + 0.5) * 0x1p-53;  // 53 bits are what a double holds
}

// Box and Muller 1958.
double normal(std::uint64_t seed, std::int64_t place) {
  return std::sqrt(-2 * std::log(uniform(seed, 2 * place))) *
         std::cos(2 * std::numbers::pi * uniform(seed, 2 * place + 1));
}

// ---- where a rank's part of a parameter stands in the whole one -----------------------------------------------------

class WholeParameter {
 public:
  WholeParameter(const Parameter& parameter, const Model& model, const Sizes& sizes, std::int32_t tensor_rank)
      : cut_(parameter.cut),
        rank_(tensor_rank),
        ranks_(sizes.tensor),
        rows_(sizes.rows(parameter)),
        columns_(sizes.columns(parameter)) {
    const bool of_gate = parameter.name.ends_with(".fc1.weight") || parameter.name.ends_with(".fc1.bias");
    halves_ = of_gate && gated(model.activation) ? 2 : 1;
  }

  [[nodiscard]] std::int64_t elements() const { return rows_ * columns_ * (cut_ == WeightCut::None ? 1 : ranks_); }
  /// Of an element of the part.
  [[nodiscard]] std::int64_t place(std::int64_t element) const {
    const std::int64_t row = element / columns_, column = element % columns_;
    switch (cut_) {
      case WeightCut::None:
        return element;
      case WeightCut::Rows: {  // of a gate's weight, each rank has rows of either half
        const std::int64_t part = rows_ / halves_, half = row / part;
        return ((half * ranks_ + rank_) * part + row % part) * columns_ + column;
      }
      case WeightCut::Columns:
        return (row * ranks_ + rank_) * columns_ + column;
    }
    return element;
  }

 private:
  WeightCut cut_;
  std::int64_t rank_, ranks_, rows_, columns_, halves_ = 1;
};

// ---- what a run leaves ----------------------------------------------------------------------------------------------

enum class Kind : std::int64_t { Loss, Gradient, Parameter };

// Numbers of one step: a part of a tensor, from one of its own elements on.
struct Found {
  Kind kind = Kind::Loss;
  std::int32_t step = 0;
  std::string name;
  std::int64_t first = 0;
  std::vector<double> values;
};

class Archive {
 public:
  template <class Number>
  void add(Number number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void add(const Found& found) {
    add(static_cast<std::int64_t>(found.kind));
    add<std::int64_t>(found.step);
    add(static_cast<std::int64_t>(found.name.size()));
    bytes_ += found.name;
    add(found.first);
    add(static_cast<std::int64_t>(found.values.size()));
    for (const double value : found.values) add(value);
  }
  [[nodiscard]] std::string text() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ArchiveReader {
 public:
  explicit ArchiveReader(std::string_view bytes) : rest_(bytes) {}
  [[nodiscard]] bool over() const { return rest_.empty(); }
  Found next() {
    Found found;
    found.kind = static_cast<Kind>(number<std::int64_t>());
    found.step = static_cast<std::int32_t>(number<std::int64_t>());
    found.name = rest_.substr(0, static_cast<std::size_t>(number<std::int64_t>()));
    rest_.remove_prefix(found.name.size());
    found.first = number<std::int64_t>();
    found.values.resize(static_cast<std::size_t>(number<std::int64_t>()));
    for (double& value : found.values) value = number<double>();
    return found;
  }

 private:
  template <class Number>
  Number number() {
    Number made{};
    std::memcpy(&made, rest_.data(), sizeof made);
    rest_.remove_prefix(sizeof made);
    return made;
  }
  std::string_view rest_;
};

// ---- one rank's training
// ---------------------------------------------------------------------------------------------

// Of one rank: what it starts from, and what it comes to.
class Training {
 public:
  Training(const JobOutline& job, Rank rank)
      : job_(job),
        place_(coordinates(job.scenario.layout, rank)),
        sizes_(sizes_of(job.scenario.model, job.scenario.layout, job.scenario.train, job.runtime)),
        micro_batches_(micro_batches_of(job.scenario.train, job.scenario.layout)) {
    for (std::size_t p = 0; p < job.built.parameters.size(); ++p)
      by_name_.emplace(job.built.parameters[p].name, ParameterId{static_cast<std::int32_t>(p)});
    const Layout& layout = job.scenario.layout;
    for (const Stage& stage :
         chunks_of_rank(static_cast<std::int32_t>(job.scenario.model.layers), layout, place_.pipeline))
      layouts_.push_back(buffer_layout(job.built, stage_parameters(job.built, stage), sizes_, job.runtime, stage,
                                       layout.sharding, layout.replicas()));
  }

  [[nodiscard]] Program program() const {
    return lower_role(job_.lowering(), {place_, {rank_at(job_.scenario.layout, place_)}});
  }

  [[nodiscard]] ArithmeticHooks hooks() {
    return {.initial = [this](const Mark& at, std::string_view tensor,
                              std::int64_t element) { return initial(at, tensor, element); },
            .before_mark = [this](const ArithmeticRank& run, const Mark* next) { look(run, next); },
            .after_launch = [this](const ArithmeticRank& run, const Launch& launch) { note_loss(run, launch); }};
  }

  [[nodiscard]] WholeParameter whole(const std::string& name) const {
    return {job_.built[by_name_.at(name)], job_.scenario.model, sizes_, place_.tensor};
  }
  [[nodiscard]] std::string found() && { return std::move(archive_).text(); }

 private:
  [[nodiscard]] double initial(const Mark& at, std::string_view tensor, std::int64_t element) const {
    const Train& train = job_.scenario.train;
    const std::string name(tensor);
    if (const auto known = by_name_.find(name); known != by_name_.end()) {
      const Parameter& parameter = job_.built[known->second];
      // Large enough that every tensor matters to the loss, small enough that a few layers stay far from overflow.
      const double drawn = normal(seed_of(name), whole(name).place(element));
      const bool scale = name.ends_with("norm.weight");
      return scale && !job_.scenario.model.zero_centered_norms ? 1 + 0.1 * drawn
                                                               : (parameter.matrix() ? 0.1 : 0.05) * drawn;
    }
    const std::int64_t micro_batch = place_.data * micro_batches_ + std::max(at.micro_batch, 0);
    const std::int64_t tokens = train.micro_batch * train.sequence_length;
    const std::int64_t of_step = micro_batches_ * job_.scenario.layout.data;
    const std::int64_t token = (at.step * of_step + micro_batch) * tokens + element;
    const auto drawn = [&] {
      return std::floor(uniform(seed_of(name), token) * static_cast<double>(job_.scenario.model.vocabulary));
    };
    if (name == "batch.tokens" || name == "batch.labels") return drawn();
    if (name == "batch.position_ids") return static_cast<double>(element % train.sequence_length);
    return name == "batch.loss_mask" ? 1 : 0;
  }

  // Gradients lie as they will be used when the optimizer begins, parameters as they are left when it is done.
  void look(const ArithmeticRank& run, const Mark* next) {
    const bool begins = next != nullptr && next->phase == Phase::OptimizerStep && next->step > 0;
    const std::string_view label = begins ? std::string_view(run.program()[next->label]) : std::string_view{};
    if (label == "optimizer_step") note(run, Kind::Gradient, next->step);
    if (next == nullptr || (label == "zero_gradients" && next->step > 1))
      note(run, Kind::Parameter, next == nullptr ? run.at().step : next->step - 1);
  }

  void note(const ArithmeticRank& run, Kind kind, std::int32_t step) {
    const Layout& layout = job_.scenario.layout;
    const bool sharded = layout.sharding == Sharding::Zero1;
    const DType type = kind == Kind::Gradient ? job_.scenario.train.gradient_dtype : job_.scenario.train.precision;
    for (std::size_t chunk = 0; chunk < layouts_.size(); ++chunk) {
      const BufferLayout& its = layouts_[chunk];
      const std::string suffix = layouts_.size() > 1 ? fmt::format("[{}]", chunk) : "";
      for (const BufferLayout::Place& place :
           sharded&& kind == Kind::Gradient ? its.places_in(replica(layout, place_), layout.replicas()) : its.places) {
        const std::string& name = job_.built[place.parameter].name;
        const auto all = std::ranges::find(its.places, place.parameter, &BufferLayout::Place::parameter);
        const bool own = kind == Kind::Parameter && !sharded;
        const BufferId buffer =
            run.buffer(own ? name : (kind == Kind::Gradient ? "gradient_buffer" : "parameter_buffer") + suffix);
        ensure(buffer.valid(), "what a rank holds of a parameter is there when it is looked at");
        const std::int64_t begin = own ? 0 : place.begin;
        const View view{type, {place.end - place.begin}, {1}};
        archive_.add(
            Found{kind, step, name, place.begin - all->begin, run.values(buffer, begin * size_of(type), view)});
      }
    }
  }

  // The first rank of each tensor-parallel group tells; the others have the same.
  void note_loss(const ArithmeticRank& run, const Launch& launch) {
    const Kernel& kernel = run.program()[launch.kernel];
    if (kernel.operation != Operation::VocabularyLoss && kernel.operation != Operation::CrossEntropyFromStatistics)
      return;
    if (place_.tensor > 0) return;
    archive_.add(Found{Kind::Loss, run.at().step, "loss", 0,
                       run.values(run.program()[launch.outputs][1], run.program()[kernel.outputs[1]])});
  }

  const JobOutline& job_;
  Coordinates place_;
  Sizes sizes_;
  std::int64_t micro_batches_;
  std::map<std::string, ParameterId> by_name_;
  std::vector<BufferLayout> layouts_;
  Archive archive_;
};

// The world of a rank that is alone.
class OneRank final : public World {
 public:
  [[nodiscard]] Rank rank() const override { return {0}; }
  [[nodiscard]] std::int32_t size() const override { return 1; }
  void exchange(std::span<const Message>, const std::string&) override {}
  void report_failure(const std::string& why) override { throw execute::RunFailure(why); }
};

// The same model and batches on one rank that holds it whole and recomputes nothing; as many rows of the vocabulary are
// padding.
Scenario on_one_rank(const JobOutline& job) {
  Scenario scenario = job.scenario;
  const Sizes sizes = sizes_of(scenario.model, scenario.layout, scenario.train, job.runtime);
  scenario.model.vocabulary_multiple = sizes.vocabulary;
  scenario.gpus = 1;
  scenario.layout = {};
  scenario.train.recompute = {};
  return scenario;
}

std::string trained(const JobOutline& job, Rank rank, World& world, math::Storage storage) {
  Training training(job, rank);
  const Program program = training.program();
  Workload groups;
  groups.communicators = communicators_of(job.lowering()).table;
  const std::vector<Group> mine = execute::groups_of(groups, rank);
  ArithmeticRank run(program, mine, world, storage, training.hooks());
  run.run();
  return std::move(training).found();
}

using Whole = std::map<std::pair<std::int32_t, std::string>, std::vector<double>>;

}  // namespace

std::string beyond_arithmetic(const Scenario& scenario) {
  if (scenario.runtime.name != "megatron") return "runtimes other than Megatron\nname = \"megatron\" in [runtime]";
  if (scenario.train.hidden_dropout > 0 || scenario.train.attention_dropout > 0)
    return "dropout: ranks would draw other numbers than one rank\nhidden_dropout = 0 and attention_dropout = 0 in "
           "[train]";
  if (scenario.train.precision != DType::FP32) return "training in 16 bits\nprecision = \"fp32\" in [train]";
  return {};
}

MathCheck check_math(const Scenario& asked, World& world, math::Storage storage) {
  const JobOutline job(asked);
  const bool wide = storage == math::Storage::Wide;
  MathCheck check{wide ? "float64" : "fp32", wide ? 1e-12 : 1e-5, {}, {}, 0, {}};
  std::string mine;
  try {
    mine = trained(job, world.rank(), world, storage);
  } catch (const execute::WrongProgram& error) {
    world.report_failure(error.what());
  }
  const std::vector<std::string> all = world.gather(mine);
  if (world.rank().value != 0) return check;

  const JobOutline alone(on_one_rank(job));
  OneRank one;
  const std::string reference = trained(alone, {0}, one, storage);
  Whole gradients, parameters;
  std::map<std::int32_t, std::pair<double, std::int64_t>> losses, expected;
  const auto add_loss = [](auto& sums, const Found& found) {
    for (const double value : found.values) sums[found.step].first += value, ++sums[found.step].second;
  };
  for (ArchiveReader reader(reference); !reader.over();) {
    Found found = reader.next();
    if (found.kind == Kind::Loss)
      add_loss(expected, found);
    else
      (found.kind == Kind::Gradient ? gradients : parameters)[{found.step, found.name}] = std::move(found.values);
  }
  const auto compare = [&](std::int32_t rank, const Training& training, const Found& found) {
    const std::vector<double>& whole =
        (found.kind == Kind::Gradient ? gradients : parameters).at({found.step, found.name});
    const WholeParameter places = training.whole(found.name);
    MathDifference difference{
        fmt::format("{} of {}", found.kind == Kind::Gradient ? "gradient" : "parameter", found.name), found.step, rank,
        0};
    ++check.tensors;
    ensure(static_cast<std::int64_t>(whole.size()) == places.elements(), "one rank holds all of a parameter");
    double largest = 0;
    for (const double value : whole) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < found.values.size(); ++i) {
      const double own = whole[static_cast<std::size_t>(places.place(found.first + static_cast<std::int64_t>(i)))];
      const double apart = std::abs(found.values[i] - own) / std::max(largest, 1e-300);
      difference.relative = std::isnan(apart) ? HUGE_VAL : std::max(difference.relative, apart);
    }
    check.worst.push_back(std::move(difference));
  };
  // Adam divides a gradient by its own size, so that of elements that should be nothing rounding is all that is left:
  // in parameters always, and in fp32 in what comes of them. In float64 the next step's gradients show what it did.
  const auto comparable = [&](const Found& found) {
    if (job.scenario.train.optimizer != Optimizer::AdamW) return true;
    return found.kind == Kind::Gradient && (wide || found.step == 1);
  };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Training training(job, Rank{static_cast<std::int32_t>(rank)});
    for (ArchiveReader reader(all[rank]); !reader.over();) {
      const Found found = reader.next();
      if (found.kind == Kind::Loss)
        add_loss(losses, found);
      else if (comparable(found))
        compare(static_cast<std::int32_t>(rank), training, found);
    }
  }
  for (const auto& [step, sum] : losses) {
    const auto& [whole, count] = expected.at(step);
    check.losses.push_back(sum.first / static_cast<double>(sum.second));
    check.reference_losses.push_back(whole / static_cast<double>(count));
    const double apart = std::abs(check.losses.back() / check.reference_losses.back() - 1);
    check.worst.push_back({"loss", step, 0, std::isnan(apart) ? HUGE_VAL : apart});
  }
  std::ranges::stable_sort(check.worst, std::greater<>(), &MathDifference::relative);
  if (check.worst.size() > 10) check.worst.resize(10);
  return check;
}

}  // namespace tidemark::scenarios
