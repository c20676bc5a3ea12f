#include "scenarios/convert/shell/launch_line.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/draft.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

std::string base(const std::string& word) { return word.substr(word.rfind('/') + 1); }

/// Modules that start others, and those that are a training themselves.
bool launches(std::string_view name) {
  constexpr std::array<std::string_view, 8> launchers{
      "torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "accelerate", "srun", "mpirun",
      "mpiexec"};
  return std::ranges::find(launchers, name) != launchers.end();
}

bool is_flag(const ShellWord& word) {
  if (begins_with_other_dash(word.text)) return true;
  if (word.text.size() < 2 || word.text[0] != '-') return false;
  return std::isdigit(static_cast<unsigned char>(word.text[1])) == 0 && word.text[1] != '.';
}

/// Whether it stands for arguments, and not for one value: an array, what a file holds, or what its name says.
bool is_arguments(const ShellWord& word) {
  if (!word.is_any_words()) return false;
  const std::string its = word.unknown.substr(0, word.unknown.find(" ("));  // without why it is not known
  if (its.find("[@]") != std::string::npos || its.find("[*]") != std::string::npos) return true;
  if (its.starts_with("$@") || its.starts_with("$*")) return true;
  if (word.unknown.starts_with("$(cat ") || its.starts_with("$(<")) return true;
  std::string name = its;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(std::array{"arg", "opt", "flag", "param", "extra"}, [&](const char* part) {
    return !name.starts_with("$(") && name.find(part) != std::string::npos;
  });
}

/// Commands of tools that train: "megatron sft", "axolotl train".
bool trains_by_command(std::string_view tool, std::string_view command) {
  if (tool == "swift" && command == "rlhf") return true;
  if (tool == "megatron" || tool == "swift") return command == "sft" || command == "pt";
  constexpr auto of_trl = std::to_array<std::string_view>({"sft", "dpo", "kto", "orpo", "cpo", "reward"});
  if (tool == "trl") return std::ranges::find(of_trl, command) != of_trl.end();
  return (tool == "llamafactory-cli" || tool == "lmf" || tool == "axolotl") && command == "train";
}

/// Flags of launchers that take no value.
bool alone(std::string_view flag) {
  constexpr std::array<std::string_view, 20> flags{
      "standalone",       "no-python",         "module",          "m",         "use-env",       "multi-gpu",
      "use-deepspeed",    "use-fsdp",          "use-megatron-lm", "debug",     "same-network",  "l",
      "oversubscribe",    "allow-run-as-root", "bind-to-none",    "exclusive", "no-local-rank", "run-path",
      "kill-on-bad-exit", "tag-output"};
  return std::ranges::find(flags, flag) != flags.end();
}

std::string flag_name(const ShellWord& word) {
  std::string name = word.text.substr(word.text.starts_with("--") ? 2 : 1);
  name = name.substr(0, name.find('='));
  std::ranges::replace(name, '_', '-');
  return name;
}

class Line {
 public:
  Line(const ShellCommand& command, std::string file)
      : words_(command.words), file_(std::move(file)), environment_(*command.environment) {
    line_.environment = command.environment;
  }

