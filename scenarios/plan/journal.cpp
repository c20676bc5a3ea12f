#include "scenarios/plan/journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "sim/base/hash.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::string_view magic = "tidemark journal 4\n", any_magic = "tidemark journal ";
// A record of the largest searches holds some hundred survivors or points of a front, of 40 bytes each.
constexpr std::uint64_t largest_record = 64 << 20;

std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // FNV-1a
  return mixed(hash);
}

void append(std::string& out, std::uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
std::uint64_t number_at(std::string_view text, std::size_t at) {
  std::uint64_t number = 0;
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

// The program, what was asked, and for each file its name and what it said, as checksums of one size each.
std::string head_of(const Question& question) {
  std::string head(magic);
  append(head, checksum(question.program));
  append(head, checksum(question.text));
  append(head, question.files.size());
  for (const auto& [name, text] : question.files) {
    append(head, checksum(name));
    append(head, checksum(text));
  }
  return head;
}

// The first of the question's files that said something else when a journal with that head was begun, if nothing else
// is another question.
const std::string* changed_file(const Question& question, const std::string& head, std::string_view its) {
  const std::size_t files = magic.size() + 3 * sizeof(std::uint64_t);
  if (its.size() < head.size() || its.substr(0, files) != std::string_view(head).substr(0, files)) return nullptr;
  const std::string* changed = nullptr;
  std::size_t at = files;
  for (const auto& [name, text] : question.files) {
    if (number_at(its, at) != checksum(name)) return nullptr;
    if (changed == nullptr && number_at(its, at + sizeof(std::uint64_t)) != checksum(text)) changed = &name;
    at += 2 * sizeof(std::uint64_t);
  }
  return changed;
}

bool is_of_program(const Question& question, std::string_view head) {
  return head.size() >= magic.size() + sizeof(std::uint64_t) &&
         number_at(head, magic.size()) == checksum(question.program);
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class JournalRunner final : public TaskRunner {
 public:
  JournalRunner(TaskRunner& inner, const std::filesystem::path& path, const Question& question)
      : inner_(inner), path_(path.string()) {
    struct stat its {};
    if (stat(path_.c_str(), &its) == 0) refuse_unless_regular(its);
    file_ = open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (file_ < 0)
      refuse(fmt::format("cannot be written: {}", std::strerror(errno)), "check the folder and its permissions");
    try {
      begin(question);
    } catch (...) {
      close(file_);
      throw;
    }
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
  [[noreturn]] void fail() const { throw std::system_error(errno, std::generic_category(), path_); }

  void refuse_unless_regular(const struct stat& its) const {
    if (!S_ISREG(its.st_mode))
      refuse(fmt::format("is {}, and a journal is a file", kind_of(its.st_mode)),
             "give the name of a new file, or of the journal that was begun");
  }

  void begin(const Question& question) {
    struct stat its {};
    if (fstat(file_, &its) != 0) fail();
    refuse_unless_regular(its);  // the name may be another file's by now
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) refuse("is in use by another search", "give this one a file of its own");
    if (fstat(file_, &its) != 0) fail();  // as whoever had it left it
    const auto size = static_cast<std::uint64_t>(its.st_size);
    const std::string head = head_of(question), there = read_at(0, std::min<std::uint64_t>(size, head.size()));
    if (there == head) {
      end_ = read_records(head.size(), size);
    } else if (size < head.size() && head.starts_with(there)) {
      write_at(0, head);  // new, or killed while it was begun
      end_ = head.size();
    } else if (const std::string* changed = changed_file(question, head, there)) {
      refuse(fmt::format("was begun with another {}", *changed),
             "give another file, remove this one, or restore what the search began with");
    } else {
      const std::string_view what = there.starts_with(magic) && is_of_program(question, there)
                                        ? "is the journal of another search"
                                    : there.starts_with(any_magic) ? "is the journal of another build of Tidemark"
                                                                   : "is not a journal";
      refuse(std::string(what), "give another file, or remove this one");
    }
    if (ftruncate(file_, static_cast<off_t>(end_)) != 0) fail();
  }

  // Sizes of task and result, both, and a checksum of all that; up to the first that is not whole.
  std::size_t read_records(std::size_t at, std::uint64_t size) {
    for (;;) {
      constexpr std::size_t numbers = 2 * sizeof(std::uint64_t), sum = sizeof(std::uint64_t);
      if (size - at < numbers + sum) return at;
      const std::uint64_t left = std::min(size - at - numbers - sum, largest_record);
      const std::string sizes = read_at(at, numbers);
      if (sizes.size() < numbers) return at;
      const std::uint64_t task = number_at(sizes, 0), result = number_at(sizes, sizeof(std::uint64_t));
      if (task > left || result > left - task) return at;
      const std::string record = read_at(at, numbers + task + result + sum);
      if (record.size() < numbers + task + result + sum) return at;
      const std::string_view body = std::string_view(record).substr(0, record.size() - sum);
      if (number_at(record, body.size()) != checksum(body)) return at;
      known_.emplace(body.substr(numbers, task), body.substr(numbers + task));
      at += record.size();
    }
  }

  // Less at the file's end.
  [[nodiscard]] std::string read_at(std::size_t place, std::uint64_t size) const {
    std::string text(size, '\0');
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = pread(file_, text.data() + done, text.size() - done, static_cast<off_t>(place + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    text.resize(done);
    return text;
  }

  void remember(const std::string& task, const std::string& result) {
    if (failed_) return;
    std::string record;
    append(record, task.size());
    append(record, result.size());
    record += task;
    record += result;
    append(record, checksum(record));
    write_at(end_, record);
    end_ += record.size();
  }

  void write_at(std::size_t place, const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(place + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int error = n < 0 ? errno : ENOSPC;
        failed_ = true;
        // What was written of it goes. Should that fail too, its checksum tells.
        [[maybe_unused]] const int cut = ftruncate(file_, static_cast<off_t>(place));
        throw std::system_error(
            error, std::generic_category(),
            path_ +
                ": the journal cannot be written (what is in it stays valid: make room and start the "
                "same search again)");
      }
      done += static_cast<std::size_t>(n);
    }
  }

  TaskRunner& inner_;
  std::string path_;
  int file_ = -1;
  std::size_t end_ = 0;
  bool failed_ = false;
  std::unordered_map<std::string, std::string> known_;
};

}  // namespace

Question question_of(const Space& space, const PlanOptions& options, std::string program) {
  Question question{fmt::format("top {}\n", options.top) + toml_text(space.base), {}, std::move(program)};
  for (const Axis& axis : space.axes)
    for (const AxisValue& value : axis.values) {
      question.text += axis.name + '\n';
      for (const AxisValue::Setting& setting : value.settings)
        question.text += fmt::format("  {} = {}\n", fmt::join(setting.key, "."), text(setting.value));
    }
  for (const auto& [name, file] : space.files.texts) question.files.emplace(name, file.text);
  for (const auto& [name, cluster] : space.files.clusters)
    if (const Calibration* its = cluster.calibration.get())
      question.files.emplace(fmt::format("{}, calibration of {}", its->name, name), its->text);
  return question;
}

std::unique_ptr<TaskRunner> journal_runner(TaskRunner& inner, const std::filesystem::path& file,
                                           const Question& question) {
  return std::make_unique<JournalRunner>(inner, file, question);
}

}  // namespace tidemark::scenarios
