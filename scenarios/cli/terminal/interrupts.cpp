#include "scenarios/cli/terminal/interrupts.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "scenarios/formats/output_file.hpp"

namespace tidemark::cli {
namespace {

constexpr std::array ending{SIGINT, SIGTERM, SIGHUP};
constexpr unsigned char nothing_more = 0;  // is no signal's number

/// Where the handler writes a signal's number while somebody has last words; -1: nobody has.
std::atomic<int> to_speaker{-1};

// As if it had never been handled: whoever started the program sees by which signal it ended.
[[noreturn]] void end_by(int signal) {
  remove_unfinished_files();
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  static_cast<void>(kill(getpid(), signal));
  _exit(128 + signal);
}

void on_signal(int signal) {
  const int error = errno;
  const auto number = static_cast<unsigned char>(signal);
  const int pipe = to_speaker.load();
  if (pipe < 0 || write(pipe, &number, 1) != 1) end_by(signal);
  errno = error;
}

}  // namespace

void leave_nothing_on_signals() {
  for (const int signal : ending) {
    struct sigaction before {
    }, now{};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    now.sa_handler = on_signal;
    now.sa_flags = SA_RESTART;
    sigaction(signal, &now, nullptr);
  }
}

LastWords::LastWords(std::function<void()> say) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe for signals");
  speaker_ = std::thread([say = std::move(say), from = ends[0]] {
    unsigned char signal = nothing_more;
    while (read(from, &signal, 1) < 0 && errno == EINTR) {
    }
    close(from);
    if (signal == nothing_more) return;
    say();
    end_by(signal);
  });
  to_speaker = ends[1];
}

LastWords::~LastWords() {
  const int pipe = to_speaker.exchange(-1);
  while (write(pipe, &nothing_more, 1) < 0 && errno == EINTR) {
  }
  speaker_.join();
  close(pipe);
}

}  // namespace tidemark::cli
