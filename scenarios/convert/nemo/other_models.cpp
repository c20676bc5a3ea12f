#include "scenarios/convert/nemo/other_models.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

// Hydra's `file@place`. Other places of a model are of settings, as tp_overlap@model.ub_tp_comm_overlap_cfg is.
bool is_half_of_model(std::string_view name) {
  return name.find("@model.encoder") != std::string_view::npos || name.find("@model.decoder") != std::string_view::npos;
}

}  // namespace

void refuse_other_models(const TomlTable& document, Draft& draft) {
  for (const TomlKey& key : document.keys)
    if (const auto* list = std::get_if<std::vector<TomlValue>>(&key.value.value);
        key.name == "defaults" && list != nullptr)
      for (const TomlValue& one : *list)
        if (const auto* from = std::get_if<TomlTable>(&one.value);
            from != nullptr && !from->keys.empty() && is_half_of_model(from->keys.front().name))
          return draft.remark(
              RemarkKind::NotExpressed, from->keys.front().name,
              not_modelled("is a part of the model in another file: such models, with an encoder and a decoder, are "
                           "not modelled"),
              key.place);
  const auto found = std::ranges::find(document.keys, "model", &TomlKey::name);
  const auto* const model = found == document.keys.end() ? nullptr : std::get_if<TomlTable>(&found->value.value);
  if (model == nullptr) return;
  struct Sign {
    std::string_view key, what;
  };
  constexpr auto signs = std::to_array<Sign>({{"bert_binary_head", "BERT"},
                                              {"bert_type", "BERT"},
                                              {"encoder", "a model with encoder and decoder"},
                                              {"decoder", "a model with encoder and decoder"},
                                              {"decoder_seq_length", "a model with encoder and decoder"},
                                              {"vision", "a model of images"},
                                              {"vision_pretraining_type", "a model of images"},
                                              {"image_size", "a model of images"},
                                              {"patch_dim", "a model of images"},
                                              {"mm_cfg", "a model of images and text"},
                                              {"unet_config", "a diffusion model"},
                                              {"first_stage_config", "a diffusion model"},
                                              {"retro", "RETRO"},
                                              {"mcore_bert", "BERT"}});
  for (const TomlKey& key : model->keys)
    if (const auto* const its = std::ranges::find(signs, std::string_view(key.name), &Sign::key); its != signs.end())
      return draft.remark(RemarkKind::NotExpressed, fmt::format("model.{}", key.name),
                          not_modelled(fmt::format("is of {}, which is not modelled: GPT and its like are", its->what)),
                          key.place);
}

}  // namespace tidemark::scenarios
