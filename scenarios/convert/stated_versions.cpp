#include "scenarios/convert/stated_versions.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/version_text.hpp"

namespace tidemark::scenarios {
namespace {

/// nvcr.io/nvidia/pytorch by its tag: NVIDIA, Installing PyTorch for Jetson Platform, release notes of April 2026
/// (SWE-SWDOCTFX-001-RELN), table 1, which lists the PyTorch of each container; 23.07 to 23.10 are not in it.
struct Container {
  std::int32_t year, month;
  parallel::Version torch;
};
constexpr auto containers = std::to_array<Container>({
    {22, 5, {1, 12}},  {22, 6, {1, 13}}, {22, 7, {1, 13}}, {22, 9, {1, 13}}, {22, 10, {1, 13}}, {22, 11, {1, 13}},
    {23, 1, {1, 14}},  {23, 2, {1, 14}}, {23, 3, {2, 0}},  {23, 4, {2, 0}},  {23, 5, {2, 0}},   {23, 6, {2, 1}},
    {23, 11, {2, 2}},  {23, 12, {2, 2}}, {24, 1, {2, 2}},  {24, 2, {2, 3}},  {24, 3, {2, 3}},   {24, 4, {2, 3}},
    {24, 5, {2, 4}},   {24, 6, {2, 4}},  {24, 7, {2, 4}},  {24, 8, {2, 5}},  {24, 9, {2, 5}},   {24, 10, {2, 5}},
    {24, 11, {2, 6}},  {24, 12, {2, 6}}, {25, 1, {2, 6}},  {25, 2, {2, 7}},  {25, 3, {2, 7}},   {25, 4, {2, 7}},
    {25, 5, {2, 8}},   {25, 6, {2, 8}},  {25, 8, {2, 8}},  {25, 9, {2, 9}},  {25, 10, {2, 9}},  {25, 11, {2, 10}},
    {25, 12, {2, 10}}, {26, 1, {2, 10}}, {26, 2, {2, 11}}, {26, 3, {2, 11}},
});

/// Packages, and what [runtime.versions] calls them.
struct Package {
  std::string_view name, component;
};
constexpr auto packages = std::to_array<Package>({{"torch", "torch"},
                                                  {"transformer-engine", "transformer_engine"},
                                                  {"transformer-engine-torch", "transformer_engine"},
                                                  {"transformers", "transformers"},
                                                  {"megatron-core", "megatron"},
                                                  {"torchtitan", "torchtitan"},
                                                  {"deepspeed", "deepspeed"},
                                                  {"bitsandbytes", "bitsandbytes"},
                                                  {"liger-kernel", "liger_kernel"},
                                                  {"litgpt", "litgpt"},
                                                  {"nvidia-nccl-cu11", "nccl"},
                                                  {"nvidia-nccl-cu12", "nccl"},
                                                  {"nvidia-nccl-cu13", "nccl"}});

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "2.7.0a0+79aa174" from its begin on: 2.7; of a release with a patch, that too.
std::optional<parallel::Version> leading_version(std::string_view text) {
  std::size_t end = 0;
  std::int32_t dots = 0;
  while (end < text.size() &&
         (is_digit(text[end]) || (text[end] == '.' && dots < 2 && end + 1 < text.size() && is_digit(text[end + 1])))) {
    dots += text[end] == '.' ? 1 : 0;
    ++end;
  }
  return parse_version(text.substr(0, end));
}

// Every line of a text that is no comment, with its number and where it begins.
template <class Do>
void each_line(std::string_view text, const Do& act) {
  int number = 1;
  for (std::size_t at = 0; at <= text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    const std::size_t first = line.find_first_not_of(" \t");
    const bool comment =
        first != std::string_view::npos && line[first] == '#' && !line.substr(first).starts_with("#SBATCH");
    if (!comment && first != std::string_view::npos) act(line, number);
    at = end + 1;
  }
}

void add_containers(std::string_view line, int number, std::vector<StatedVersion>& found) {
  for (const std::string_view image : {"nvcr.io/nvidia/pytorch:", "nvcr.io#nvidia/pytorch:"})
    for (std::size_t at = line.find(image); at != std::string_view::npos; at = line.find(image, at + 1)) {
      const std::string_view tag = line.substr(at + image.size());
      const std::optional<parallel::Version> its = leading_version(tag);
      if (!its) continue;
      const auto* const known = std::ranges::find_if(
          containers, [&](const Container& c) { return c.year == its->major && c.month == its->minor; });
      const std::size_t end = std::min(tag.find_first_of(" \t\"'\\$"), tag.size());
      const std::string by = fmt::format("{}{}", image, tag.substr(0, end));
      if (known != containers.end())
        found.push_back({"torch", known->torch, by, {number, static_cast<int>(at) + 1}});
      else
        found.push_back({"torch", {}, by, {number, static_cast<int>(at) + 1}});
    }
}

// core_v0.14.0 is a tag, core_r0.14.0 a branch.
void add_tags(std::string_view line, int number, std::vector<StatedVersion>& found) {
  for (const std::string_view name : {"core_v", "core_r"})
    for (std::size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
      const std::optional<parallel::Version> its = leading_version(line.substr(at + name.size()));
      if (its && its->major == 0)
        found.push_back(
            {"megatron", {0, its->minor}, fmt::format("{}{}", name, text(*its)), {number, static_cast<int>(at) + 1}});
    }
}

struct Pinned {
  std::string name, version;
};
// "torch==2.7.1+cu128 ; python_version > '3.8'"; nothing of what is no one release.
std::optional<Pinned> pinned(std::string_view line) {
  const std::size_t sign = line.find("==");
  if (sign == std::string_view::npos || line.find_first_of("<>~!*,") < line.find_first_of(";#")) return std::nullopt;
  std::string name(line.substr(0, std::min(sign, line.find('['))));
  std::erase_if(name, [](unsigned char c) { return std::isspace(c) != 0; });
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '_' || c == '.' ? '-' : std::tolower(c); });
  std::string_view version = line.substr(line.find_first_not_of("=", sign));
  version.remove_prefix(std::min(version.find_first_not_of(" \t"), version.size()));
  return Pinned{std::move(name), std::string(version)};
}

}  // namespace

