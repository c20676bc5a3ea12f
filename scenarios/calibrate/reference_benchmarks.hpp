#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// Small jobs whose kernels stand for those of others: two families of models, in fp32 and bf16, in four sizes, whole
/// on a rank or over two. Names of those that so many ranks can run side by side.
[[nodiscard]] std::vector<std::string> reference_benchmark_names(std::int32_t ranks, bool brief);
/// The scenario of that name, or of that file.
[[nodiscard]] Scenario reference_benchmark(const std::string& name, const std::filesystem::path& data_root);

}  // namespace tidemark::scenarios
