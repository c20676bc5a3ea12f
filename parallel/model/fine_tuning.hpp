#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/namespace.hpp"
#include "sim/base/dtype.hpp"

// What of a model is trained, and how the rest of it is kept, where that is not all of it.

namespace tidemark::parallel {

/// What is trained beside a frozen linear: two narrow ones (PEFT's LoRA), or these and what each of its outputs is
/// scaled by (DoRA).
enum class AdapterMethod : std::uint8_t { Lora, Dora };

/// PEFT's adapters of a frozen model.
struct Adapter {
  AdapterMethod method = AdapterMethod::Lora;
  std::int64_t rank = 8;
  double alpha = 8;  ///< what an adapter gives is multiplied by alpha / rank
  double dropout = 0;
  bool all_linear = false;                   ///< target_modules = "all-linear": all but the head
  std::vector<std::string> targets = {};     ///< else these: names of modules, or their ends after a dot
  std::vector<std::string> saved = {};       ///< modules_to_save: copies of them are trained whole
  std::optional<DType> dtype = DType::FP32;  ///< of adapters (autocast_adapter_dtype); none: that of their linears
  bool operator==(const Adapter&) const = default;
};

enum class QuantizedFormat : std::uint8_t { Nf4, Fp4, Int8 };

/// What of a model that is not quantized is made fp32 before it is trained: all (PEFT's
/// prepare_model_for_kbit_training), or norms alone, where TRL makes embeddings and head narrow again
/// (peft_module_casting_to_bf16).
enum class Prepared : std::uint8_t { Nothing, Norms, All };

/// bitsandbytes' linears over frozen weights of a few bits.
struct Quantization {
  QuantizedFormat format = QuantizedFormat::Nf4;
  bool nested = false;                    ///< of 4 bits: scales of blocks are quantized, too
  std::int64_t block = 64;                ///< weights of 4 bits that share a scale
  DType computed = DType::BF16;           ///< bnb_4bit_compute_dtype
  double threshold = 6;                   ///< of 8 bits: inputs from there on are outliers (llm_int8_threshold)
  std::optional<DType> stored = {};       ///< bnb_4bit_quant_storage; none: bytes
  std::vector<std::string> skipped = {};  ///< modules that are left as they are
  Prepared prepared = Prepared::All;
  bool operator==(const Quantization&) const = default;
};

}  // namespace tidemark::parallel
