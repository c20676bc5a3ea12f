#include "scenarios/reader/quantization_reader.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/scenario/module_list.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

// functional.py quantize_4bit.
constexpr std::array<std::int64_t, 8> block_sizes{32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr IntegerRange any_block{1, 4096};
constexpr Ratio most_threshold{std::int64_t{1'000'000'000'000}};

void read_block(TomlReader& table, Quantization& requested) {
  requested.block = table.integer("block_size", any_block).value_or(requested.block);
  if (!table.sound("block_size") || std::ranges::find(block_sizes, requested.block) != block_sizes.end()) return;
  table.problem("block_size", fmt::format("block_size = {}: bitsandbytes has no such blocks", requested.block),
                fmt::format("{} would do", fmt::join(block_sizes, ", ")));
}

void refuse_keys_of_others(TomlReader& table, QuantizedFormat format) {
  if (!table.sound("format")) return;
  const bool bytes = format == QuantizedFormat::Int8;
  const auto refuse = [&](std::string_view key) {
    if (table.has(key))
      table.problem(key, fmt::format("{} is of bases in {} bits", key, bytes ? 4 : 8),
                    bytes ? "leave it out, or set format = \"nf4\"" : "leave it out, or set format = \"int8\"");
  };
  if (!bytes) return refuse("threshold");
  for (const std::string_view key : {"double_quant", "block_size", "compute_dtype", "storage_dtype"}) refuse(key);
}

// Linear8bitLt as it is from 0.45 on, with rows of codes as they are; before, they are laid out for the device, too.
void check_int8(const Scenario& requested, ScenarioTables& tables, bool flat) {
  if (flat)
    tables.quantization.problem(
        "format", "format = \"int8\": sharded parameters are floating-point numbers, and 8-bit codes are not",
        "\"nf4\" with storage_dtype would do");
  if (requested.runtime.versions.bitsandbytes < Version{0, 45})
    tables.quantization.problem(
        "format",
        not_modelled(fmt::format("format = \"int8\" of bitsandbytes {} is not modelled: it keeps codes in a "
                                 "layout of the device's",
                                 text(requested.runtime.versions.bitsandbytes))),
        "bitsandbytes = \"0.45\" or later in [runtime.versions] would do");
}

// The engine makes all that has a point the type that is computed in (_cast_module_mixed_precision), what was prepared
// in fp32 too, and codes that are kept so. Stages 1 and 2 leave parameters where they are; what stage 3 partitions was
// there first.
void settle_under_zero(Scenario& requested, ScenarioTables& tables) {
  const ZeroBehavior& zero = requested.runtime.eager.zero;
  Quantization& its = *requested.train.quantization;
  const bool partitions = requested.layout.sharding == Sharding::Zero3;
  if (!partitions && (zero.offload_optimizer || zero.offload_parameters))
    tables.top.problem(
        "quantization",
        not_modelled(
            "quantization: a quantized base under DeepSpeed's stages 1 and 2 with [offload] is not modelled yet"),
        "leave [offload] out, or set sharding = \"zero3\"");
  const DType precision = requested.train.precision;
  if (its.stored && *its.stored != precision && precision != DType::FP32 && tables.quantization.sound("storage_dtype"))
    tables.quantization.problem("storage_dtype",
                                fmt::format("storage_dtype = \"{}\": DeepSpeed casts codes that are kept as numbers, "
                                            "too, to precision = \"{}\"",
                                            name(*its.stored), name(precision)),
                                fmt::format("\"{}\" or \"uint8\" would do", name(precision)));
  if (!partitions) its.prepared = Prepared::Nothing;
}

// Under fully_shard. _fsdp_param.py init_dtype_attrs: a param_dtype would make other numbers of codes.
void check_units(const Scenario& requested, TomlReader& table) {
  const Quantization& its = *requested.train.quantization;
  const bool bytes = its.format == QuantizedFormat::Int8;
  const bool one_type = requested.train.master_dtype == requested.train.precision;
  if (!bytes && (!its.stored || *its.stored != requested.train.precision || !one_type) && table.sound("storage_dtype"))
    table.problem(
        "storage_dtype",
        fmt::format("storage_dtype = \"{}\": fully_shard gathers parameters in precision = \"{}\", and so would "
                    "convert codes of another type",
                    word(storage_names, its.stored), name(requested.train.precision)),
        fmt::format("\"{0}\" and master_dtype = \"{0}\" would do", name(requested.train.precision)));
  if (its.prepared != Prepared::Nothing && table.sound("prepare"))
    table.problem("prepare",
                  not_modelled(fmt::format("prepare = \"{}\" under fully_shard is not modelled yet",
                                           word(prepared_names, its.prepared))),
                  "\"none\" would do");
}

// Under FullyShardedDataParallel. _flat_param.py _validate_tensors_to_flatten: "Must flatten tensors with uniform
// dtype".
void check_flattened(const Scenario& requested, TomlReader& table) {
  const Quantization& its = *requested.train.quantization;
  const bool bytes = its.format == QuantizedFormat::Int8;
  if (!bytes && (!its.stored || *its.stored != requested.train.master_dtype) && table.sound("storage_dtype"))
    table.problem("storage_dtype",
                  fmt::format("storage_dtype = \"{}\": FullyShardedDataParallel flattens codes with parameters in "
                              "master_dtype = \"{}\"",
                              word(storage_names, its.stored), name(requested.train.master_dtype)),
                  fmt::format("\"{}\" would do", name(requested.train.master_dtype)));
  if (its.prepared != Prepared::Nothing && requested.train.master_dtype != DType::FP32 && table.sound("prepare"))
    table.problem("prepare",
                  fmt::format("prepare = \"{}\": FullyShardedDataParallel flattens parameters of one type only",
                              word(prepared_names, its.prepared)),
                  "\"none\" would do");
}

void settle_skipped_modules(Scenario& requested, ScenarioTables& tables) {
  Quantization& its = *requested.train.quantization;
  TomlReader& table = tables.quantization;
  if (!tables.model_sound || !parallel::transformers::models_layers_of(requested.model) || !table.sound("skip_modules"))
    return;
  const std::vector<parallel::transformers::ModuleName> modules = parallel::transformers::module_names(
      requested.model, parallel::transformers::has_fused_experts(requested.runtime.versions));
  if (table.has("skip_modules"))
    for (const std::string& name : its.skipped) {
      const auto is_meant = [&](const parallel::transformers::ModuleName& m) {
        return parallel::transformers::is_or_ends(m.path, name);
      };
      if (std::ranges::none_of(modules, is_meant))
        report_unknown_module(table, "skip_modules", name, requested.model, modules);
    }
  const std::string head = parallel::transformers::path_of(requested.model, "lm_head");
  if (!table.has("skip_modules")) its.skipped = {head};
  const auto is_head = [&](const std::string& name) { return parallel::transformers::is_or_ends(head, name); };
  if (table.sound("skip_modules") && std::ranges::none_of(its.skipped, is_head))
    table.problem("skip_modules",
                  not_modelled(fmt::format("skip_modules without {}: a quantized head is not modelled yet", head)),
                  "name it, too");
}

}  // namespace