  std::optional<LaunchLine> read() {
    constexpr auto prints = std::to_array<std::string_view>({"echo", "printf", "cat", "export", "tee"});
    if (!words_.empty() && std::ranges::find(prints, std::string_view(words_.front().text)) != prints.end())
      return std::nullopt;  // which may be what is started next
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::string name = base(words_[i].text);
      if (name.ends_with(".py") ||
          (i > 0 && (words_[i - 1].text == "-m" || words_[i - 1].text == "--module") && !launches(words_[i].text))) {
        if (i == 0 && !launched_) launched_ = true;
        line_.program = name.ends_with(".py") ? name : words_[i].text;
        line_.path = words_[i].text;
        line_.place = words_[i].place;
        line_.arguments.assign(words_.begin() + static_cast<std::ptrdiff_t>(i) + 1, words_.end());
        if (!launched_) return std::nullopt;
        count_devices();
        call_by_command();
        return line_;
      }
      if (i + 1 < words_.size() && trains_by_command(name, words_[i + 1].text)) {
        line_.program = name + " " + words_[i + 1].text;
        line_.path = line_.program;
        line_.place = words_[i].place;
        line_.arguments.assign(words_.begin() + static_cast<std::ptrdiff_t>(i) + 2, words_.end());
        count_by_variables(name);
        return line_;
      }
      if (launches(name) || name == "python" || name == "python3" || name.starts_with("python3.")) {
        launched_ = true;
        if (launches(name)) line_.launcher = name;
        if (name == "accelerate" && i + 1 < words_.size() && words_[i + 1].text == "launch") ++i;
        continue;
      }
      if (line_.launcher.empty()) continue;
      if (begins_with_other_dash(words_[i].text)) {
        line_.unread.push_back(words_[i]);
        continue;
      }
      if (words_[i].is_any_words()) {
        line_.unread.push_back(words_[i]);
        beginning_ = beginning_.value_or(i);
      }
      if (is_flag(words_[i])) i = launcher_flag(i);
    }
    return hidden_program();
  }

 private:
  // The files that ms-swift's commands start (swift/cli/main.py).
  void call_by_command() {
    struct Started {
      std::string_view path, command;
    };
    constexpr auto files = std::to_array<Started>({{"swift/cli/_megatron/sft.py", "megatron sft"},
                                                   {"swift/cli/_megatron/pt.py", "megatron pt"},
                                                   {"swift/cli/sft.py", "swift sft"},
                                                   {"swift/cli/rlhf.py", "swift rlhf"},
                                                   {"swift/cli/pt.py", "swift pt"}});
    const auto* const its =
        std::ranges::find_if(files, [&](const Started& one) { return line_.path.ends_with(one.path); });
    if (its != files.end()) line_.program = line_.path = std::string(its->command);
  }

  // The program where only running the script would tell which: torchrun … $SCRIPT --num-layers 32.
  std::optional<LaunchLine> hidden_program() {
    std::size_t i = beginning_.value_or(words_.size());
    while (i < words_.size() && (!words_[i].is_any_words() || is_arguments(words_[i]))) ++i;
    if (i == words_.size()) return std::nullopt;
    const auto same = [&](const ShellWord& word) { return word.unknown == words_[i].unknown; };
    line_.unread.erase(std::ranges::find_if(line_.unread, same), line_.unread.end());
    line_.program = words_[i].unknown;
    line_.place = words_[i].place;
    line_.arguments.assign(words_.begin() + static_cast<std::ptrdiff_t>(i) + 1, words_.end());
    count_devices();
    return line_;
  }

  // ms-swift's and LLaMA-Factory's commands start torchrun with what these variables say; without them LLaMA-Factory,
  // and accelerate beneath axolotl and TRL, start a process on each device that they see, and swift one for all.
  void count_by_variables(const std::string& tool) {
    const auto each = variable("NPROC_PER_NODE"), nodes = variable("NNODES");
    const auto hidden = environment_.find("NNODES");
    const bool by_variables = tool == "megatron" || tool == "swift" || tool == "llamafactory-cli" || tool == "lmf";
    if (by_variables && hidden != environment_.end() && !hidden->second.unknown.empty())
      line_.gpus_problem =
          Problem{.file = file_,
                  .line = line_.place.line,
                  .column = line_.place.column,
                  .message = fmt::format("NNODES: {} is not known without running it", hidden->second.unknown),
                  .hint = hint_of_unknown(hidden->second.unknown) + ", or give --gpus"};
    else if (by_variables && each)
      line_.gpus = *each * nodes.value_or(1);
    else if (tool == "swift" && visible() == 1)
      line_.gpus = 1;
    else if (tool != "megatron" && tool != "swift")
      start_all(line_.program, by_variables ? nodes.value_or(1) : 1);
  }

  // A process on each device that is there, or that the script leaves visible.
  void start_all(const std::string& starter, std::int64_t nodes = 1) {
    if (const auto devices = visible())
      line_.gpus = *devices * nodes;
    else if (nodes == 1)
      line_.starts_all = starter;
  }

  // CUDA_VISIBLE_DEVICES=0,1: two.
  [[nodiscard]] std::optional<std::int64_t> visible() const {
    const auto found = environment_.find("CUDA_VISIBLE_DEVICES");
    if (found == environment_.end() || !found->second.unknown.empty() || found->second.text.empty())
      return std::nullopt;
    const std::string& devices = found->second.text;
    if (devices.find_first_not_of("0123456789,") != std::string::npos) return std::nullopt;
    return std::ranges::count(devices, ',') + 1;
  }

  // Each process takes the device of its number.
  void check_visible_devices() const {
    const bool torchrun = line_.launcher.starts_with("torch");
    if (!torchrun && line_.launcher != "accelerate") return;
    const auto visible_ones = visible();
    const auto each = said({torchrun ? "nproc-per-node" : "num-processes"});
    if (!visible_ones || !each || (!torchrun && said({"num-machines"}).value_or(1) != 1) || *each <= *visible_ones)
      return;
    const Place place = environment_.find("CUDA_VISIBLE_DEVICES")->second.place;
    throw InputError(Problem{file_, place.line, place.column,
                             fmt::format("CUDA_VISIBLE_DEVICES leaves {} device{} visible, and {} starts {} processes",
                                         *visible_ones, *visible_ones == 1 ? "" : "s", line_.launcher, *each),
                             "each process takes a device of its own"});
  }

  // --gpus may say what the script does not.
  void count_devices() {
    line_.visible = visible().value_or(0);
    try {
      if (takes_all_of_a_node()) {
        line_.starts_all = line_.launcher.empty() ? "torchrun" : line_.launcher;
        line_.starts_nodes = said({"nnodes"}).value_or(1);
        if (const auto devices = visible()) line_.gpus = *devices * line_.starts_nodes;
        return;
      }
      line_.gpus = devices();
      if (line_.gpus) line_.each_node = devices_of_node();
      check_visible_devices();
      const bool known = line_.unread.empty() && unknown_.empty();
      const auto none = [&](std::initializer_list<std::string_view> names) {
        return std::ranges::none_of(line_.launcher_flags, [&](const TomlKey& flag) {
          return std::ranges::find(names, std::string_view(flag.name)) != names.end();
        });
      };
      // accelerate/commands/launch.py, deepspeed/launcher/runner.py, without a configuration or a file of hosts.
      if (!line_.gpus && known && line_.launcher == "accelerate" && none({"config-file", "num-machines"}))
        start_all("accelerate launch");
      if (!line_.gpus && known && line_.launcher == "deepspeed" &&
          none({"hostfile", "include", "exclude", "num-nodes", "H", "i", "e"}))
        start_all("deepspeed");
    } catch (const InputError& error) {
      line_.gpus_problem = error.problems().front();
    }
  }

  // torchrun --nproc-per-node gpu, and what asks PyTorch or nvidia-smi how many devices there are.
  [[nodiscard]] bool takes_all_of_a_node() const {
    if (!line_.launcher.starts_with("torch")) return false;
    const auto names = [](const TomlKey& key) { return key.name == "nproc-per-node"; };
    const auto hidden = std::ranges::find_if(unknown_, names);
    if (hidden != unknown_.end()) {
      const std::string& text = std::get<std::string>(hidden->value.value);
      return text.find("device_count()") != std::string::npos || text.find("nvidia-smi") != std::string::npos;
    }
    const auto its = std::ranges::find_if(line_.launcher_flags, names);
    const auto* const word = its == line_.launcher_flags.end() ? nullptr : std::get_if<std::string>(&its->value.value);
    return word != nullptr && (*word == "gpu" || *word == "auto");
  }

  std::size_t launcher_flag(std::size_t i) {
    const ShellWord& word = words_[i];
    const std::size_t sign = word.text.find('=');
    const std::string name = flag_name(word);
    const auto add = [&](const ShellWord& value, const std::string& text) {
      if (value.unknown.empty())
        line_.launcher_flags.push_back({name, word.place, {typed(text), word.place}});
      else
        unknown_.push_back({name, word.place, {value.unknown, word.place}});
    };
    // accelerate's, which say by being there how it trains.
    constexpr auto switches =
        std::to_array<std::string_view>({"multi-gpu", "use-deepspeed", "use-fsdp", "use-megatron-lm"});
    if (sign != std::string::npos) {
      add(word, word.text.substr(sign + 1));
    } else if (line_.launcher == "accelerate" && std::ranges::find(switches, name) != switches.end()) {
      line_.launcher_flags.push_back({name, word.place, {true, word.place}});
    } else if (!alone(name) && i + 1 < words_.size() && !is_flag(words_[i + 1]) && !is_arguments(words_[i + 1])) {
      // Some take no value; a program is none.
      const std::string next = base(words_[i + 1].text);
      if (next.ends_with(".py") || launches(next) || next.starts_with("python")) return i;
      add(words_[i + 1], words_[i + 1].text);
      return i + 1;
    }
    return i;
  }

  [[nodiscard]] std::optional<std::int64_t> said(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto found = std::find_if(line_.launcher_flags.rbegin(), line_.launcher_flags.rend(),
                                      [&](const TomlKey& key) { return key.name == name; });
      if (found == line_.launcher_flags.rend()) {
        const auto hidden = std::ranges::find_if(unknown_, [&](const TomlKey& key) { return key.name == name; });
        if (hidden == unknown_.end()) continue;
        throw InputError(
            Problem{.file = file_,
                    .line = hidden->place.line,
                    .column = hidden->place.column,
                    .message = fmt::format("--{}: {} is not known without running it", name,
                                           std::get<std::string>(hidden->value.value)),
                    .hint = hint_of_unknown(std::get<std::string>(hidden->value.value)) + ", or give --gpus"});
      }
      Content content = found->value.value;
      if (const auto* text = std::get_if<std::string>(&content))  // 1:8 is at least one
        content = typed(text->substr(text->rfind(':') + 1));
      if (const auto* number = std::get_if<std::int64_t>(&content)) return counted(name, *number, found->value.place);
      if (std::holds_alternative<double>(content))  // a whole number that is too large is one, too
        refuse_count(name, scenarios::text(found->value), found->value.place);
      // torch/distributed/run.py determine_local_world_size: all that the node has.
      constexpr std::array<std::string_view, 4> all_there_are{"auto", "cpu", "gpu", "xpu"};
      if (const auto* word = std::get_if<std::string>(&content);
          word != nullptr && std::ranges::find(all_there_are, *word) == all_there_are.end())
        refuse_count(name, *word, found->value.place);
    }
    return std::nullopt;
  }

  [[nodiscard]] std::int64_t counted(std::string_view name, std::int64_t number, Place place) const {
    constexpr std::int64_t most = std::int64_t{1} << 20;  // devices of a scenario
    if (number < 1 || number > most) refuse_count(name, std::to_string(number), place);
    return number;
  }
  [[noreturn]] void refuse_count(std::string_view name, const std::string& number, Place place) const {
    throw InputError(Problem{file_, place.line, place.column,
                             fmt::format("--{}: {} is no number of nodes, processes or devices", name, number),
                             "1 to 1048576 would be"});
  }

  [[nodiscard]] std::optional<std::int64_t> variable(const char* name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || !found->second.unknown.empty()) return std::nullopt;
    const Content content = typed(found->second.text);
    const auto* number = std::get_if<std::int64_t>(&content);
    return number == nullptr ? std::nullopt : std::optional(counted(name, *number, found->second.place));
  }

  [[nodiscard]] std::optional<std::int64_t> devices() const {
    const std::string& by = line_.launcher;
    if (by == "accelerate") return said({"num-processes"});
    if (by == "deepspeed") {
      const auto each = said({"num-gpus"});
      return each ? std::optional(*each * said({"num-nodes"}).value_or(1)) : std::nullopt;
    }
    if (by == "mpirun" || by == "mpiexec") return said({"np", "n"});
    if (by == "srun") {
      if (const auto tasks = said({"ntasks", "n"})) return tasks;
      const auto nodes = said({"nodes", "N"}), each = said({"ntasks-per-node"});
      if (nodes && each) return *nodes * *each;
      return variable("SLURM_NTASKS");
    }
    if (by.empty()) return std::nullopt;
    const auto each = said({"nproc-per-node"});
    if (!each) return std::nullopt;
    return *each * said({"nnodes"}).value_or(1);
  }

  // 0: there is one node, or nothing says how many of its devices it gives.
  [[nodiscard]] std::int64_t devices_of_node() const {
    try {
      return said_of_node();
    } catch (const InputError&) {
      return 0;
    }
  }
  [[nodiscard]] std::int64_t said_of_node() const {
    const std::string& by = line_.launcher;
    if (by == "accelerate") {
      const std::int64_t all = said({"num-processes"}).value_or(0), nodes = said({"num-machines"}).value_or(1);
      return nodes > 1 && all % nodes == 0 ? all / nodes : 0;
    }
    if (by == "deepspeed") return said({"num-nodes"}).value_or(1) > 1 ? said({"num-gpus"}).value_or(0) : 0;
    if (by == "srun") return said({"nodes", "N"}).value_or(1) > 1 ? said({"ntasks-per-node"}).value_or(0) : 0;
    if (!by.starts_with("torch")) return 0;
    return said({"nnodes"}).value_or(1) > 1 ? said({"nproc-per-node"}).value_or(0) : 0;
  }

  const std::vector<ShellWord>& words_;
  std::string file_;
  const ShellEnvironment& environment_;
  LaunchLine line_;
  std::vector<TomlKey> unknown_;
  std::optional<std::size_t> beginning_;  // of what may be the program, or arguments of the launcher
  bool launched_ = false;
};

}  // namespace

