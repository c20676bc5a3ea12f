#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job/built_model.hpp"
#include "parallel/model/fine_tuning.hpp"
#include "parallel/model/model.hpp"
#include "parallel/runtime/versions.hpp"

// Which modules of a model PEFT finds by what names.

namespace tidemark::parallel::transformers {

/// Whether its layers are of those kinds: of experts Mixtral's, Qwen2-MoE's and Qwen3-MoE's.
[[nodiscard]] bool models_layers_of(const Model& model);

/// Whether a layer's experts are one module of parameters, not linears each.
[[nodiscard]] inline bool has_fused_experts(const Versions& versions) { return versions.transformers >= Version{5, 0}; }

/// A module with parameters of its own.
struct ModuleName {
  std::string path;  ///< transformers': "model.layers.0.self_attn.q_proj"
  bool linear = false;
};

/// All of a model's.
[[nodiscard]] std::vector<ModuleName> module_names(const Model& model, bool fused_experts);

/// The parameters that its modules register, in their order.
[[nodiscard]] std::vector<Parameter> registered_parameters(const Model& model);

/// Whether an adapter goes beside the linear of that path (peft/tuners/tuners_utils.py check_target_module_exists).
[[nodiscard]] bool is_target(const Adapter& adapter, const Model& model, std::string_view path, bool fused_experts);
/// transformers' name of the module that is called `name` here.
[[nodiscard]] std::string path_of(const Model& model, std::string_view name);
/// Whether a path is that name, or ends in it after a dot.
[[nodiscard]] bool is_or_ends(std::string_view path, std::string_view name);

/// What of experts that are one module of parameters adapters go beside; gate and up are one parameter.
struct ExpertTargets {
  bool router = false, gate = false, up = false, down = false;
  [[nodiscard]] bool any() const { return router || gate || up || down; }
};
/// By the names that their linears had, or "all-linear" (peft/utils/transformers_weight_conversion.py).
[[nodiscard]] ExpertTargets expert_targets(const Adapter& adapter, const Model& model);
/// Whether a target's name is taken for one of those.
[[nodiscard]] bool names_expert_parameter(const Model& model, std::string_view name);

/// Whether modules_to_save means the module of that path (peft/utils/other.py _set_trainable).
[[nodiscard]] bool is_saved(const Adapter& adapter, std::string_view path);

/// Whether a parameter of that name is an adapter's, or one that is trained whole beside adapters.
[[nodiscard]] bool is_adapter(std::string_view parameter);

/// What PEFT takes where target_modules is left out; nothing for architectures that it does not know.
[[nodiscard]] std::vector<std::string> usual_targets(const Model& model);

/// Elements of a model's parameters.
struct ParameterCounts {
  std::int64_t all = 0, trained = 0;
};
[[nodiscard]] ParameterCounts counts_of_adapted(const Model& model, const Adapter& adapter, bool fused_experts);

}  // namespace tidemark::parallel::transformers
