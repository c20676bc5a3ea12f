#include "parallel/frameworks/transformers/adapters.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/stage_3_linear.hpp"

// PEFT's LoRA, read in peft 0.21: tuners/lora/layer.py, tuners/tuners_utils.py, utils/other.py, peft_model.py.

namespace tidemark::parallel::transformers {
namespace {

// What parameters beside those of the model are called after their modules.
constexpr std::string_view of_lora_a = ".lora_A", of_lora_b = ".lora_B", of_magnitude = ".lora_magnitude_vector",
                           of_saved = ".modules_to_save.";

}  // namespace

// What transformers calls a module that is called `name` here.
std::string path_of(const Model& model, std::string_view name) {
  const bool gpt = gpt_style(model), neox = family_of(model) == Family::NeoX;
  const std::string prefix = gpt ? "transformer." : neox ? "gpt_neox." : "model.";
  if (name == "lm_head") return neox ? "embed_out" : "lm_head";
  if (name == "embed_tokens") return prefix + (gpt ? "wte" : neox ? "embed_in" : "embed_tokens");
  if (name == "embed_positions") return prefix + "wpe";
  const bool phi = model.architecture == "phi";
  if (name == "norm") return prefix + (gpt ? "ln_f" : neox ? "final_layer_norm" : phi ? "final_layernorm" : "norm");
  constexpr std::string_view layers = "layers.";
  if (gpt && name.starts_with(layers)) return prefix + "h." + std::string(name.substr(layers.size()));
  return prefix + std::string(name);
}

// The same, or what comes after a dot.
bool is_or_ends(std::string_view path, std::string_view end) {
  if (path == end) return true;
  return path.ends_with(end) && path.size() > end.size() && path[path.size() - end.size() - 1] == '.';
}

namespace {

// A model without memory. `made` is told of its parameters as they are made, `see` of the whole.
void dry_model(const Model& model, const Train& train, bool fused_experts, const std::function<void(CausalLM&)>& see,
               const std::function<void(const std::string&, const Shape&)>& made = {}) {
  Process process({}, {});
  Session session(process, {});
  EagerBehavior behavior;
  behavior.experts.fused = fused_experts;
  CausalLM whole(session, model, model.vocabulary, train, behavior, train.precision,
                 [&](const std::string& name, const Shape& sizes, DType dtype) {
                   if (made) made(name, sizes);
                   return parameter_elsewhere(session, sizes, dtype);
                 });
  see(whole);
  session.finish();
}

}  // namespace

bool models_layers_of(const Model& model) {
  static constexpr std::array<std::string_view, 3> of_experts{"mixtral", "qwen2_moe", "qwen3_moe"};
  if (model.latent() != nullptr || model.attention_sinks) return false;
  return !model.experts() || std::ranges::find(of_experts, model.architecture) != of_experts.end();
}

bool is_saved(const Adapter& adapter, std::string_view path) {
  return std::ranges::any_of(adapter.saved, [&](const std::string& name) { return path.ends_with(name); });
}

bool is_target(const Adapter& adapter, const Model& model, std::string_view path, bool fused_experts) {
  // Of modules that are saved, none within them either.
  const auto within = [&](const std::string& saved) {
    for (std::size_t at = path.find(saved); at != std::string_view::npos; at = path.find(saved, at + 1)) {
      const std::size_t end = at + saved.size();
      if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
    }
    return false;
  };
  if (std::ranges::any_of(adapter.saved, within)) return false;
  const auto becomes_parameter = [&](std::string_view name) {
    return fused_experts && names_expert_parameter(model, name);
  };
  if (adapter.all_linear) return path != path_of(model, "lm_head") && !becomes_parameter(path);
  return std::ranges::any_of(adapter.targets, [&](const std::string& target) {
    return is_or_ends(path, target) && !becomes_parameter(target);
  });
}

bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(of_lora_a) || parameter.ends_with(of_lora_b) || parameter.ends_with(of_magnitude) ||
         parameter.find(of_saved) != parameter.npos;
}

