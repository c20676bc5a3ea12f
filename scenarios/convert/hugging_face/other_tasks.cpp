#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/rewritten.hpp"

// What a tool's configuration trains by, where that is no row after another.

namespace tidemark::scenarios {
namespace {

constexpr std::string_view supervised = "supervised fine-tuning and pre-training are modelled";

void refuse_task(const Rewritten& its, std::string_view name, std::string_view task) {
  if (const TomlKey* const key = its.find(name))
    its.fail(*key, not_modelled(fmt::format("{}: trains by {}, a task that is not modelled", its.written(*key), task)),
             std::string(supervised));
}

}  // namespace

// The task of a configuration, where it is none that is modelled; checked before anything else is read.
void refuse_other_tasks_of_tools(const TomlTable& document, Draft& draft) {
  const Rewritten its(document.keys, draft);
  const TomlKey* const stage = its.find("stage");
  const auto learns = [&](std::string_view name) {
    const TomlKey* const key = its.find(name);
    return key != nullptr && learn_from(Rewritten::word(*key), its.written(*key), key->place, draft);
  };
  if (stage != nullptr) {
    const std::string word = Rewritten::word(*stage);
    if (word != "sft" && word != "pt" && !learns("stage"))
      refuse_task(its, "stage", word == "ppo" ? "PPO" : "something else");
  }
  if (!learns("rl")) refuse_task(its, "rl", "preferences or rewards");
  if (!learns("rlhf_type")) refuse_task(its, "rlhf_type", "preferences or rewards");
  // Of TRL's trainers for other tasks (trl/trainer/dpo_config.py, orpo_config.py, kto_config.py, grpo_config.py,
  // rloo_config.py, ppo_config.py).
  for (const std::string_view name : {"num_generations", "reward_funcs", "use_vllm", "max_completion_length",
                                      "reward_weights", "num_iterations", "kl_coef", "reward_model_path"})
    if (name != "max_completion_length" || draft.learns_from == LearnsFrom::Rows)
      refuse_task(its, name, "rewards (GRPO, RLOO, PPO)");
  // princeton-nlp/SimPO's own; the bound counts a reference, which its trainer does not hold.
  if (const TomlKey* const key = its.find("gamma_beta_ratio"))
    draft.trl |= learn_from("simpo", its.written(*key), key->place, draft);
  // KTO's own, and those of TRL's others by pairs.
  for (const std::string_view name : {"desirable_weight", "beta", "max_prompt_length", "precompute_ref_log_probs",
                                      "rpo_alpha", "ref_model_init_kwargs"})
    if (const TomlKey* const key = its.find(name))
      draft.trl |= learn_from(name == "desirable_weight" ? "kto" : "dpo", its.written(*key), key->place, draft);
  if (its.on("process_reward_model")) refuse_task(its, "process_reward_model", "rewards");
  if (const TomlKey* const key = its.find("reward_model"); key != nullptr && its.on("reward_model"))
    (void)learn_from("reward", its.written(*key), key->place, draft);
}

}  // namespace tidemark::scenarios
