#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/input_error.hpp"

// Meta Lingua's configuration (437d680e) for apps/main/train.py: Llama's layers, each a unit of fully_shard that stays
// gathered behind its pass forward, and AdamW in one kernel (lingua/distributed.py, lingua/optim.py).

namespace tidemark::scenarios {
namespace {

class LinguaReader {
 public:
  LinguaReader(const TomlTable& whole, Draft& draft) : given_(whole.keys, "", draft), draft_(draft) {}

  void read() {
    draft_.starts_all = "torchrun";
    read_model();
    read_ranks();
    read_batch();
    read_optimizer();
    draft_.set("runtime.switches.use_cache", false);
    given_.no_matter(std::array<std::string_view, 14>{"name", "dump_dir", "steps", "seed", "gc_collect_freq",
                                                      "probe_freq", "profiling", "checkpoint", "logging",
                                                      "async_eval_gpus", "eval", "env", "nodes", "slurm"},
                     "of data, checkpoints and logs");
    given_.refuse_the_rest("is no key of Lingua's that is known here");
    draft_.remark_bounded("Lingua",
                          "the figures are of transformers' modules with this model, layout and batch; Lingua's turn "
                          "queries and keys in fp32, and save norms in it",
                          "lingua", given_.place("model"));
  }

 private:
  // Of what is left out, too, where a default asks for it.
  void open(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotExpressed, std::string(key), not_modelled(std::move(why)), of.place(key));
  }
  void leave_unjudged(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotJudged, std::string(key), std::move(why), of.place(key));
  }

  // apps/mamba, apps/mtp, apps/aunet and apps/fastRNN have models of their own.
  void refuse_other_apps(Given& its) {
    for (const std::string_view key : {"state_dim", "conv_size", "n_future_head", "dimensions", "lru_dim_multiplier",
                                       "n_groups", "ssm_chunk_size", "residuals"})
      if (its.has(key)) open(its, key, fmt::format("{}: of another app than main, which is not modelled", key));
  }

  void read_model() {
    Given its = given_.table("model");
    refuse_other_apps(its);
    // lingua/transformer.py BaseTransformerArgs, BaseTransformer.
    const std::int64_t hidden = its.integer("dim").value_or(512);
    std::int64_t heads = its.integer("n_heads").value_or(0);
    const std::int64_t of_head = its.integer("head_dim").value_or(heads > 0 ? hidden / heads : 0);
    if (heads == 0 && of_head > 0) heads = hidden / of_head;
    if (draft_.find("model") == nullptr) draft_.set("model", std::string("models/llama-2-7b.json"), its.place("dim"));
    for (const auto& [key, value] : {std::pair<std::string_view, std::int64_t>{"hidden_size", hidden},
                                     {"num_attention_heads", heads},
                                     {"num_key_value_heads", its.integer("n_kv_heads").value_or(heads)},
                                     {"num_hidden_layers", its.integer("n_layers").value_or(8)},
                                     {"intermediate_size", width(its, hidden)}})
      draft_.set(fmt::format("model_override.{}", key), value, its.place("dim"));
    if (const auto tokens = its.integer("vocab_size"); tokens && *tokens > 0)
      draft_.set("model_override.vocab_size", *tokens, its.place("vocab_size"));
    else
      assume_vocabulary();
    draft_.set("model_override.tie_word_embeddings", its.flag("weight_tying").value_or(false),
               its.place("weight_tying"));
    if (its.has("sliding_window") && its.take("sliding_window") != nullptr)
      leave_unjudged(its, "sliding_window", "the figures are without a window of keys");
    its.no_matter(std::array<std::string_view, 8>{"rope_theta", "norm_eps", "init_base_std", "init_std_factor",
                                                  "max_seqlen", "seed", "multiple_of", "ffn_dim_multiplier"},
                  "of how weights begin, or a number that shapes nothing");
    its.refuse_the_rest("is no key of Lingua's models that is known here");
  }

