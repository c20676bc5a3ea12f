#include "parallel/model/layer.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "parallel/model/model.hpp"

namespace tidemark::parallel {

bool Model::transformers_alone() const {
  constexpr std::array<std::string_view, 15> its{"starcoder2", "olmo",     "olmo3",   "granite",   "cohere",
                                                 "cohere2",    "stablelm", "phi",     "glm",       "glm4",
                                                 "smollm3",    "seed_oss", "exaone4", "ministral", "ministral3"};
  return std::ranges::find(its, architecture) != its.end();
}

std::string Attention::text(const Model& model) const {
  std::string text = fmt::format("attention of {} heads of {}", model.heads, model.head_dim);
  if (model.kv_heads < model.heads) text += fmt::format(", {} of keys and values", model.kv_heads);
  if (window > 0) text += fmt::format(", which see {} keys", window);
  return text;
}

std::string MultiLatentAttention::text(const Model& model) const {
  const std::string queries = query_rank > 0 ? fmt::format("{} and ", query_rank) : "";
  return fmt::format("latent attention of {} heads of {}, latents of {}{}", model.heads, query_head(), queries,
                     kv_rank);
}

std::string Mamba2::text(const Model&) const {
  return fmt::format("Mamba-2 of {} heads of {} in {} groups, states of {}", heads, head_dim, groups, state);
}

std::int64_t DenseMlp::width(const Model& model) const { return ffn > 0 ? ffn : model.ffn; }

std::string DenseMlp::word() const { return ffn > 0 ? fmt::format("{}={}", usual_word, ffn) : std::string(usual_word); }

std::string DenseMlp::text(const Model& model) const { return fmt::format("MLP of {}", width(model)); }

std::string Experts::text(const Model&) const {
  const std::string shared = shared_ffn > 0 ? fmt::format(", shared ones of {}", shared_ffn) : "";
  return fmt::format("{} of {} experts of {}{}", chosen, count, ffn, shared);
}

namespace {

constexpr auto word = [](const auto& its) { return std::string(its.word()); };

}  // namespace

std::string word_of(const Mixer& mixer) { return std::visit(word, mixer); }
std::string word_of(const FeedForward& mlp) { return std::visit(word, mlp); }
std::string text_of(const Mixer& mixer, const Model& model) {
  return std::visit([&](const auto& its) { return its.text(model); }, mixer);
}
std::string text_of(const FeedForward& mlp, const Model& model) {
  return std::visit([&](const auto& its) { return its.text(model); }, mlp);
}

std::vector<std::string> runs_of(const LayerList& list) {
  std::vector<std::string> runs;
  for (std::int64_t first = 0, end = 0; first < list.size(); first = end) {
    while (end < list.size() && list.kind(end) == list.kind(first)) ++end;
    runs.push_back(fmt::format("{} {} {}", end - first, word_of(list[first].mixer), word_of(list[first].mlp)));
  }
  return runs;
}

}  // namespace tidemark::parallel
