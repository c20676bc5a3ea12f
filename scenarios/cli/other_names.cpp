#include "scenarios/cli/other_names.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"

namespace tidemark::cli {
namespace {

struct Called {
  std::string_view option;  ///< what is to follow "did you mean": the option, perhaps with a value
  std::string_view key;     ///< what says it in a scenario's file
  std::string_view others;  ///< Megatron-LM's, torchtitan's, DeepSpeed's and common short forms, between spaces
};

constexpr std::array called{
    Called{"--tensor", "tensor in [layout]",
           " tp tp-size tensor-parallel tensor-parallel-size tensor-parallel-degree "
           "tensor-model-parallel tensor-model-parallel-size "},
    Called{"--sequence-parallel", "sequence_parallel in [layout]", " sp "},
    Called{"--pipeline", "pipeline in [layout]",
           " pp pp-size pipeline-parallel pipeline-parallel-size pipeline-parallel-degree pipeline-model-parallel "
           "pipeline-model-parallel-size stages "},
    Called{"--chunks", "chunks in [layout]", " vp vpp virtual-pipeline num-virtual-stages-per-pipeline-rank "},
    Called{"--context", "context in [layout]",
           " cp cp-size context-parallel context-parallel-size context-parallel-degree "},
    Called{"--expert", "expert in [layout]",
           " ep ep-size expert-parallel expert-parallel-size expert-parallel-degree expert-model-parallel-size "},
    Called{"--sharding", "sharding in [layout]", " zero zero-stage stage use-distributed-optimizer "},
    Called{"--runtime fsdp2", "name = \"fsdp2\" in [runtime]", " fsdp fsdp2 "},
    Called{"--runtime", "name in [runtime]", " framework backend "},
    Called{"--micro-batch", "micro_batch in [train]",
           " mbs micro-batch-size micro-batchsize batch-size local-batch-size per-device-train-batch-size "
           "train-micro-batch-size-per-gpu "},
    Called{"--global-batch", "global_batch in [train]", " gbs global-batch-size train-batch-size "},
    Called{"--sequence", "sequence_length in [train]",
           " seq sl seq-len seqlen seq-length sequence-length max-seq-len max-seq-length context-length "},
    Called{"--precision", "precision in [train]", " dtype bf16 fp16 fp32 fp8 mixed-precision "},
    Called{"--recompute", "recompute in [train]",
           " ac activation-checkpoint activation-checkpointing gradient-checkpointing recompute-activations "
           "recompute-granularity checkpointing "},
    Called{"--gpus", "gpus", " gpu ngpus ngpu n-gpus num-gpus world-size devices "},
    Called{"--cluster", "cluster", " hardware device machine "},
};

// "--micro_batch_size": as it is listed above.
std::string bare(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  std::string word(flag);
  std::ranges::replace(word, '_', '-');
  return word;
}

bool lists(std::string_view words, const std::string& word) {
  return !word.empty() && words.find(' ' + word + ' ') != std::string_view::npos;
}

}  // namespace

std::string hint_of_flag(const std::string& flag, const std::vector<std::string>& options) {
  const std::string word = bare(flag);
  const auto has = [&](std::string_view option) {
    return std::ranges::find(options, option.substr(0, option.find(' '))) != options.end();
  };
  if (lists(" dp dp-size data data-parallel data-parallel-size data-parallel-degree data-parallel-shard-degree ", word))
    return fmt::format(
        "the data-parallel size follows from the others: all of {}, divided by the ranks that share a layer or a stage",
        has("--gpus") ? "--gpus" : "gpus in the scenario's file");
  if (lists(" nodes nnodes num-nodes ", word) && has("--gpus"))
    return "did you mean --gpus? It counts the devices of all nodes";
  for (const Called& its : called) {
    if (!lists(its.others, word)) continue;
    if (has(its.option)) return fmt::format("did you mean {}?", its.option);
    return fmt::format("set it in the scenario file: {}; tidemark list keys lists all", its.key);
  }
  return {};
}

std::string key_of_flag(const std::string& flag) {
  const std::string word = bare(flag);
  for (const Called& its : called) {
    if (its.option != "--" + word && !lists(its.others, word)) continue;
    const std::size_t in = its.key.find(" in [");
    if (in == std::string_view::npos) return std::string(its.key);
    const std::string_view table = its.key.substr(in + 5, its.key.size() - in - 6);
    return fmt::format("{}.{}", table, its.key.substr(0, its.key.find(' ')));
  }
  return {};
}

std::string verb_meant(const std::string& word, const std::vector<std::string>& verbs) {
  if (std::string meant = nearest(word, verbs); !meant.empty()) return meant;
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> others{{
      {" simulate sim run fit fits check memory ", "predict"},
      {" why show inspect ", "explain"},
      {" search tune optimize autotune layouts sweep ", "plan"},
      {" fix help-me suggest recommend ", "advise"},
      {" frontier limit limits max ", "capacity"},
      {" html page plot figures ", "report"},
      {" execute verify test ", "validate"},
      {" measure bench benchmark profile ", "calibrate"},
      {" import export translate ", "convert"},
      {" models clusters examples studies keys switches ls ", "list"},
  }};
  for (const auto& [words, verb] : others)
    if (lists(words, word)) return std::string(verb);
  return {};
}

}  // namespace tidemark::cli
