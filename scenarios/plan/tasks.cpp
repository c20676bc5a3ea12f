#include "scenarios/plan/tasks.hpp"

#include <mutex>
#include <utility>

#include "scenarios/plan/bounds/pack.hpp"
#include "scenarios/plan/detail/task_texts.hpp"
#include "scenarios/plan/evaluate.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/in_parallel.hpp"

namespace tidemark::scenarios {
namespace {

template <class T>
void pack(Pack& out, const std::vector<T>& values) {
  out << static_cast<std::uint64_t>(values.size());
  for (const T& value : values) out << value;
}
template <class T>
void unpack(Unpack& in, std::vector<T>& values) {
  std::uint64_t size = 0;
  in >> size;
  values.resize(size);
  for (T& value : values) in >> value;
}

class ThreadRunner final : public TaskRunner {
 public:
  explicit ThreadRunner(TaskFunction function) : function_(std::move(function)) {}

  std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) override {
    std::vector<std::string> results(tasks.size());
    std::mutex reporting;
    bool failed = false;
    in_parallel(0, tasks.size(), [&](std::size_t i) {
      try {
        results[i] = function_(tasks[i]);
        const std::lock_guard lock(reporting);
        if (!done || failed) return;
        failed = true;  // before anybody else may go on, if it throws
        done(i, results[i]);
        failed = false;
      } catch (...) {
        const std::lock_guard lock(reporting);
        failed = true;
        throw;
      }
    });
    return results;
  }

 private:
  TaskFunction function_;
};

class WorkerPoolRunner final : public TaskRunner {
 public:
  WorkerPoolRunner(WorkerPool& worker_pool, TaskFunction function)
      : worker_pool_(worker_pool), function_(std::move(function)) {}

  std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) override {
    std::vector<std::string> results(tasks.size());
    worker_pool_.share_out(tasks, function_, [&](std::size_t task, std::string result) {
      results[task] = std::move(result);
      if (done) done(task, results[task]);
    });
    return results;
  }

 private:
  WorkerPool& worker_pool_;
  TaskFunction function_;
};

}  // namespace

std::string screen_task(std::int64_t first, std::int64_t count, std::size_t nearest) {
  Pack out;
  out << TaskKind::Screen << first << count << static_cast<std::uint64_t>(nearest);
  return std::move(out).text();
}

std::string allocate_task(const Survivor& survivor, const Bar& bar) {
  Pack out;
  out << TaskKind::Allocate << survivor << bar.throughput;
  pack(out, bar.front);
  return std::move(out).text();
}

// Field by field: a task is a key, and padding is anything.
std::string time_task(const Found& f) {
  Pack out;
  out << TaskKind::Time << f.candidate << f.figures.allocated << f.figures.device << f.figures.device_upper
      << f.figures.host_upper << f.figures.completed << f.step_low << f.step_high;
  return std::move(out).text();
}

std::string full_task(std::int64_t candidate) {
  Pack out;
  out << TaskKind::Full << candidate;
  return std::move(out).text();
}

std::string parts_task(std::int64_t candidate, Duration step) {
  Pack out;
  out << TaskKind::Parts << candidate << step;
  return std::move(out).text();
}

std::string text_of(const StepParts& parts) {
  Pack out;
  out << static_cast<std::uint64_t>(parts.size());
  for (const auto& [cause, part] : parts) out << cause << part.time << part.error;
  return std::move(out).text();
}

StepParts parts_from(const std::string& text) {
  Unpack in(text);
  StepParts parts;
  std::uint64_t count = 0;
  in >> count;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string cause;
    StepPart part;
    in >> cause >> part.time >> part.error;
    parts[cause] = part;
  }
  return parts;
}

std::string text_of(const Screened& screened) {
  Pack out;
  out << static_cast<std::uint64_t>(screened.dropped.size());
  for (const auto& [reason, count] : screened.dropped) out << reason << count;
  out << screened.candidates << screened.rejected << screened.unbounded;
  pack(out, screened.survivors);
  pack(out, screened.nearest);
  return std::move(out).text();
}

Screened screened_from(const std::string& text) {
  Unpack in(text);
  Screened screened;
  std::uint64_t reasons = 0;
  in >> reasons;
  for (std::uint64_t i = 0; i < reasons; ++i) {
    std::string reason;
    std::int64_t count = 0;
    in >> reason >> count;
    screened.dropped[reason] = count;
  }
  in >> screened.candidates >> screened.rejected >> screened.unbounded;
  unpack(in, screened.survivors);
  unpack(in, screened.nearest);
  return screened;
}

std::string text_of(const Evaluated& evaluated) {
  Pack out;
  out << evaluated.verdict << evaluated.timed << evaluated.asks_the_clock << evaluated.found << evaluated.miss
      << evaluated.failed.candidate << evaluated.failed.why;
  return std::move(out).text();
}

Evaluated evaluated_from(const std::string& text) {
  Evaluated evaluated;
  Unpack(text) >> evaluated.verdict >> evaluated.timed >> evaluated.asks_the_clock >> evaluated.found >>
      evaluated.miss >> evaluated.failed.candidate >> evaluated.failed.why;
  return evaluated;
}

TaskFunction task_function(const Space& space) { return task_function(std::make_shared<Evaluator>(space)); }

TaskFunction task_function(std::shared_ptr<Evaluator> evaluator) {
  return [evaluator = std::move(evaluator)](const std::string& task) -> std::string {
    Unpack in(task);
    TaskKind kind = TaskKind::Screen;
    in >> kind;
    switch (kind) {
      case TaskKind::Screen: {
        std::int64_t first = 0, count = 0;
        std::uint64_t nearest = 0;
        in >> first >> count >> nearest;
        return text_of(evaluator->screen(first, count, nearest));
      }
      case TaskKind::Allocate: {
        Survivor survivor;
        Bar bar;
        in >> survivor >> bar.throughput;
        unpack(in, bar.front);
        return text_of(evaluator->allocate(survivor, bar));
      }
      case TaskKind::Time: {
        Found f;
        in >> f.candidate >> f.figures.allocated >> f.figures.device >> f.figures.device_upper >>
            f.figures.host_upper >> f.figures.completed >> f.step_low >> f.step_high;
        return text_of(evaluator->time(f));
      }
      case TaskKind::Full: {
        std::int64_t candidate = 0;
        in >> candidate;
        return text_of(evaluator->in_full(candidate));
      }
      case TaskKind::Parts: {
        std::int64_t candidate = 0;
        Duration step;
        in >> candidate >> step;
        return text_of(evaluator->parts(candidate, step));
      }
    }
    ensure(false, "a task is of one of these kinds");
    return {};
  };
}

std::unique_ptr<TaskRunner> worker_pool_runner(WorkerPool& worker_pool, TaskFunction function) {
  return std::make_unique<WorkerPoolRunner>(worker_pool, std::move(function));
}

std::unique_ptr<TaskRunner> thread_runner(TaskFunction function) {
  return std::make_unique<ThreadRunner>(std::move(function));
}

}  // namespace tidemark::scenarios
