#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/cli/serve/detail/page_job.hpp"
#include "scenarios/formats/shell_quoted.hpp"

namespace tidemark::cli {
namespace {

class Line {
 public:
  explicit Line(std::string begin) : text_(std::move(begin)) {}
  void add(const std::string& word) { text_ += ' ' + scenarios::shell_quoted(word); }
  void add(const char* option, const std::string& value) {
    if (!value.empty()) text_ += fmt::format(" {} {}", option, scenarios::shell_quoted(value));
  }
  void add(const char* option, const std::optional<std::int64_t>& value) {
    if (value) text_ += fmt::format(" {} {}", option, *value);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string command_of(const JobWords& words, const std::string& verb) {
  Line line("tidemark " + verb);
  if (!words.file.empty()) line.add(words.file);
  const LaunchOptions& job = words.launch;
  line.add("--model", job.model);
  line.add("--cluster", job.cluster);
  line.add("--gpus", job.gpus);
  line.add("--sequence", job.sequence);
  line.add("--micro-batch", job.micro_batch);
  line.add("--global-batch", job.global_batch);
  const LayoutOptions& layout = words.layout;
  if (layout.runtime != LayoutOptions{}.runtime) line.add("--runtime", layout.runtime);
  line.add("--tensor", layout.tensor);
  if (layout.sequence_parallel) line.add("--sequence-parallel");
  line.add("--context", layout.context);
  line.add("--expert", layout.expert);
  line.add("--pipeline", layout.pipeline);
  line.add("--chunks", layout.chunks);
  line.add("--sharding", layout.sharding);
  line.add("--precision", layout.precision);
  line.add("--recompute", layout.recompute);
  for (const std::string& key : words.beside) line.add(key);
  return line.text();
}

}  // namespace tidemark::cli
