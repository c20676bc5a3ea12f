#include "scenarios/formats/output_file.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <streambuf>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

namespace fs = std::filesystem;

/// What stands in the way is not the name that was given: another one would meet it too.
bool fault_of_machine(int error) {
  constexpr std::array faults{ENOSPC, EDQUOT, EIO, EFBIG, EMFILE, ENFILE, ENOMEM, EPIPE};
  return std::find(faults.begin(), faults.end(), error) != faults.end();
}

std::string words(int error) { return std::generic_category().message(error); }

std::string hint_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions, or name another place";
    case ENOENT:
    case ENOTDIR:
      return "create the folder first, or name another";
    case EISDIR:
      return "name a file in it";
    default:
      return "name another file";
  }
}

/// `path` as it was given; an errno says why it cannot be written.
[[noreturn]] void refuse(const fs::path& path, int error, const std::string& what = {}) {
  const std::string why = "cannot be written: " + (what.empty() ? words(error) : what);
  if (fault_of_machine(error))
    throw std::system_error(error, std::generic_category(), path.string() + ": cannot be written");
  throw InputError(Problem{.file = path.string(), .message = why, .hint = hint_for(error)});
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const { return number_; }
  /// Some file systems tell of a full disk only here.
  [[nodiscard]] int close() { return ::close(std::exchange(number_, -1)) == 0 ? 0 : errno; }

 private:
  int number_;
};

/// A stream's bytes to a descriptor; the first errno is kept.
class DescriptorBuffer final : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) : descriptor_(descriptor) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }
  [[nodiscard]] int error() const { return error_; }

 protected:
  int_type overflow(int_type next) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(next, traits_type::eof())) sputc(traits_type::to_char_type(next));
    return traits_type::not_eof(next);
  }
  int sync() override {
    const char* at = pbase();
    while (error_ == 0 && at < pptr()) {
      const ssize_t written = ::write(descriptor_, at, static_cast<std::size_t>(pptr() - at));
      if (written > 0) at += written;
      if (written < 0 && errno != EINTR) error_ = errno;
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return error_ == 0 ? 0 : -1;
  }

 private:
  int descriptor_;
  int error_ = 0;
  std::array<char, 1 << 16> bytes_{};
};

/// Where a path leads.
struct Destination {
  fs::path place;                    ///< of the file itself: links followed
  std::optional<struct stat> there;  ///< nothing where it has yet to be made
  [[nodiscard]] bool regular() const { return !there || S_ISREG(there->st_mode); }
};

/// Follows links, also to what is not there yet. Folders, disks and sockets are refused.
Destination destination_of(const fs::path& path) {
  constexpr int most_links = 40;  // as Linux follows (MAXSYMLINKS)
  struct stat found {};
  if (path.empty()) refuse(path, EINVAL, "the name is empty");
  if (::stat(path.c_str(), &found) == 0) {
    if (S_ISDIR(found.st_mode)) refuse(path, EISDIR, "it is a folder");
    if (S_ISBLK(found.st_mode)) refuse(path, EINVAL, "it is a disk");
    if (S_ISSOCK(found.st_mode)) refuse(path, EINVAL, "it is a socket");
    std::error_code nameless;
    const fs::path place = S_ISREG(found.st_mode) ? fs::canonical(path, nameless) : path;
    return {nameless ? path : place, found};
  }
  if (errno != ENOENT) refuse(path, errno);
  fs::path place = path;
  std::error_code none;
  for (int links = 0; fs::is_symlink(fs::symlink_status(place, none)); ++links) {
    if (links == most_links) refuse(path, ELOOP);
    const fs::path target = fs::read_symlink(place, none);
    place = target.is_absolute() ? target : place.parent_path() / target;
  }
  if (place.filename().empty() || place.filename() == "." || place.filename() == "..")
    refuse(path, ENOENT, fmt::format("there is no folder {}", path.string()));
  return {place, std::nullopt};
}

fs::path folder_of(const fs::path& place) { return place.has_parent_path() ? place.parent_path() : fs::path("."); }

/// The name of a file that is being written, where a signal handler finds it. There is nothing to allocate and no lock.
struct UnfinishedName {
  std::atomic<bool> taken{false}, there{false};
  std::array<char, PATH_MAX> path{};
};
// Files of one process that are written at the same time. One that finds no place is only not removed by a signal.
std::array<UnfinishedName, 4> unfinished_names;

class OnSignal {
 public:
  OnSignal() = default;
  /// Before the file is made: a signal may come at any time.
  void remove(const fs::path& path) {
    if (path.native().size() >= PATH_MAX) return;
    for (UnfinishedName& name : unfinished_names) {
      if (name.taken.exchange(true)) continue;
      *std::copy(path.native().begin(), path.native().end(), name.path.begin()) = '\0';
      name.there = true;
      name_ = &name;
      return;
    }
  }
  OnSignal(const OnSignal&) = delete;
  OnSignal& operator=(const OnSignal&) = delete;
  ~OnSignal() { keep(); }
  void keep() {
    if (name_ == nullptr) return;
    name_->there = false;
    std::exchange(name_, nullptr)->taken = false;
  }

 private:
  UnfinishedName* name_ = nullptr;
};

/// An unfinished file beside `place`; removed unless it is moved there.
class Unfinished {
 public:
  Unfinished(const fs::path& requested, const Destination& to)
      : requested_(requested), to_(to), descriptor_(opened()) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  [[nodiscard]] int number() const { return descriptor_.number(); }

