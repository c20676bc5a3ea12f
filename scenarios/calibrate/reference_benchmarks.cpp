#include "scenarios/calibrate/reference_benchmarks.hpp"

#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/reader/scenario_reader.hpp"

namespace tidemark::scenarios {
namespace {

struct Size {
  std::string_view name;
  std::int64_t hidden, heads, ffn, vocabulary, sequence, micro_batch;
};
constexpr std::array<Size, 4> yard_sizes{{{"xs", 32, 4, 64, 256, 16, 1},
                                          {"s", 64, 4, 160, 512, 64, 1},
                                          {"m", 192, 8, 512, 1536, 128, 1},
                                          {"l", 384, 8, 1024, 4096, 256, 1}}};
constexpr std::array<std::string_view, 2> families{"llama", "gpt"};
constexpr std::array<std::string_view, 2> precisions{"fp32", "bf16"};

std::string reference_benchmark_text(std::string_view family, std::string_view precision, const Size& size,
                                     int tensor) {
  const bool llama = family == "llama";
  std::string model =
      llama ? fmt::format(
                  "model = \"models/llama-3.1-8b.json\"\n[model_override]\nnum_hidden_layers = 2\n"
                  "hidden_size = {}\nnum_attention_heads = {}\nnum_key_value_heads = {}\n"
                  "head_dim = {}\nintermediate_size = {}\nvocab_size = {}\n",
                  size.hidden, size.heads, size.heads / 2, size.hidden / size.heads, size.ffn, size.vocabulary)
            : fmt::format(
                  "model = \"models/gpt2.json\"\n[model_override]\nn_layer = 2\nn_embd = {}\n"
                  "n_head = {}\nn_inner = {}\nvocab_size = {}\nn_positions = {}\n",
                  size.hidden, size.heads, size.ffn, size.vocabulary, size.sequence);
  return fmt::format(
      "cluster = \"clusters/h100-sxm-80g.toml\"\ngpus = {0}\n{1}[layout]\ntensor = {0}\n{2}[train]\n"
      "sequence_length = {3}\nmicro_batch = {4}\nglobal_batch = {5}\nsteps = 3\nprecision = \"{6}\"\n"
      "hidden_dropout = {7}\nattention_dropout = 0.0\n[runtime]\nname = \"megatron\"\n",
      tensor, model, tensor > 1 ? "sequence_parallel = true\n" : "", size.sequence, size.micro_batch,
      2 * size.micro_batch, precision, llama ? "0.0" : "0.1");
}

}  // namespace

std::vector<std::string> reference_benchmark_names(std::int32_t ranks, bool brief) {
  std::vector<std::string> names;
  for (const std::string_view family : families)
    for (const std::string_view precision : precisions)
      for (const Size& size : yard_sizes)
        for (const int tensor : {1, 2})
          if (ranks % tensor == 0 && (!brief || (&size == yard_sizes.data() && precision == "fp32")))
            names.push_back(fmt::format("{}-{}-{}-tp{}", family, precision, size.name, tensor));
  return names;
}

Scenario reference_benchmark(const std::string& name, const std::filesystem::path& data_root) {
  for (const std::string_view family : families)
    for (const std::string_view precision : precisions)
      for (const Size& size : yard_sizes)
        for (const int tensor : {1, 2})
          if (fmt::format("{}-{}-{}-tp{}", family, precision, size.name, tensor) == name)
            return parse_scenario(reference_benchmark_text(family, precision, size, tensor), name, {{}, data_root});
  return read_scenario(name, data_root);
}

}  // namespace tidemark::scenarios