// peft/utils/constants.py TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.
std::vector<std::string> usual_targets(const Model& model) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> known{
      {"gemma", {"q_proj", "v_proj"}},       {"gemma2", {"q_proj", "v_proj"}},
      {"gemma3_text", {"q_proj", "v_proj"}}, {"gpt2", {"c_attn"}},
      {"gpt_bigcode", {"c_attn"}},           {"gpt_neox", {"query_key_value"}},
      {"llama", {"q_proj", "v_proj"}},       {"mistral", {"q_proj", "v_proj"}},
      {"mixtral", {"q_proj", "v_proj"}},     {"qwen2", {"q_proj", "v_proj"}},
      {"qwen3", {"q_proj", "v_proj"}},       {"phi", {"q_proj", "v_proj", "fc1", "fc2"}},
      {"stablelm", {"q_proj", "v_proj"}},
  };
  const auto its = known.find(model.architecture);
  return its == known.end() ? std::vector<std::string>() : its->second;
}

std::vector<ModuleName> module_names(const Model& model, bool fused_experts) {
  std::vector<ModuleName> names;
  dry_model(model, {}, fused_experts, [&](CausalLM& made) {
    for (const CausalLM::NamedModule& its : made.named_modules()) names.push_back({its.path, its.linear != nullptr});
  });
  return names;
}

std::vector<Parameter> registered_parameters(const Model& model) {
  std::vector<Parameter> registered;
  const auto note = [&](const std::string& name, const Shape& sizes) {
    registered.push_back({.name = name, .rows = sizes[0], .columns = sizes.size() > 1 ? sizes[1] : 0, .layer = -1});
    registered.back().vocabulary = name.starts_with("embed_tokens") || name.starts_with("lm_head");
  };
  const auto place = [&](CausalLM& made) {
    std::size_t end = 0;
    for (std::size_t layer = 0; layer < made.layers(); ++layer) {
      const CausalLM::Range range = made.parameters_of_layer(layer);
      for (std::size_t p = range.begin; p < range.end; ++p) registered[p].layer = static_cast<std::int32_t>(layer);
      end = range.end;
    }
    for (std::size_t p = end; p < registered.size(); ++p)
      registered[p].layer = static_cast<std::int32_t>(made.layers());
  };
  dry_model(model, {}, false, place, note);
  return registered;
}

ParameterCounts counts_of_adapted(const Model& model, const Adapter& adapter, bool fused_experts) {
  Train train;
  train.adapter = adapter;
  ParameterCounts counts;
  dry_model(model, train, fused_experts, [&](CausalLM& made) {
    for (const std::shared_ptr<Leaf>& p : made.parameters()) {
      counts.all += p->value.elements();
      if (p->trained()) counts.trained += p->value.elements();
    }
  });
  return counts;
}

// ---- beside a linear -----------------------------------------------------------------------------------------------

// lora/layer.py Linear.forward: result = result + lora_B(lora_A(dropout(x))) * scaling, in the adapter's type.
// lora/bnb.py Linear4bit.forward and Linear8bitLt.forward: of what autocast takes in hand nothing is converted, and
// else what the adapter gives before it is added; of 4 bits, to a copy of the result.
Tensor Linear::adapted(Session& s, const Tensor& x) const {
  Tensor result = hooked(lora->of_base, x, [&](const Tensor& given) { return product(s, given); });
  const DType its = result.dtype;
  const Session::Scope scope(s, "lora");
  const bool narrow = quantized != nullptr;
  if (narrow && quantized->format != QuantizedFormat::Int8) result = clone(s, result, result.strides);
  const Tensor in = narrow && s.autocast ? x : to(s, x, lora->shown.value_or(lora->down->value.dtype));
  const auto sum = [&] {
    if (lora->magnitude) return decomposed(s, in, result);
    Tensor made = hooked(lora->of_dropout, in, [&](const Tensor& given) { return dropout(s, given, lora->dropout); });
    // A wrapper casts what it is handed (_cast_forward_inputs).
    const auto through = [&](const ForwardHooks& its_hooks, const Leaf& of) {
      return hooked(its_hooks, made, [&](const Tensor& given) {
        const Tensor cast = its_hooks.inputs ? to(s, given, *its_hooks.inputs) : given;
        return adds_apart ? linear_of_stage_3(s, cast, of.value) : linear(s, cast, of.value, {});
      });
    };
    made = through(lora->of_down, *lora->down);
    made = through(lora->of_up, *lora->up);
    made = mul_number(s, made, lora->scale);
    if (narrow && !s.autocast) made = to(s, made, its);
    return add(s, result, made);
  };
  result = sum();
  return narrow ? result : to(s, result, its);
}

