#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "scenarios/scenario/scenario.hpp"
#include "tests/namespace.hpp"

// A recorded training as the scenario file that a user would write of it, and what the reader makes of that file.

namespace tidemark::tests::golden {

/// The name under which such a file names its model: the recording's own config.json.
inline constexpr const char* recorded_model = "config.json";

/// Of record_fake.py, record_sharded.py, record_flat.py, record_zero.py, record_saved.py and record_compiled.py.
[[nodiscard]] std::string recording_toml(const nlohmann::json& recording);
/// Of record_titan.py.
[[nodiscard]] std::string titan_toml(const nlohmann::json& recording);
/// Of record_megatron.py: pretrain_gpt.py's own flags, which `convert` reads.
[[nodiscard]] std::string megatron_toml(const nlohmann::json& recording);
/// Of one run of record_gpu.py plain_runs, with the versions of all of them.
[[nodiscard]] std::string gpu_run_toml(const nlohmann::json& run, const nlohmann::json& versions);

/// What the reader makes of `toml`, with the recording's config.json as its model.
[[nodiscard]] Scenario read_recording(const nlohmann::json& recording, const std::string& toml);

}  // namespace tidemark::tests::golden
