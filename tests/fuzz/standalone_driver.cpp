// Runs a fuzz target where clang's libFuzzer is not there: first every file of the corpus, then mutations of them, the
// same ones on every run. It knows no coverage, so it finds less than libFuzzer; it finds the same thing every time.
//
//   name_fuzz [-runs=N] [-seed=N] [-max_len=N] [-max_total_time=SECONDS] [-timeout=SECONDS] FILE_OR_FOLDER...
//
// An input that crashes the target, or takes longer than the timeout, is left in the current folder as crash-NUMBER; to
// see it again, name it as the only FILE with -runs=0.

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// In the runtime of the sanitizers; absent without them.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());
// For UBSan, which has no such callback: ending through SIGABRT lets the input be kept all the same.
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1:abort_on_error=1"; }

namespace {

using Input = std::string;

// What a signal handler needs and cannot be handed: the input being tried.
const Input* current = nullptr;
long long current_number = 0;

void keep_current_input() {
  if (current == nullptr) return;
  std::array<char, 40> name{"crash-"};
  *std::to_chars(name.data() + 6, name.data() + name.size() - 1, current_number).ptr = '\0';
  const int file = open(name.data(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  const bool written = write(file, current->data(), current->size()) == static_cast<ssize_t>(current->size());
  close(file);
  const std::string_view words = written ? "\nthe input lies in " : "\nthe input could not be kept in ";
  for (const std::string_view part : {words, std::string_view(name.data()), std::string_view("\n")}) {
    if (write(STDERR_FILENO, part.data(), part.size()) < 0) return;
  }
  current = nullptr;
}

void on_signal(int signal) {
  if (signal == SIGALRM) {
    constexpr std::string_view words = "\ntimeout: one input took too long\n";
    if (write(STDERR_FILENO, words.data(), words.size()) < 0) _exit(1);
  }
  keep_current_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// What readers trip over: ends of the number ranges, lone brackets and quotes, text that is not UTF-8.
// clang-format off
constexpr std::string_view edges[] = {
    "0", "-1", "2147483648", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e308", "1e999", "nan",
    "inf", "0x7f", "true", "null", "\"\"", "\"", "[", "]", "{", "}", "=", "\n", "#", ",", "\xff\xff\xff\xff", "\xc3\x28"};
// clang-format on

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, std::uint64_t seed, std::size_t max_length)
      : corpus_(corpus), random_(seed), max_length_(max_length) {
    for (const Input& input : corpus) collect_words(input);
  }

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (std::size_t left = 1 + below(6); left > 0; --left) mutate(input);
    if (input.size() > max_length_) input.resize(max_length_);
    return input;
  }

 private:
  // Not a std distribution: those differ from one standard library to the next.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }
  char any_byte() { return static_cast<char>(below(256)); }

  // Names, numbers and quoted texts of the corpus: swapping those keeps more of the grammar than flipping bits does.
  void collect_words(const Input& input) {
    const auto in_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
             c == '-';
    };
    for (auto at = input.begin(); at != input.end();) {
      const auto begin = std::find_if(at, input.end(), in_word);
      at = std::find_if_not(begin, input.end(), in_word);
      if (at - begin > 1) words_.emplace_back(begin, at);
    }
    std::sort(words_.begin(), words_.end());
    words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
  }

  void mutate(Input& input) {
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = std::min(input.size() - at, 1 + below(std::size_t{1} << below(10)));
    switch (below(10)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < input.size()) input[at] = any_byte();
        break;
      case 2:
        input.insert(at, 1, any_byte());
        break;
      case 3:
        input.erase(at, length);
        break;
      case 4:
        input.insert(below(input.size() + 1), input.substr(at, length));
        break;
      case 5:
        input.insert(at, edges[below(std::size(edges))]);
        break;
      case 6:
        input.replace(at, length, edges[below(std::size(edges))]);
        break;
      case 7: {
        const Input& other = corpus_[below(corpus_.size())];
        const std::size_t from = below(other.size() + 1);
        const std::string piece = other.substr(from, 1 + below(256));
        input.replace(at, below(2) == 0 ? length : std::string::npos, piece);
        break;
      }
      case 8:
        swap_word(input, at);
        break;
      default:
        change_digits(input, at);
        break;
    }
  }

  void swap_word(Input& input, std::size_t at) {
    if (words_.empty()) return;
    const std::string& found = words_[below(words_.size())];
    const std::size_t place = input.find(found, at);
    if (place != Input::npos) input.replace(place, found.size(), words_[below(words_.size())]);
  }

  void change_digits(Input& input, std::size_t at) {
    const std::size_t begin = input.find_first_of("0123456789", at);
    if (begin == Input::npos) return;
    const std::size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
    input.replace(begin, end - begin, std::to_string(random_() >> below(64)));
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
  std::size_t max_length_;
  std::vector<std::string> words_;
};

struct Settings {
  long long runs = 20'000;
  unsigned long long seed = 1;
  std::size_t max_length = 65'536;
  long long max_total_time = 60;
  unsigned timeout = 20;
  std::vector<std::filesystem::path> paths;
};

template <class Number>
bool take(std::string_view argument, std::string_view name, Number& value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  const char* end = argument.data() + argument.size();
  if (const auto [rest, error] = std::from_chars(argument.data(), end, value); error != std::errc{} || rest != end) {
    std::fprintf(stderr, "not a number: %.*s\n", static_cast<int>(argument.size()), argument.data());
    std::exit(2);
  }
  return true;
}

Settings settings_of(int count, char** arguments) {
  Settings s;
  for (int i = 1; i < count; ++i) {
    const std::string_view a = arguments[i];
    if (take(a, "-runs=", s.runs) || take(a, "-seed=", s.seed) || take(a, "-max_len=", s.max_length) ||
        take(a, "-max_total_time=", s.max_total_time) || take(a, "-timeout=", s.timeout)) {
      continue;
    }
    if (a.starts_with('-') || !std::filesystem::exists(a)) {
      std::fprintf(stderr, "neither an option nor a file: %s\n", arguments[i]);
      std::exit(2);
    }
    s.paths.emplace_back(a);
  }
  return s;
}

Input contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<Input> read_corpus(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());  // folders list their files in no order
  std::vector<Input> corpus;
  for (const std::filesystem::path& file : files) corpus.push_back(contents(file));
  return corpus;
}

void run(const Input& input, long long number, unsigned timeout) {
  // An own block of exactly this size, so that the sanitizers see a read past its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  current = &input;
  current_number = number;
  alarm(timeout);
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  alarm(0);
  current = nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  const Settings settings = settings_of(count, arguments);
  const std::vector<Input> corpus = read_corpus(settings.paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus: name files or folders to start from\n");
    return 2;
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(keep_current_input);
  } else {
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) std::signal(signal, on_signal);
  }
  for (const int signal : {SIGABRT, SIGALRM}) std::signal(signal, on_signal);

  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::steady_clock::now() - begin; };
  long long number = 0;
  for (const Input& input : corpus) run(input, number++, settings.timeout);

  Mutator mutator(corpus, settings.seed, settings.max_length);
  long long mutations = 0;
  while (mutations < settings.runs && elapsed() < std::chrono::seconds(settings.max_total_time)) {
    run(mutator.next(), number++, settings.timeout);
    ++mutations;
  }
  std::printf("%zu files and %lld of %lld mutations, seed %llu, %.1f s: nothing found\n", corpus.size(), mutations,
              settings.runs, settings.seed, std::chrono::duration<double>(elapsed()).count());
  return 0;
}
