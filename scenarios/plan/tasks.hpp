#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/execute/world/mpi_worker_pool.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"

// A search is rounds of tasks. A task is a text and so is its result, which depends on the task and the space alone: so
// threads and processes can share them out in any way, and a journal can remember them.

namespace tidemark::scenarios {

class Evaluator;

/// Runs tasks; results are in the order of the tasks. `done` hears of each as it comes, one call at a time, and of none
/// once a task or `done` itself has thrown.
class TaskRunner {
 public:
  TaskRunner() = default;
  TaskRunner(const TaskRunner&) = delete;
  TaskRunner& operator=(const TaskRunner&) = delete;
  virtual ~TaskRunner() = default;
  using Done = std::function<void(std::size_t task, const std::string& result)>;
  [[nodiscard]] virtual std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) = 0;
};

/// Does a task.
using TaskFunction = std::function<std::string(const std::string&)>;
/// Of a space; safe to call from many threads at once. The space has to outlive it.
[[nodiscard]] TaskFunction task_function(const Space& space);
[[nodiscard]] TaskFunction task_function(std::shared_ptr<Evaluator> evaluator);

/// On the threads of this process.
[[nodiscard]] std::unique_ptr<TaskRunner> thread_runner(TaskFunction function);
/// On those of all processes of an mpirun. The farm has to outlive it.
[[nodiscard]] std::unique_ptr<TaskRunner> worker_pool_runner(WorkerPool& worker_pool, TaskFunction function);

}  // namespace tidemark::scenarios