std::vector<StatedVersion> versions_in_script(std::string_view text) {
  std::vector<StatedVersion> found;
  each_line(text, [&](std::string_view line, int number) {
    add_containers(line, number, found);
    add_tags(line, number, found);
  });
  return found;
}

std::vector<StatedVersion> versions_of_packages(std::string_view text) {
  std::vector<StatedVersion> found;
  each_line(text, [&](std::string_view line, int number) {
    const std::optional<Pinned> its = pinned(line);
    if (!its) return;
    const auto* const package = std::ranges::find(packages, std::string_view(its->name), &Package::name);
    const std::optional<parallel::Version> version = leading_version(its->version);
    if (package == packages.end() || !version) return;
    found.push_back(
        {std::string(package->component), *version, fmt::format("{}=={}", its->name, its->version), {number, 1}});
  });
  return found;
}

bool lists_packages(std::string_view text) {
  bool some = false, all = true;
  each_line(text, [&](std::string_view line, int) {
    some |= pinned(line).has_value();
    const std::size_t end = std::min(line.find_first_of("=<>~![; @#"), line.size());
    const std::string_view name = line.substr(0, end);
    all &= line.starts_with("-") || (!name.empty() && std::ranges::all_of(name, [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '\r';
           }));
  });
  return some && all;
}

void state_versions(const std::vector<StatedVersion>& stated, Draft& draft) {
  std::map<std::string, const StatedVersion*> first;
  for (const StatedVersion& its : stated) {
    if (its.version == parallel::Version{}) {
      draft.remark(RemarkKind::Assumed, its.by, "which PyTorch is in this container is not known here", its.place);
      continue;
    }
    const auto [before, is_new] = first.emplace(its.component, &its);
    if (is_new) continue;
    if (before->second != nullptr && before->second->version != its.version) {
      draft.remark(RemarkKind::Assumed, its.by,
                   fmt::format("line {} says {}: neither is taken", before->second->place.line, before->second->by),
                   its.place);
      before->second = nullptr;
    }
  }
  const std::string runtime = draft.text("runtime.name").value_or("megatron");
  for (const auto& [component, its] : first) {
    const std::string path = "runtime.versions." + component;
    if (its == nullptr || draft.find(path) != nullptr) continue;
    const auto known = std::ranges::find(parallel::known_releases(runtime), std::string_view(component),
                                         &parallel::KnownReleases::key);
    if (known == parallel::known_releases(runtime).end()) continue;  // it changes nothing of what is modelled here
    const bool older = its->version < known->first, newer = known->last < its->version;
    const parallel::Version taken = older ? known->first : newer ? known->last : its->version;
    draft.set(path, text(taken), its->place);
    draft.remark(RemarkKind::Assumed, its->by,
                 older || newer ? fmt::format("{} {} is {} than what is known here: taken as {}", component,
                                              text(its->version), older ? "older" : "newer", text(taken))
                                : fmt::format("{} {}", component, text(taken)),
                 its->place);
  }
}

// From transformers 5.0 on experts are parameters, beside which PEFT's ParamWrapper stops at any dropout
// (peft/utils/transformers_weight_conversion.py, tuners/lora/layer.py).
void state_release_of_experts(const parallel::Model& model, Draft& draft) {
  constexpr std::int64_t most_experts = 16;  // each is modules there: with 128 on 48 layers a prediction takes minutes
  constexpr std::string_view release = "runtime.versions.transformers", last_of_linears = "4.57";
  const TomlValue* const dropout = draft.find("adapter.dropout");
  if (dropout == nullptr || draft.find(release) != nullptr) return;
  const auto* const share = std::get_if<double>(&dropout->value);
  if (share == nullptr || *share <= 0 || !model.experts() || model.experts()->count > most_experts ||
      !parallel::transformers::models_layers_of(model))
    return;
  parallel::Adapter adapter;
  if (const TomlValue* const targets = draft.find("adapter.target_modules")) {
    adapter.all_linear = draft.text("adapter.target_modules") == "all-linear";
    if (const auto* const names = std::get_if<std::vector<TomlValue>>(&targets->value))
      for (const TomlValue& name : *names)
        if (const auto* const its = std::get_if<std::string>(&name.value)) adapter.targets.push_back(*its);
  }
  if (!parallel::transformers::expert_targets(adapter, model).any()) return;
  draft.set(release, std::string(last_of_linears), dropout->place);
  draft.remark(RemarkKind::Assumed, "transformers",
               fmt::format("{}, the last in which experts are linears: from 5.0 on PEFT stops at a dropout beside "
                           "experts",
                           last_of_linears),
               dropout->place);
}

}  // namespace tidemark::scenarios
