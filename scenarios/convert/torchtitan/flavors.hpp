#pragma once

#include <array>
#include <string_view>

namespace tidemark::scenarios {

/// What torchtitan calls a model, and which one that is.
struct TitanFlavor {
  std::string_view name, flavor, model;
};
inline constexpr std::array titan_flavors{
    TitanFlavor{"llama3", "8B", "models/llama-3.1-8b.json"},
    TitanFlavor{"llama3", "70B", "models/llama-3.1-70b.json"},
    TitanFlavor{"llama3", "405B", "models/llama-3.1-405b.json"},
    TitanFlavor{"qwen3", "8B", "models/qwen3-8b.json"},
    TitanFlavor{"qwen3", "32B", "models/qwen3-32b.json"},
    TitanFlavor{"qwen3", "30B-A3B", "models/qwen3-30b-a3b.json"},
    TitanFlavor{"qwen3", "235B-A22B", "models/qwen3-235b-a22b.json"},
    // torchtitan/models/qwen3/__init__.py: as the checkpoints are.
    TitanFlavor{"qwen3", "0.6B", "Qwen/Qwen3-0.6B"},
    TitanFlavor{"qwen3", "1.7B", "Qwen/Qwen3-1.7B"},
    TitanFlavor{"qwen3", "4B", "Qwen/Qwen3-4B"},
    TitanFlavor{"qwen3", "14B", "Qwen/Qwen3-14B"},
    // torchtitan/models/llama/__init__.py of releases before 0.1.
    TitanFlavor{"llama2", "7B", "models/llama-2-7b.json"},
    TitanFlavor{"llama2", "13B", "models/llama-2-13b.json"},
    TitanFlavor{"llama2", "70B", "models/llama-2-70b.json"},
    TitanFlavor{"deepseek_v3", "16B", "models/deepseek-v2-lite.json"},
    TitanFlavor{"deepseek_v3", "236B", "models/deepseek-v2.json"},
    TitanFlavor{"deepseek_v3", "671B", "models/deepseek-v3.json"},
};

}  // namespace tidemark::scenarios
