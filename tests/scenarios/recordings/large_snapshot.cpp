// Large snapshots take little memory: what `tidemark replay FILE` holds at most, against the size of the file.
//
//   large_snapshot TIDEMARK SYNTHESIZE_SNAPSHOT MEGABYTES
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Ran {
  int status = 0;
  long peak_kib = 0;
};

Ran run(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv(argv[0], argv.data());
    _exit(127);
  }
  rusage usage{};
  Ran ran;
  wait4(child, &ran.status, 0, &usage);
  ran.peak_kib = usage.ru_maxrss;
  return ran;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("large-snapshot-" + std::to_string(getpid()))).string();
  const Ran made = run({argv[2], path, argv[3]});
  const Ran replayed = run({argv[1], "replay", path, "--alloc-conf", "expandable_segments:True"});
  const auto file_kib = static_cast<long>(std::filesystem::file_size(path) / 1024);
  std::filesystem::remove(path);
  std::printf("%ld KiB of snapshot, %ld KiB of memory\n", file_kib, replayed.peak_kib);
  // 1 GB in less than 1 GiB, and what a process takes anyhow.
  const bool small = replayed.peak_kib < file_kib + file_kib / 14 + 40'000;
  return made.status == 0 && replayed.status == 0 && small ? 0 : 1;
}
