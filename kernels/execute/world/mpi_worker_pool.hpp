#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/execute/namespace.hpp"

namespace tidemark::execute {

/// The processes of an mpirun that share tasks: texts in, texts out. The first one hands them out, a few at a time to
/// whoever has none left, and takes part itself. Only the thread that made it may use it.
class WorkerPool {
 public:
  WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  virtual ~WorkerPool() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// On the first process. Calls `work` (from many threads at once) or has other processes do it; `done` with each
  /// result as it comes, from one thread.
  virtual void share_out(const std::vector<std::string>& tasks,
                         const std::function<std::string(const std::string&)>& work,
                         const std::function<void(std::size_t task, std::string result)>& done) = 0;
  /// On the first process: no more tasks will come; what all processes return.
  virtual void dismiss(int exit_code) = 0;
  /// On the others: does tasks until dismissed; what to return.
  [[nodiscard]] virtual int serve(const std::function<std::string(const std::string&)>& work) = 0;
  /// Ends all processes.
  [[noreturn]] virtual void fail(const std::string& why) = 0;
};

/// Whether mpirun started this process, and others with it.
[[nodiscard]] bool under_mpirun();

/// Of this mpirun. `threads`: how many tasks a process can do at once. Throws where this build has no MPI.
[[nodiscard]] std::unique_ptr<WorkerPool> mpi_worker_pool(int threads);

}  // namespace tidemark::execute