std::vector<LaunchLine> launch_lines(const ShellScript& script, const std::string& file) {
  std::vector<LaunchLine> lines;
  for (const ShellCommand& command : script.commands)
    if (std::optional<LaunchLine> line = Line(command, file).read()) {
      line->presumed = command.presumed;
      lines.push_back(*std::move(line));
    }
  if (!lines.empty()) return lines;
  // Arguments alone, as they stand in a paper's appendix.
  for (const ShellCommand& command : script.commands)
    if (!command.words.empty() && command.words.front().text.starts_with("--")) {
      LaunchLine line;
      line.arguments = command.words;
      line.place = command.words.front().place;
      line.environment = command.environment;
      line.presumed = command.presumed;
      lines.push_back(std::move(line));
    }
  return lines;
}

bool may_train(std::string_view word) {
  const std::string name = base(std::string(word));
  if (name == "torchrun" || name == "deepspeed" || name == "accelerate") return true;
  return name.starts_with("torch.distributed.") || (name.ends_with(".py") && name.find("train") != std::string::npos);
}

bool begins_with_other_dash(std::string_view word) {
  constexpr std::array<std::string_view, 7> dashes{"\u2010", "\u2011", "\u2012", "\u2013",
                                                   "\u2014", "\u2015", "\u2212"};
  return std::ranges::any_of(dashes, [&](std::string_view dash) { return word.starts_with(dash); });
}

