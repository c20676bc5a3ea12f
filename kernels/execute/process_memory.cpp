#include "kernels/execute/process_memory.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace tidemark::execute {
namespace {

// A file of lines "Name:   123 kB". Reads without the heap: a measurement must not change what it measures.
class Lines {
 public:
  explicit Lines(const char* path) : path_(path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) throw std::runtime_error(std::string("cannot read ") + path);
    for (ssize_t n; length_ < text_.size() && (n = read(file, text_.data() + length_, text_.size() - length_)) > 0;)
      length_ += static_cast<std::size_t>(n);
    close(file);
  }

  [[nodiscard]] Bytes operator[](std::string_view name) const {
    const std::string_view all(text_.data(), length_);
    for (std::size_t at = all.find(name); at != std::string_view::npos; at = all.find(name, at + 1)) {
      if (at != 0 && all[at - 1] != '\n') continue;
      const std::size_t digit = all.find_first_of("0123456789", at + name.size());
      std::int64_t kib = 0;
      if (digit != std::string_view::npos) std::from_chars(all.data() + digit, all.data() + all.size(), kib);
      return Bytes{kib * 1024};
    }
    throw std::runtime_error(std::string(path_) + " has no line " + std::string(name));
  }

 private:
  const char* path_;
  std::array<char, 8192> text_;
  std::size_t length_ = 0;
};

}  // namespace

Bytes resident_anonymous() { return Lines("/proc/self/smaps_rollup")["Anonymous:"]; }
Bytes available_memory() { return Lines("/proc/meminfo")["MemAvailable:"]; }

namespace {

// A file that has one number; nothing where it is not there or says "max".
std::optional<std::int64_t> number_in(const std::string& path) {
  std::int64_t number = 0;
  std::ifstream file(path);
  return file >> number ? std::optional(number) : std::nullopt;
}

// Of the control group that the process is in (version 2), and of those around it.
std::optional<std::int64_t> left_in_group() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<std::int64_t> least;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string group = line.substr(3);; group = group.substr(0, group.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
      const std::optional<std::int64_t> most = number_in(folder + "/memory.max"),
                                        used = number_in(folder + "/memory.current");
      if (most && used) least = std::min(least.value_or(*most - *used), *most - *used);
      if (group.empty() || group == "/") break;
    }
  }
  return least;
}

}  // namespace

Bytes memory_left() {
  std::int64_t left = available_memory().count();
  if (const std::optional<std::int64_t> its = left_in_group()) left = std::min(left, *its);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    left = std::min(left, static_cast<std::int64_t>(limit.rlim_cur) - Lines("/proc/self/status")["VmSize:"].count());
  return Bytes{std::max<std::int64_t>(left, 0)};
}

ResidentByKind resident_by_kind() {
  const Lines status("/proc/self/status");
  return {status["VmRSS:"], status["RssFile:"], status["RssShmem:"], status["VmHWM:"]};
}

std::string machine_description() {
  std::string processor = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    processor = line.substr(line.find(':') + 2);
    break;
  }
  utsname system{};
  uname(&system);
  return processor + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores, " + system.sysname + " " +
         system.release;
}

void reset_resident_peak() {
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  const bool done = file >= 0 && write(file, "5", 1) == 1;
  if (file >= 0) close(file);
  if (!done) throw std::runtime_error("cannot reset the resident peak: /proc/self/clear_refs refuses");
}

}  // namespace tidemark::execute
