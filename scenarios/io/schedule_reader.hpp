#pragma once

#include "parallel/layout.hpp"
#include "scenarios/io/toml_reader.hpp"

namespace tidemark::scenarios {

/// The keys schedule, chunks, stage_layers, first_stage_layers and last_stage_layers of [layout].
void read_schedule(TomlReader& table, Layout& layout);
/// What is wrong with them together.
void check_schedule(TomlReader& table, const Layout& layout);

/// The switch that says how many micro-batches a chunk runs in a row; 0 where it is left out.
[[nodiscard]] std::int32_t read_chunk_group(TomlReader& switches);

/// What is wrong with layers, stages and micro-batches together, where all that it depends on is known.
void check_stages(TomlReader& table, std::int32_t layers, const Layout& layout);
void check_interleaving(TomlReader& table, const Layout& layout, std::int64_t micro_batches);

}  // namespace tidemark::scenarios