std::string variable_of(std::string_view unknown) {
  if (unknown.starts_with("$(") || !unknown.starts_with('$')) return {};
  unknown.remove_prefix(unknown.starts_with("${") ? 2 : 1);
  const auto is_of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return {unknown.begin(), std::ranges::find_if_not(unknown, is_of_name)};
}

std::string hint_of_unknown(std::string_view unknown) {
  const std::string name = variable_of(unknown);
  return name.empty() ? "put what it is into the script" : fmt::format("say it with --set {}=VALUE", name);
}

namespace {

// "--tensor-model-parallel-size 2 $MORE": behind a value, a variable that is assigned nowhere stands for arguments.
bool comes_after(const std::vector<ShellWord>& values, std::string_view flag, const ShellWord& next) {
  const bool data = flag.ends_with("data-path") || flag.ends_with("data_path");
  return !data && values.size() == 1 && values.front().unknown.empty() && next.is_any_words() &&
         next.unknown == "$" + variable_of(next.unknown);
}

// "--train-data-path $(echo "${TRAIN_DATA[@]}")": whatever it comes to, it says which data comes.
bool lists_data(std::string_view flag, const ShellWord& value) {
  const bool many = value.unknown.starts_with("$(") || value.unknown.find("[@]}") != std::string::npos;
  return many && (flag.ends_with("data-path") || flag.ends_with("data_path"));
}

// "--train-iters $(cat train_iters.txt)": how long it trains is one number.
bool says_how_long(std::string_view flag, const std::vector<ShellWord>& values, const ShellWord& value) {
  return values.empty() && value.unknown.starts_with("$(") && (flag.ends_with("-iters") || flag.ends_with("-samples"));
}

}  // namespace

