#include "scenarios/plan/journal.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "scenarios/io/input_error.hpp"
#include "sim/hash.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::string_view magic = "tidemark journal 1\n";

std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // FNV-1a
  return mixed(hash);
}

void append(std::string& out, std::uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

class JournalRunner final : public TaskRunner {
 public:
  JournalRunner(TaskRunner& inner, const std::filesystem::path& path, const std::string& question)
      : inner_(inner), path_(path.string()) {
    std::string text;
    if (std::ifstream in(path, std::ios::binary); in) text.assign(std::istreambuf_iterator<char>(in), {});
    file_ = open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file_ < 0) refuse("cannot be written", "check the folder and its permissions");
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) refuse("is in use by another search", "give this one a file of its own");
    std::string head(magic);
    append(head, checksum(question));
    if (text.size() < head.size() && head.starts_with(text)) {
      text = head;  // new, or killed while it was begun
      write_at(0, head);
    }
    if (!text.starts_with(head))
      refuse(text.starts_with(magic) ? "is the journal of another question" : "is no journal",
             "give another file, or remove this one");
    end_ = read_records(text, head.size());
    if (ftruncate(file_, static_cast<off_t>(end_)) != 0) refuse("cannot be written", "check the disk");
  }
  ~JournalRunner() override { close(file_); }

  std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) override {
    std::vector<std::string> results(tasks.size()), open;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (const auto known = known_.find(tasks[i]); known != known_.end()) {
        results[i] = known->second;
        if (done) done(i, results[i]);
      } else {
        open.push_back(tasks[i]);
        places.push_back(i);
      }
    }
    if (open.empty()) return results;
    const std::vector<std::string> made = inner_.run(open, [&](std::size_t task, const std::string& result) {
      remember(open[task], result);
      if (done) done(places[task], result);
    });
    for (std::size_t i = 0; i < made.size(); ++i) results[places[i]] = made[i];
    return results;
  }

 private:
  [[noreturn]] void refuse(std::string message, std::string hint) const {
    throw InputError(Problem{.file = path_, .message = std::move(message), .hint = std::move(hint)});
  }

  // Sizes of task and result, both, and a checksum of all that.
  std::size_t read_records(const std::string& text, std::size_t at) {
    for (;;) {
      std::uint64_t sizes[2], sum = 0;
      if (text.size() - at < sizeof sizes + sizeof sum) return at;
      std::memcpy(sizes, text.data() + at, sizeof sizes);
      const std::uint64_t left = text.size() - at - sizeof sizes - sizeof sum;
      if (sizes[0] > left || sizes[1] > left - sizes[0]) return at;
      const std::size_t body = sizeof sizes + sizes[0] + sizes[1];
      std::memcpy(&sum, text.data() + at + body, sizeof sum);
      if (sum != checksum(std::string_view(text).substr(at, body))) return at;
      known_.emplace(text.substr(at + sizeof sizes, sizes[0]), text.substr(at + sizeof sizes + sizes[0], sizes[1]));
      at += body + sizeof sum;
    }
  }

  void remember(const std::string& task, const std::string& result) {
    std::string record;
    append(record, task.size());
    append(record, result.size());
    record += task;
    record += result;
    append(record, checksum(record));
    write_at(end_, record);
    end_ += record.size();
  }

  void write_at(std::size_t place, const std::string& text) const {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(place + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error(fmt::format("{}: {}", path_, std::strerror(errno)));
      done += static_cast<std::size_t>(n);
    }
  }

  TaskRunner& inner_;
  std::string path_;
  int file_ = -1;
  std::size_t end_ = 0;
  std::unordered_map<std::string, std::string> known_;
};

}  // namespace

std::unique_ptr<TaskRunner> journal_runner(TaskRunner& inner, const std::filesystem::path& file,
                                           const std::string& question) {
  return std::make_unique<JournalRunner>(inner, file, question);
}

}  // namespace tidemark::scenarios