std::optional<Quantization> read_quantization(TomlReader& table) {
  if (!table.present()) return std::nullopt;
  Quantization requested;
  requested.format =
      read_name(table, "format", quantized_format_names, {}, Presence::Required).value_or(QuantizedFormat::Nf4);
  requested.nested = table.boolean("double_quant").value_or(false);
  read_block(table, requested);
  if (const auto given = read_name(table, "compute_dtype", precision_names)) requested.computed = *given;
  requested.stored = read_name(table, "storage_dtype", storage_names).value_or(std::nullopt);
  if (const auto given = table.ratio("threshold", Ratio{}, most_threshold)) requested.threshold = as_double(*given);
  refuse_keys_of_others(table, requested.format);
  (void)table.raw("skip_modules");
  requested.skipped = table.has("skip_modules") ? read_module_list(table, "skip_modules", "such as [\"lm_head\"]")
                                                : std::vector<std::string>{"lm_head"};
  requested.prepared = read_name(table, "prepare", prepared_names).value_or(Prepared::All);
  table.refuse_unknown_keys();
  return requested;
}

void settle_quantization(Scenario& requested, ScenarioTables& tables) {
  if (!requested.train.quantization) return;
  Quantization& its = *requested.train.quantization;
  TomlReader& table = tables.quantization;
  const RuntimeKind& runtime = runtime_kind(requested.runtime.name);
  const bool flat = runtime.id == RuntimeId::Fsdp, by_rows = runtime.id == RuntimeId::Fsdp2;
  const bool zero = runtime.id == RuntimeId::DeepSpeed;
  if (runtime.id != RuntimeId::PyTorch && !flat && !by_rows && !zero) {
    tables.top.problem(
        "quantization",
        not_modelled(fmt::format("quantization: a quantized base under {} is not modelled yet", runtime.name)),
        "[runtime] name = \"pytorch\" would do");
    return;
  }
  if (zero) settle_under_zero(requested, tables);
  const bool bytes = its.format == QuantizedFormat::Int8;
  if (bytes) check_int8(requested, tables, flat || by_rows);
  if (by_rows) check_units(requested, table);
  if (!tables.top.has("adapter"))
    tables.top.problem("quantization", "quantization: nothing would be trained, because codes have no gradients",
                       "add a table [adapter] that gives the trained adapters");
  if (flat) check_flattened(requested, table);
  // What norms give is fp32 then, and torch.nn.functional.linear takes one type.
  const bool autocasts =
      requested.runtime.eager.autocast.value_or(requested.train.master_dtype != requested.train.precision);
  if (its.prepared == Prepared::Norms && requested.train.master_dtype != DType::FP32 && !flat && !zero && !autocasts &&
      table.sound("prepare"))
    table.problem("prepare", "prepare = \"norms\": without autocast the head, which is not fp32, would get fp32 inputs",
                  "autocast = true in [runtime.switches], as TRL has it, or \"all\"");
  if (!table.has("compute_dtype")) its.computed = requested.train.precision;
  settle_skipped_modules(requested, tables);
}

}  // namespace tidemark::scenarios