  // lingua/transformer.py FeedForward: two thirds of four times the width, times a number, up to a multiple.
  std::int64_t width(Given& its, std::int64_t hidden) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    const std::int64_t multiple = std::max<std::int64_t>(its.integer("multiple_of").value_or(256), 1);
    std::int64_t wide = std::min(2 * std::clamp<std::int64_t>(4 * std::min(hidden, most), 0, most) / 3, most);
    if (const auto times = its.number("ffn_dim_multiplier"); times && *times > 0 && *times < 1e6)
      wide = static_cast<std::int64_t>(std::floor(*times * static_cast<double>(wide)));
    return multiple * ((wide + multiple - 1) / multiple);
  }

  // apps/main/train.py: of the tokenizer, whose file is not here.
  void assume_vocabulary() {
    constexpr std::int64_t of_bytes = 258, of_llama_3 = 128'256;
    Given data = given_.table("data");
    Given tokenizer = data.table("tokenizer");
    const std::string name = tokenizer.text("name").value_or("bytes"), path = tokenizer.text("path").value_or("");
    // lingua/tokenizer.py TikTokenTokenizer: 256 reserved ones beside 128,000.
    if (name == "tiktoken" && path.find("128k") != std::string::npos) {
      draft_.set("model_override.vocab_size", of_llama_3);
      return draft_.remark(RemarkKind::Assumed, "data.tokenizer.path", "has 128256 tokens, as its name says",
                           tokenizer.place("path"));
    }
    draft_.set("model_override.vocab_size", name == "bytes" ? of_bytes : of_llama_3);
    if (name != "bytes")
      draft_.remark_bounded("data.tokenizer", "the vocabulary is its own, which is not read: the figures are of 128256",
                            "vocabulary", data.place("tokenizer"));
  }

  void read_ranks() {
    Given its = given_.table("distributed");
    const std::int64_t shards = its.integer("dp_shard").value_or(1), replicas = its.integer("dp_replicate").value_or(1);
    draft_.set("runtime.name", std::string("fsdp2"), given_.place("distributed"));
    draft_.set("layout.sharding", std::string("zero2"), its.place("fsdp_type"));
    if (its.text("fsdp_type").value_or("no_shard") != "full_shard")
      leave_unjudged(its, "fsdp_type", "the figures are of full_shard");
    if (its.integer("tp_size").value_or(1) > 1)
      open(its, "tp_size", "layers that Lingua cuts over tensor ranks are not modelled");
    // apps/main/train.py validate_train_args: replicas are what the number of devices leaves.
    if (draft_.find("gpus") == nullptr && product({shards, replicas}) > 1)
      draft_.set("gpus", product({shards, replicas}), its.place("dp_shard"));
    const std::int64_t gpus = draft_.integer("gpus").value_or(0);
    if (shards > 1 && gpus > shards && gpus % shards == 0)
      draft_.set("layout.shard_group", shards, its.place("dp_shard"));
    const std::string type = its.text("model_dtype").value_or("bf16");
    if (type != "bf16" && type != "fp16" && type != "fp32") open(its, "model_dtype", "is no type that Lingua takes");
    draft_.set("train.precision", type, its.place("model_dtype"));
    draft_.type_said = true;
    if (type != "fp32") draft_.set("runtime.switches.reduce_dtype", std::string("fp32"));
    if (its.flag("selective_activation_checkpointing").value_or(false))
      leave_unjudged(its, "selective_activation_checkpointing",
                     "the figures are without it: products are kept and all else is run again");
    if (its.flag("compile").value_or(false))
      its.tell_bounded("compile", "the figures are of layers that are not compiled", "compiled-layers");
    if (its.has("float8_recipe") && its.take("float8_recipe") != nullptr)
      leave_unjudged(its, "float8_recipe", "the figures are of linears in half precision");
    its.no_matter(std::array<std::string_view, 6>{"matmul_allow_tf32", "allow_bf16_reduced_precision_reduction",
                                                  "detect_anomaly", "compile_cache_size_limit", "spawn_method",
                                                  "float8_filter"});
    its.refuse_the_rest("is no key of Lingua's distributed that is known here");
  }

  void read_batch() {
    Given its = given_.table("data");
    draft_.set("train.sequence_length", its.integer("seq_len").value_or(2048), its.place("seq_len"));
    draft_.set("train.micro_batch", its.integer("batch_size").value_or(2), its.place("batch_size"));
    draft_.accumulation = given_.integer("grad_acc_steps").value_or(1);
  }

  void read_optimizer() {
    Given its = given_.table("optim");
    draft_.set("runtime.switches.fused", true);
    draft_.set("runtime.switches.max_grad_norm", its.number("clip").value_or(1.0), its.place("clip"));
    draft_.set("runtime.switches.weight_decay", its.number("weight_decay").value_or(0.1), its.place("weight_decay"));
    its.no_matter(std::array<std::string_view, 12>{"lr", "epsilon", "beta1", "beta2", "scheduler", "warmup",
                                                   "lr_min_ratio", "cycle_length", "cosine_theta", "annealing_step",
                                                   "decay_fraction", "exp_factor"},
                  "how far a step goes");
    its.refuse_the_rest("is no key of Lingua's optim that is known here");
  }

  Given given_;
  Draft& draft_;
};

}  // namespace

void read_lingua(const TomlTable& document, Draft& draft) {
  draft.own_defaults = true;
  LinguaReader(document, draft).read();
}

}  // namespace tidemark::scenarios