std::vector<TomlKey> flags_of(const std::vector<ShellWord>& arguments, std::vector<ShellWord>& unread) {
  std::vector<TomlKey> flags;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ShellWord& word = arguments[i];
    const bool is_one = word.text.starts_with("--") && word.text.size() > 2;
    if (word.is_any_words() || (!is_one && !word.text.empty())) unread.push_back(word);
    if (!is_one) continue;
    const std::size_t sign = word.text.find('=');
    TomlKey flag{word.text.substr(2, sign == std::string::npos ? sign : sign - 2), word.place, {true, word.place}};
    std::vector<ShellWord> values;
    if (sign != std::string::npos) values.push_back({word.text.substr(sign + 1), word.place, word.unknown});
    while (sign == std::string::npos && i + 1 < arguments.size() && !is_flag(arguments[i + 1]) &&
           !comes_after(values, flag.name, arguments[i + 1]) &&
           (!is_arguments(arguments[i + 1]) || lists_data(flag.name, arguments[i + 1]) ||
            says_how_long(flag.name, values, arguments[i + 1])))
      values.push_back(arguments[++i]);
    std::vector<TomlValue> list;
    std::string unknown;
    for (const ShellWord& value : values) {
      list.push_back({typed(value.text), value.place.line > 0 ? value.place : word.place});
      unknown += (unknown.empty() ? "" : " ") + value.unknown;
    }
    if (!unknown.empty())
      flag.value = {std::string(unknown_value) + unknown, word.place};
    else if (list.size() == 1)
      flag.value = list.front();
    else if (list.size() > 1)
      flag.value = {std::move(list), word.place};
    flags.push_back(std::move(flag));
  }
  return flags;
}

}  // namespace tidemark::scenarios
