#pragma once

#include <cstdint>
#include <string_view>

#include "parallel/job/layout.hpp"
#include "scenarios/formats/toml_reader.hpp"

namespace tidemark::scenarios {

/// The keys schedule, chunks, stage_layers, first_stage_layers and last_stage_layers of [layout].
void read_schedule(TomlReader& table, Layout& layout);
/// What is wrong with them together.
void check_schedule(TomlReader& table, const Layout& layout);

/// Megatron's switch that says how many micro-batches a chunk runs in a row, and its value; 0 where it is left out.
inline constexpr std::string_view chunk_group_switch = "microbatch-group-size-per-virtual-pipeline-stage";
[[nodiscard]] std::int32_t read_chunk_group(TomlReader& switches);

/// What is wrong with layers, stages and micro-batches together, where all that it depends on is known.
void check_stages(TomlReader& table, std::int32_t layers, const Layout& layout);
void check_interleaving(TomlReader& table, const Layout& layout, std::int64_t micro_batches);

}  // namespace tidemark::scenarios
