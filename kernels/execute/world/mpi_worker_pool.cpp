#include "kernels/execute/world/mpi_worker_pool.hpp"

#include <cstdlib>
#include <stdexcept>

#ifdef TIDEMARK_HAS_MPI

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <mpi.h>

#endif

namespace tidemark::execute {

bool under_mpirun() {
  // Open MPI, MPICH and what follows PMIx.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size) > 1;
  return false;
}

#ifdef TIDEMARK_HAS_MPI

namespace {

constexpr int want_tag = 1, task_tag = 2, end_tag = 3;
constexpr std::chrono::microseconds between_looks{200};

// Texts, each after its number and its length.
void append(std::string& message, std::uint64_t number, const std::string& text) {
  const std::uint64_t size = text.size();
  message.append(reinterpret_cast<const char*>(&number), sizeof number);
  message.append(reinterpret_cast<const char*>(&size), sizeof size);
  message += text;
}
std::vector<std::pair<std::uint64_t, std::string>> texts_of(const std::string& message) {
  std::vector<std::pair<std::uint64_t, std::string>> texts;
  for (std::size_t at = 0; at + 16 <= message.size();) {
    std::uint64_t number = 0, size = 0;
    std::memcpy(&number, message.data() + at, sizeof number);
    std::memcpy(&size, message.data() + at + 8, sizeof size);
    texts.emplace_back(number, message.substr(at + 16, size));
    at += 16 + size;
  }
  return texts;
}

// Calls `work` for each task on `threads` threads, until there are none. What one throws, this throws.
class Threads {
 public:
  template <class Next>
  Threads(int threads, Next next) {
    for (int t = 0; t < threads; ++t)
      threads_.emplace_back([this, next] {
        try {
          while (next()) {
          }
        } catch (...) {
          const std::lock_guard lock(mutex_);
          if (!failure_) failure_ = std::current_exception();
        }
      });
  }
  ~Threads() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  void join() {
    for (std::thread& thread : threads_) thread.join();
    check();
  }
  /// Throws what one of them has thrown so far.
  void check() {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

class MpiWorkerPool final : public WorkerPool {
 public:
  explicit MpiWorkerPool(int threads) : threads_(std::max(threads, 1)) {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
      throw std::runtime_error("MPI_Init_thread failed");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiWorkerPool() override { MPI_Finalize(); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void share_out(const std::vector<std::string>& tasks, const std::function<std::string(const std::string&)>& work,
                 const std::function<void(std::size_t, std::string)>& done) override {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::vector<std::pair<std::size_t, std::string>> mine;  // done, and not yet told
    Threads own(threads_, [&] {
      const std::size_t task = next++;
      if (task >= tasks.size()) return false;
      std::string result = work(tasks[task]);
      const std::lock_guard lock(mutex);
      mine.emplace_back(task, std::move(result));
      return true;
    });
    // Before the threads are joined: where this throws, they take no further task.
    struct TakesTheRest {
      std::atomic<std::size_t>& next;
      std::size_t all;
      ~TakesTheRest() { next = all; }
    } const takes_the_rest{next, tasks.size()};
    for (std::size_t reported = 0; reported < tasks.size();) {
      own.check();
      bool moved = false;
      {
        std::vector<std::pair<std::size_t, std::string>> ready;
        {
          const std::lock_guard lock(mutex);
          ready.swap(mine);
        }
        for (auto& [task, result] : ready) done(task, std::move(result));
        reported += ready.size();
        moved = !ready.empty();
      }
      int waiting = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, want_tag, MPI_COMM_WORLD, &waiting, &status);
      if (waiting != 0) {
        for (auto& [task, result] : texts_of(receive(status))) {
          done(task, std::move(result));
          ++reported;
        }
        idle_.push_back(status.MPI_SOURCE);
        moved = true;
      }
      // Whoever has nothing to do gets as much as it can do at once.
      while (!idle_.empty() && next < tasks.size()) {
        std::string message;
        for (int t = 0; t < threads_; ++t)
          if (const std::size_t task = next++; task < tasks.size()) append(message, task, tasks[task]);
        if (message.empty()) break;
        send(message, idle_.back(), task_tag);
        idle_.pop_back();
        moved = true;
      }
      if (!moved) std::this_thread::sleep_for(between_looks);
    }
    own.join();
  }

  void dismiss(int exit_code) override {
    // Each says once more that it has nothing to do, or has said so.
    while (idle_.size() + 1 < static_cast<std::size_t>(size_)) {
      MPI_Status status;
      MPI_Probe(MPI_ANY_SOURCE, want_tag, MPI_COMM_WORLD, &status);
      (void)receive(status);
      idle_.push_back(status.MPI_SOURCE);
    }
    for (const int rank : idle_) send(std::to_string(exit_code), rank, end_tag);
    idle_.clear();
  }

  int serve(const std::function<std::string(const std::string&)>& work) override {
    std::string results;
    for (;;) {
      send(results, 0, want_tag);
      results.clear();
      MPI_Status status;
      int waiting = 0;
      // A blocking probe would keep a core busy.
      while (MPI_Iprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &waiting, &status), waiting == 0)
        std::this_thread::sleep_for(between_looks);
      const std::string message = receive(status);
      if (status.MPI_TAG == end_tag) return std::atoi(message.c_str());
      const auto tasks = texts_of(message);
      std::vector<std::string> done(tasks.size());
      std::atomic<std::size_t> next{0};
      Threads own(threads_, [&] {
        const std::size_t task = next++;
        if (task >= tasks.size()) return false;
        done[task] = work(tasks[task].second);
        return true;
      });
      own.join();
      for (std::size_t t = 0; t < tasks.size(); ++t) append(results, tasks[t].first, done[t]);
    }
  }

  void fail(const std::string& why) override {
    std::fprintf(stderr, "tidemark: %s\n", why.c_str());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 3);
    std::abort();
  }

 private:
  static std::string receive(MPI_Status& status) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string text(static_cast<std::size_t>(bytes), '\0');
    MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return text;
  }
  static void send(const std::string& text, int to, int tag) {
    MPI_Send(text.data(), static_cast<int>(text.size()), MPI_BYTE, to, tag, MPI_COMM_WORLD);
  }

  int threads_, rank_ = 0, size_ = 1;
  std::vector<int> idle_;  // ranks without tasks
};

}  // namespace

std::unique_ptr<WorkerPool> mpi_worker_pool(int threads) { return std::make_unique<MpiWorkerPool>(threads); }

#else

std::unique_ptr<WorkerPool> mpi_worker_pool(int) {
  throw std::runtime_error("this program has no MPI (docs/install.md)");
}

#endif

}  // namespace tidemark::execute