Parameters CausalLM::trained() const {
  Parameters all;
  std::ranges::copy_if(parameters_, std::back_inserter(all), [](const auto& p) { return p->trained(); });
  return all;
}

std::vector<CausalLM::NamedModule> CausalLM::named_modules() {
  std::vector<NamedModule> all;
  const auto add_linear = [&](Linear& its) {
    if (its.weight) all.push_back({path_of(model_, its.name), its.name, &its.weight, &its.bias, &its});
  };
  const auto add_norm = [&](Norm& its) {
    if (its.weight) all.push_back({path_of(model_, its.name), its.name, &its.weight, &its.bias});
  };
  const auto add_embedding = [&](const std::string& name, std::shared_ptr<Leaf>& weight) {
    if (weight) all.push_back({path_of(model_, name), name, &weight});
  };
  add_embedding("embed_tokens", tokens_);
  add_embedding("embed_positions", positions_);
  for (Layer& layer : layers_) {
    Attention& a = layer.attention;
    for (Linear* const its : {&a.query, &a.key, &a.value, &a.output}) add_linear(*its);
    for (Norm* const its : {&a.query_norm, &a.key_norm}) add_norm(*its);
    const auto add_mlp = [&](Mlp& mlp) {
      for (Linear* const its : {&mlp.gate, &mlp.up, &mlp.down}) add_linear(*its);
    };
    add_mlp(layer.mlp);
    if (layer.mixture) {
      Mixture& m = *layer.mixture;
      const std::string block = block_name(layer.name);
      if (m.gate_up) {  // neither the router nor the experts are linears
        add_embedding(block + ".gate", m.router.weight);
        all.push_back({path_of(model_, block + ".experts"), block + ".experts", &m.gate_up, &m.down});
      } else {
        add_linear(m.router);
      }
      for (Mlp& its : m.each) add_mlp(its);
      add_mlp(m.shared);
      add_linear(m.shared_gate);
    }
    for (Norm* const its : {&layer.attention_norm, &layer.after_attention, &layer.mlp_norm, &layer.after_mlp})
      add_norm(*its);
  }
  add_norm(last_norm_);
  add_linear(head_);
  // As they are registered; a tied head, whose weight is another module's, comes last.
  std::map<const Leaf*, std::size_t> places;
  for (std::size_t i = 0; i < parameters_.size(); ++i) places.emplace(parameters_[i].get(), i);
  for (NamedModule& its : all) {
    const bool tied = its.linear == &head_ && head_.weight == tokens_;
    const Leaf* const last = its.bias != nullptr && *its.bias ? its.bias->get() : its.weight->get();
    its.last = tied ? parameters_.size() - 1 : places.at(last);
  }
  std::ranges::stable_sort(all, {}, &NamedModule::last);
  return all;
}

// ---- construction --------------------------------------------------------------------------------------------------

std::shared_ptr<Leaf> CausalLM::adapter(const std::string& name, const Shape& sizes, DType dtype) {
  return make_ ? make_(name, sizes, dtype) : initialized_parameter(s_, name, sizes, dtype, Category::Adapters);
}