  void move_to_place() {
    if (to_.there) {
      // Whoever may not give a file away keeps it; a change of owner takes set-user-id bits, so modes come last.
      [[maybe_unused]] const int kept = ::fchown(descriptor_.number(), to_.there->st_uid, to_.there->st_gid);
      if (::fchmod(descriptor_.number(), to_.there->st_mode & 07777U) != 0) refuse(requested_, errno);
    }
    if (const int error = descriptor_.close(); error != 0) refuse(requested_, error);
    if (::rename(name_.c_str(), to_.place.c_str()) != 0) refuse(requested_, errno);
    on_signal_.keep();
    name_.clear();
  }

 private:
  // A name of its own: the longest names leave no room for an ending, and what has that ending may be somebody's.
  int opened() {
    constexpr int most_tries = 1000;
    const fs::path folder = folder_of(to_.place);
    const mode_t mode = to_.there ? to_.there->st_mode & 0666U : 0666U;  // who may not read it may not meanwhile
    for (int n = 0; n < most_tries; ++n) {
      name_ = folder / fmt::format(".tidemark-{}-{}.part", ::getpid(), n);
      on_signal_.remove(name_);
      const int file = ::open(name_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
      if (file >= 0) return file;
      const int error = errno;
      on_signal_.keep();
      if (error == EEXIST) continue;
      name_.clear();
      struct stat its {};
      if (::stat(folder.c_str(), &its) != 0)
        refuse(requested_, ENOENT, fmt::format("there is no folder {}", folder.string()));
      if (!S_ISDIR(its.st_mode)) refuse(requested_, ENOTDIR, fmt::format("{} is not a folder", folder.string()));
      refuse(requested_, error, fmt::format("{} takes no file: {}", folder.string(), words(error)));
    }
    name_.clear();
    refuse(requested_, EEXIST);
  }

  const fs::path& requested_;
  const Destination& to_;
  fs::path name_;
  OnSignal on_signal_;
  Descriptor descriptor_;
};

void write_through(const fs::path& path, int descriptor, const std::function<void(std::ostream&)>& write) {
  DescriptorBuffer buffer(descriptor);
  std::ostream stream(&buffer);
  write(stream);
  stream.flush();
  if (buffer.error() != 0) refuse(path, buffer.error());
}

/// Tries what writing would do, short of doing it.
void probe(const fs::path& path, const Destination& to) {
  constexpr std::size_t longest_name = 255;  // NAME_MAX: the file that is tried has another name
  if (to.there && ::access(path.c_str(), W_OK) != 0) refuse(path, errno);
  if (to.place.filename().native().size() > longest_name) refuse(path, ENAMETOOLONG);
  if (to.regular()) Unfinished(path, to);
}

bool one_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// Two paths lead to one file. Devices take what several have to say.
bool one_file(const Destination& a, const Destination& b) {
  if (a.there.has_value() != b.there.has_value()) return false;
  if (a.there) return one_file(*a.there, *b.there) && !S_ISCHR(a.there->st_mode);
  struct stat of_a {
  }, of_b{};
  return a.place.filename() == b.place.filename() && ::stat(folder_of(a.place).c_str(), &of_a) == 0 &&
         ::stat(folder_of(b.place).c_str(), &of_b) == 0 && one_file(of_a, of_b);
}

void refuse_standard_streams(const Output& output, const Destination& to) {
  if (!to.there || !S_ISREG(to.there->st_mode)) return;
  for (const auto& [number, name] :
       {std::pair(STDOUT_FILENO, "standard output"), std::pair(STDERR_FILENO, "standard error")}) {
    struct stat its {};
    if (::fstat(number, &its) == 0 && one_file(its, *to.there))
      throw InputError(Problem{.file = output.path,
                               .message = fmt::format("{} would replace the file that {} goes to", output.option, name),
                               .hint = "name another file"});
  }
}

}  // namespace

void check_outputs(const std::vector<Output>& outputs, const std::vector<fs::path>& inputs) {
  std::vector<std::pair<const Output*, Destination>> seen;
  for (const Output& output : outputs) {
    if (output.path.empty()) continue;
    if (output.path == "-" && output.option == "--json") continue;
    if (output.path == "-")
      throw InputError(Problem{.file = output.option, .message = "goes to a file", .hint = "give it a name"});
    const Destination to = destination_of(output.path);
    for (const fs::path& input : inputs) {
      struct stat its {};
      if (to.there && ::stat(input.c_str(), &its) == 0 && one_file(its, *to.there) && !S_ISCHR(its.st_mode))
        throw InputError(
            Problem{.file = output.path,
                    .message = fmt::format("{} would overwrite {}, which is read", output.option, input.string()),
                    .hint = "name another file"});
    }
    for (const auto& [other, its] : seen)
      if (one_file(to, its))
        throw InputError(Problem{.file = output.path,
                                 .message = fmt::format("{} and {} name one file", other->option, output.option),
                                 .hint = "give each its own"});
    refuse_standard_streams(output, to);
    probe(output.path, to);
    seen.emplace_back(&output, to);
  }
}

void check_output_folder(const Output& folder) {
  if (folder.path.empty()) return;
  fs::path there = fs::absolute(folder.path).lexically_normal();
  std::error_code none;
  while (!fs::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, none)) refuse(folder.path, ENOTDIR, fmt::format("{} is not a folder", there.string()));
  probe(folder.path, {there / "file", std::nullopt});
}

void remove_unfinished_files() noexcept {
  for (const UnfinishedName& name : unfinished_names)
    if (name.there) ::unlink(name.path.data());
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const Destination to = destination_of(path);
  if (to.regular()) {
    Unfinished file(path, to);
    write_through(path, file.number(), write);
    return file.move_to_place();
  }
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (file.number() < 0) refuse(path, errno);
  write_through(path, file.number(), write);
  if (const int error = file.close(); error != 0) refuse(path, error);
}

}  // namespace tidemark::scenarios
