#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"

// Training by preferences with transformers' models: TRL's trainers, and those of LLaMA-Factory, axolotl, ms-swift,
// OpenRLHF and torchtune, which do the same. What is simulated is a step on both answers of each pair; what stands
// beside it is bounded.

namespace tidemark::scenarios {
namespace {

struct Lesson {
  std::string_view word;
  LearnsFrom from;
};
constexpr auto lessons = std::to_array<Lesson>({{"dpo", LearnsFrom::Pairs},
                                                {"ipo", LearnsFrom::Pairs},
                                                {"orpo", LearnsFrom::Pairs},
                                                {"cpo", LearnsFrom::Pairs},
                                                {"simpo", LearnsFrom::Pairs},
                                                {"kto", LearnsFrom::JudgedRows},
                                                {"rm", LearnsFrom::RankedPairs},
                                                {"reward", LearnsFrom::RankedPairs}});

}  // namespace

bool learn_from(std::string_view word, std::string what, Place place, Draft& draft) {
  const auto* const its = std::ranges::find(lessons, word, &Lesson::word);
  if (its == lessons.end()) return false;
  if (draft.learns_from != LearnsFrom::Rows) return true;
  draft.learns_from = its->from;
  draft.lesson.what = std::move(what);
  draft.lesson.place = place;
  return true;
}

// trl/trainer/dpo_config.py, kto_config.py, orpo_config.py, cpo_config.py, reward_config.py, of 0.8 to 1.x, and what
// the tools' own arguments call them.
void read_preferences(Given& given) {
  if (given.draft().learns_from == LearnsFrom::Rows) return;
  constexpr auto names = std::to_array<std::string_view>({"beta",
                                                          "loss_type",
                                                          "loss_weights",
                                                          "max_prompt_length",
                                                          "max_completion_length",
                                                          "desirable_weight",
                                                          "undesirable_weight",
                                                          "rpo_alpha",
                                                          "ld_alpha",
                                                          "cpo_alpha",
                                                          "simpo_gamma",
                                                          "gamma_beta_ratio",
                                                          "label_smoothing",
                                                          "reference_free",
                                                          "truncation_mode",
                                                          "disable_dropout",
                                                          "f_divergence_type",
                                                          "f_alpha_divergence_coef",
                                                          "use_weighting",
                                                          "discopop_tau",
                                                          "padding_value",
                                                          "label_pad_token_id",
                                                          "is_encoder_decoder",
                                                          "ref_model_init_kwargs",
                                                          "model_adapter_name",
                                                          "ref_adapter_name",
                                                          "center_rewards_coefficient",
                                                          "precompute_ref_log_probs",
                                                          "precompute_ref_batch_size",
                                                          "generate_during_eval",
                                                          "ref_model",
                                                          "ref_model_type",
                                                          "rl_beta",
                                                          "rlhf_type"});
  given.no_matter(names, "of how answers are judged");
  for (const std::string_view name : {"sync_ref_model", "force_use_ref_model", "use_logits_to_keep"})
    given.no_matter(std::array{name}, "the reference is counted all the same");
}

void settle_preferences(Draft& draft, std::int64_t bytes) {
  using enum LearnsFrom;
  if (draft.learns_from == Rows) return;
  if (draft.learns_from != JudgedRows)
    for (const char* path : {"train.micro_batch", "train.global_batch"})
      if (const auto pairs = draft.integer(path)) draft.set(path, product({2, *pairs}), draft.find(path)->place);
  const bool adapter = draft.find("adapter") != nullptr;
  const Remark& its = draft.lesson;
  if (draft.learns_from == RankedPairs)
    draft.remark_bounded(its.what,
                         "the figures are of supervised fine-tuning on both answers of each pair; the head that ranks "
                         "them gives one number, and there are no logits",
                         "ranked-pairs", its.place);
  else
    draft.remark_bounded(its.what,
                         draft.learns_from == Pairs
                             ? "the figures are of supervised fine-tuning on both answers of each pair, as long as the "
                               "longest; a frozen reference of the same shape and its pass are beside it"
                             : "the figures are of supervised fine-tuning; a frozen reference of the same shape and "
                               "passes without gradients are beside it",
                         fmt::format("preferences{}:{}", draft.judges_whole ? "-whole" : "", adapter ? 0 : bytes),
                         its.place);
}

}  // namespace tidemark::scenarios