// get_peft_model of a model that is there: what it has is frozen, adapters stand beside linears, and copies of what is
// trained whole in place of what they copy.
void CausalLM::adapt() {
  const Adapter& requested = *train_.adapter;
  for (const std::shared_ptr<Leaf>& p : parameters_) {
    p->freeze();
    if (s_.recorder != nullptr) s_.recorder->froze(s_.parameter_name(p->value));
  }
  std::vector<NamedModule> modules = named_modules();
  std::map<std::size_t, Parameters> added;  // after that parameter
  // Adapters are not moved to types that are no numbers: they stay fp32.
  const auto type_of = [](const NamedModule& its) {
    if (its.linear == nullptr || !its.linear->quantized) return (*its.weight)->value.dtype;
    const DType stored = (*its.weight)->value.dtype;
    return stored == byte_type ? DType::FP32 : stored;
  };
  std::vector<AdapterSite> sites;
  for (const NamedModule& its : modules) {
    if (its.linear == nullptr || !is_target(requested, model_, its.path, behavior_.experts.fused)) continue;
    Linear& of = *its.linear;
    sites.push_back({.name = its.name,
                     .last = its.last,
                     .down = {requested.rank, of.inputs()},
                     .up = {of.outputs(), requested.rank},
                     .base = type_of(its),
                     .place = &of.lora});
  }
  std::ranges::move(parameter_sites(requested),
                    std::back_inserter(sites));  // _inject_parameters, once linears are done
  // Each adapter is made on the host in fp32, moved to what it adapts with the latter's type, and made fp32 again once
  // all are there, layer by layer (_move_adapter_to_device_of_base_layer, cast_adapter_dtype).
  const auto make = [&](AdapterSite& its) {
    const DType dtype = requested.dtype.value_or(its.base);
    Lora lora;
    lora.down = adapter(its.name + std::string(of_lora_a), its.down, dtype);
    lora.dropout = requested.dropout;
    lora.scale = requested.alpha / static_cast<double>(requested.rank);
    its.moved[0] = {};
    lora.up = adapter(its.name + std::string(of_lora_b), its.up, dtype);
    its.moved[1] = {};
    added[its.last].insert(added[its.last].end(), {lora.down, lora.up});
    if (requested.method == AdapterMethod::Dora) {
      lora.magnitude = adapter(its.name + std::string(of_magnitude), {its.up[0]}, dtype);
      its.moved[2] = {};
      added[its.last].push_back(lora.magnitude);
    }
    *its.place = std::move(lora);
  };
  std::vector<AdapterSite*> to_cast;
  for (AdapterSite& its : sites) {
    if (make_ || requested.dtype.value_or(its.base) == its.base) {
      make(its);
      continue;
    }
    const auto moved = [&](const Shape& sizes) { return s_.empty(sizes, its.base, "adapter", Category::Temporaries); };
    its.moved[0] = moved(its.down);
    its.moved[1] = moved(its.up);
    if (requested.method == AdapterMethod::Dora) its.moved[2] = first_magnitudes(its);
    to_cast.push_back(&its);
  }
  std::ranges::stable_sort(to_cast, {}, &AdapterSite::last);
  for (const NamedModule& its : modules)
    if (is_saved(requested, its.path))
      for (auto [own, what] : {std::pair(its.weight, "weight"), std::pair(its.bias, "bias")}) {
        if (own == nullptr || !*own) continue;
        const Tensor& original = (*own)->value;
        const ParameterRole role = (*own)->role;
        *own = adapter(its.name + std::string(of_saved) + what, original.sizes, original.dtype);
        (*own)->role = role;
        added[its.last].push_back(*own);
      }
  for (AdapterSite* const its : to_cast) make(*its);

  // Layers' parameters are where they were, with what came after them.
  std::vector<std::size_t> now;
  Parameters all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    now.push_back(all.size());
    all.push_back(parameters_[i]);
    all.insert(all.end(), added[i].begin(), added[i].end());
  }
  now.push_back(all.size());
  for (Layer& layer : layers_) layer.parameters = {now[layer.parameters.begin], now[layer.parameters.end]};
  parameters_ = std::move(all);
}

// transformers' enable_input_require_grads: a hook makes what the embedding gives a leaf that asks for a gradient, so
// that what is checkpointed has one to pass on. Both stay as long as the graph.
void CausalLM::ask_for_gradient(Tensor& embedded) {
  const bool usual = train_.adapter && train_.recompute.kind != Recompute::None;
  if (!behavior_.input_gradients.value_or(usual) || embedded.requires_grad() || !s_.grad_enabled) return;
  const std::shared_ptr<Leaf> its = leaf(s_, embedded);
  embedded.gradient = its->value.gradient;
  s_.outlives_backward.push_back(its);
}

}  // namespace tidemark::parallel::transformers
