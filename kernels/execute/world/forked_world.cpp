#include "kernels/execute/world/forked_world.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tidemark::execute {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t failure_tag = -1;
constexpr int failed_exit = 3;

struct Header {
  std::int32_t tag = 0;
  std::uint64_t bytes = 0;
};

// One connection to each other rank; what arrives before it is asked for is kept.
class ForkedWorld final : public World {
 public:
  ForkedWorld(Rank rank, std::vector<int> sockets, std::chrono::seconds time_limit)
      : rank_(rank), sockets_(std::move(sockets)), arrived_(sockets_.size()), time_limit_(time_limit) {}
  ~ForkedWorld() override {
    for (const int socket : sockets_)
      if (socket >= 0) close(socket);
  }

  [[nodiscard]] Rank rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(sockets_.size()); }

  void exchange(std::span<const Message> messages, const std::string& doing) override {
    until_ = Clock::now() + time_limit_;
    doing_ = &doing;
    for (const Message& m : messages)
      if (m.direction == Direction::Send) send(m.peer, m.tag, m.data, m.bytes);
    for (const Message& m : messages) {
      if (m.direction != Direction::Receive) continue;
      std::deque<std::string>& waiting = arrived_[m.peer.index()][m.tag];
      while (waiting.empty()) read_from(m.peer);
      if (waiting.front().size() != m.bytes) throw std::runtime_error("a message of another length: " + doing);
      std::memcpy(m.data, waiting.front().data(), m.bytes);
      waiting.pop_front();
    }
  }

  void listen() override {
    static const std::string doing = "nothing";
    doing_ = &doing;
    until_ = Clock::now() + time_limit_;
    for (Rank peer{0}; peer.value < size(); ++peer.value)
      while (peer != rank_ && ready(peer, POLLIN, 0)) read_from(peer);
  }

  void report_failure(const std::string& why) override {
    const std::string text = fmt::format("rank {}: {}", rank_.value, why);
    for (Rank peer{0}; peer.value < size(); ++peer.value) {
      if (peer == rank_) continue;
      const Header header{failure_tag, text.size()};
      // Whoever is gone cannot be told.
      if (::send(sockets_[peer.index()], &header, sizeof header, MSG_NOSIGNAL) == sizeof header)
        static_cast<void>(::send(sockets_[peer.index()], text.data(), text.size(), MSG_NOSIGNAL));
    }
    throw RunFailure(text, rank_);
  }

 private:
  [[nodiscard]] bool ready(Rank peer, short what, int milliseconds) const {
    pollfd one{sockets_[peer.index()], what, 0};
    return poll(&one, 1, milliseconds) > 0;
  }

  void wait_until_ready(Rank peer, short what) {
    while (!ready(peer, what, 100))
      if (Clock::now() > until_) report_failure(fmt::format("waited {} s for {}", time_limit_.count(), *doing_));
  }

  void send(Rank peer, std::int32_t tag, const void* data, std::size_t bytes) {
    if (peer == rank_) {
      arrived_[peer.index()][tag].emplace_back(static_cast<const char*>(data), bytes);
      return;
    }
    const Header header{tag, bytes};
    write_all(peer, &header, sizeof header);
    write_all(peer, data, bytes);
  }

  void write_all(Rank peer, const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      wait_until_ready(peer, POLLOUT);
      const ssize_t done = ::send(sockets_[peer.index()], at, bytes, MSG_NOSIGNAL);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) report_failure(fmt::format("rank {} is gone", peer.value));
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }

  void read_all(Rank peer, void* data, std::size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
      wait_until_ready(peer, POLLIN);
      const ssize_t done = recv(sockets_[peer.index()], at, bytes, 0);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) report_failure(fmt::format("rank {} is gone", peer.value));
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }

  void read_from(Rank peer) {
    Header header;
    read_all(peer, &header, sizeof header);
    std::string text(header.bytes, '\0');
    read_all(peer, text.data(), text.size());
    if (header.tag == failure_tag) throw RunFailure(text, peer);
    arrived_[peer.index()][header.tag].push_back(std::move(text));
  }

  Rank rank_;
  std::vector<int> sockets_;                                              // by rank
  std::vector<std::map<std::int32_t, std::deque<std::string>>> arrived_;  // by rank and tag
  std::chrono::seconds time_limit_;
  Clock::time_point until_;
  const std::string* doing_ = nullptr;
};

}  // namespace

int run_forked(std::int32_t ranks, std::chrono::seconds time_limit, const std::function<int(World&)>& body) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::vector<int>> sockets(n, std::vector<int>(n, -1));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("socketpair failed");
      sockets[a][b] = pair[0];
      sockets[b][a] = pair[1];
    }
  }
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (std::size_t r = 0; r < n; ++r) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    // Each keeps its own ends only: the others must notice when it is gone.
    for (std::size_t other = 0; other < n; ++other)
      if (other != r)
        for (const int socket : sockets[other])
          if (socket >= 0) close(socket);
    int code = failed_exit;
    {
      ForkedWorld world({static_cast<std::int32_t>(r)}, sockets[r], time_limit);
      code = body(world);
    }
    std::fflush(nullptr);
    _exit(code);
  }
  for (const std::vector<int>& row : sockets)
    for (const int socket : row)
      if (socket >= 0) close(socket);

  int highest = 0;
  for (std::size_t ended = 0; ended < n; ++ended) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    const auto rank = std::find(children.begin(), children.end(), child) - children.begin();
    if (WIFSIGNALED(status)) fmt::print(stderr, "rank {} died: {}\n", rank, strsignal(WTERMSIG(status)));
    highest = std::max(highest, WIFEXITED(status) ? WEXITSTATUS(status) : failed_exit);
  }
  return highest;
}

}  // namespace tidemark::execute
