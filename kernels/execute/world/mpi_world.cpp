#include "kernels/execute/world/mpi_world.hpp"

#ifdef TIDEMARK_HAS_MPI

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

namespace tidemark::execute {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int most_bytes = 1 << 30;  // of one MPI message: counts are int
// Of ranks that fail at once, each looks so long and so often whether another has too: one may wait for its turn on a
// core.
constexpr std::chrono::seconds for_others{1};
constexpr int looks_for_others = 64;
// mpirun ends all ranks when the first has left: whoever does not tell lets the teller go first, if it still lives.
constexpr std::chrono::seconds for_the_teller{10}, for_goodbye{30};
constexpr int failed_exit = 3;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw std::runtime_error(
      fmt::format("{} failed: {}", call, std::string(text.data(), static_cast<std::size_t>(length))));
}

// The rank that mpirun or Slurm gives this process, before MPI says so; 0 where neither does.
std::int32_t rank_from_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  return 0;
}

/// Ends the process where it has not come so far within a time: MPI_Init waits for all ranks, and returns to none when
/// one stands still. Of several ranks the first tells: the others wait a little longer, in which mpirun ends them.
class StartLimit {
 public:
  StartLimit(std::chrono::seconds limit, const TellFailure& tell)
      : watch_([this, limit, tell] {
          const Rank rank{rank_from_launcher()};
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, limit + before_the_next * std::min(rank.value, most_turns),
                                [this] { return begun_; }))
            return;
          tell(RunFailure(fmt::format("rank {}: waited {} s in MPI_Init: another rank has not started, or stands still",
                                      rank.value, limit.count()),
                          rank));
          std::fflush(nullptr);
          _exit(failed_exit);
        }) {}
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;
  ~StartLimit() {
    {
      const std::lock_guard lock(mutex_);
      begun_ = true;
    }
    changed_.notify_one();
    watch_.join();
  }

 private:
  static constexpr std::chrono::milliseconds before_the_next{500};
  static constexpr std::int32_t most_turns = 20;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::thread watch_;
};

class MpiWorld final : public World {
 public:
  MpiWorld(std::chrono::seconds time_limit, TellFailure tell) : time_limit_(time_limit), tell_(std::move(tell)) {
    const StartLimit limit(time_limit_, tell_);
    check(MPI_Init(nullptr, nullptr), "MPI_Init");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_dup(MPI_COMM_WORLD, &payload_), "MPI_Comm_dup");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &failures_), "MPI_Comm_dup");
    MPI_Comm_rank(payload_, &rank_.value);
    MPI_Comm_size(payload_, &size_);
  }

  // Finalizing waits for all ranks; one that is stuck or dead must not keep the others. What was said is said before.
  ~MpiWorld() override {
    std::fflush(nullptr);
    std::thread([patience = std::max(time_limit_, for_goodbye)] {
      std::this_thread::sleep_for(patience);
      _exit(failed_exit);
    }).detach();
    MPI_Comm_free(&failures_);
    MPI_Comm_free(&payload_);
    MPI_Finalize();
  }

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return size_; }

  void exchange(std::span<const Message> messages, const std::string& doing) override {
    try {
      requests_.clear();
      peers_.clear();
      for (const Message& m : messages) post(m);
      complete(doing);
    } catch (const std::exception& error) {  // of the library: told from here, where the messages' memory still is
      report_failure(error.what());
    }
  }

  [[noreturn]] void report_failure(const std::string& why) override {
    listen();
    RunFailure failure(fmt::format("rank {}: {}", rank_.value, why), rank_);
    // Sends that nobody may ever take.
    const std::string text = failure.what();
    for (int to = 0; to < size_; ++to) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (to != rank_.value)
        MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, to, 0, failures_, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    // Let the library hand them over. Of several ranks that fail at once, the lowest tells people.
    const Clock::time_point until = Clock::now() + for_others;
    for (int looks = 0; size_ > 1 && (looks < looks_for_others || Clock::now() < until); ++looks) {
      if (std::optional<RunFailure> other = heard(); other && other->teller() < failure.teller())
        failure = std::move(*other);
      sched_yield();
    }
    leave(failure);
  }

  void listen() override {
    if (const std::optional<RunFailure> failure = heard()) leave(*failure);
  }

 private:
  static constexpr std::int64_t busy_rounds = 64;

  void post(const Message& m) {
    char* at = static_cast<char*>(m.data);
    std::size_t left = m.bytes;
    do {
      const int part = static_cast<int>(std::min<std::size_t>(left, most_bytes));
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      if (m.direction == Direction::Send)
        check(MPI_Isend(at, part, MPI_BYTE, m.peer.value, m.tag, payload_, &request), "MPI_Isend");
      else
        check(MPI_Irecv(at, part, MPI_BYTE, m.peer.value, m.tag, payload_, &request), "MPI_Irecv");
      peers_.push_back(m.peer);
      at += part;
      left -= static_cast<std::size_t>(part);
    } while (left > 0);
  }

  void complete(const std::string& doing) {
    const Clock::time_point until = Clock::now() + time_limit_;
    for (std::int64_t round = 0;; ++round) {
      // Before looking: a process that got no core for so long looks once more before it gives up.
      const bool late = Clock::now() >= until;
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      if (done != 0) return;
      if (round < busy_rounds) continue;
      listen();
      // Ranks may outnumber cores: whoever waits lets others run.
      sched_yield();
      if (late)
        report_failure(fmt::format("waited {} s for rank {}: {}", time_limit_.count(), first_missing().value, doing));
    }
  }

  // Of the messages in flight.
  [[nodiscard]] Rank first_missing() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      check(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) return peers_[i];
    }
    return rank_;
  }

  // The library goes on sending from, and other ranks reading, memory of this process while it lives. So nothing is
  // unwound, and MPI is not finalized, which would wait for ranks that are stuck.
  [[noreturn]] void leave(const RunFailure& failure) {
    if (failure.teller() == rank_)
      tell_(failure);
    else
      std::this_thread::sleep_for(for_the_teller);
    std::fflush(nullptr);
    _exit(failed_exit);
  }

  // What another rank has reported, if any has.
  [[nodiscard]] std::optional<RunFailure> heard() {
    int flag = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, failures_, &flag, &status) != MPI_SUCCESS || flag == 0)
      return std::nullopt;
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    MPI_Recv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, failures_, MPI_STATUS_IGNORE);
    return RunFailure(text, Rank{status.MPI_SOURCE});
  }

  std::chrono::seconds time_limit_;
  TellFailure tell_;
  MPI_Comm payload_ = MPI_COMM_NULL, failures_ = MPI_COMM_NULL;
  Rank rank_;
  std::int32_t size_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<Rank> peers_;  // by request
};

}  // namespace

std::unique_ptr<World> mpi_world(std::chrono::seconds time_limit, TellFailure tell) {
  return std::make_unique<MpiWorld>(time_limit, std::move(tell));
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find(','));
}

}  // namespace tidemark::execute

#else

namespace tidemark::execute {

std::unique_ptr<World> mpi_world(std::chrono::seconds, TellFailure) {
  throw std::runtime_error(
      "this program has no MPI, which starts the ranks that run: take Tidemark's Debian package, or a clone of its "
      "sources, where scripts/setup builds with libopenmpi-dev and openmpi-bin (docs/install.md)");
}
std::string mpi_version() { return {}; }

}  // namespace tidemark::execute

#endif
