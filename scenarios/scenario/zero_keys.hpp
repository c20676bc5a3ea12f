#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/formats/toml_reader.hpp"

// What DeepSpeed is told, under its own names: by a ds_config.json, or by [runtime.switches].

namespace tidemark::scenarios {

/// What of DeepSpeed's lies where: device.
enum class OffloadPlace : std::uint8_t { None, Cpu, Nvme };
inline constexpr std::array<std::string_view, 3> offload_places{"none", "cpu", "nvme"};

/// offload_optimizer or offload_param.
struct ZeroOffloadKeys {
  std::optional<OffloadPlace> place;
  std::optional<bool> pins;
  std::optional<Ratio> ratio;                        ///< of the optimizer
  std::map<std::string_view, std::int64_t> numbers;  ///< of NVMe; switches that are on count 1
  bool operator==(const ZeroOffloadKeys&) const = default;
};

/// Keys that were given. Switches that are on count 1.
struct ZeroKeys {
  std::map<std::string_view, std::int64_t> numbers;
  ZeroOffloadKeys optimizer, parameters;
  std::optional<bool> forces_cpu_adam;  ///< zero_force_ds_cpu_optimizer
  bool checkpointing = false;           ///< a section activation_checkpointing
  std::optional<Ratio> clipping;
  std::optional<DType> accumulation;
};

/// A ds_config.json.
struct DsConfig {
  ZeroKeys keys;
  std::optional<std::int64_t> stage, batch, micro_batch, micro_batches;
  std::optional<DType> precision;
  std::optional<bool> fused_adam;  ///< DeepSpeed makes an Adam of its own, or torch's
};

/// What a scenario says of both kinds.
struct ZeroRequest {
  ZeroKeys switches;
  std::optional<DsConfig> config;
  std::string file;  ///< as the scenario names it
};

/// Whether an optimizer on the host is DeepSpeedCPUAdam, and not one of PyTorch's.
[[nodiscard]] bool has_cpu_adam(const ZeroKeys& keys);

/// Reads the keys of a table of switches.
[[nodiscard]] ZeroKeys read_zero_keys(TomlReader& table);

/// The keys of zero_optimization that are switches, too, each a number or a truth.
[[nodiscard]] std::vector<std::string_view> zero_switches();

/// Reads a ds_config.json; throws InputError. What DeepSpeed has and is not modelled is a problem.
[[nodiscard]] DsConfig parse_ds_config(std::string_view text, const std::filesystem::path& file);

/// The habits that the keys come to; overlap_comm left out is as the stage has it.
[[nodiscard]] ZeroBehavior behavior_of(const ZeroKeys& keys, bool partitions_parameters, DType precision);
/// The keys of those habits that are numbers, under their names.
[[nodiscard]] std::map<std::string, std::int64_t> zero_numbers(const ZeroBehavior& behavior);

}  // namespace tidemark::scenarios
