#include "scenarios/convert/nemo/names.hpp"

namespace tidemark::scenarios {

const std::vector<OfNoMatter>& nemo_keys() {
  static const std::vector<OfNoMatter> keys{
      {"accumulate_grad_batches", {"1"}},
      {"activations_checkpoint_layers_per_pipeline", {"0"}},
      {"apex_transformer_log_level"},
      {"attention_type", {"\"multihead\""}},
      {"average_in_collective"},
      {"batch_p2p_comm"},
      {"betas"},
      {"bucket_cap_mb"},
      {"cpu_offloading_activations"},
      {"dist_ckpt_load_on_device"},
      {"dist_ckpt_parallel_dist_opt"},
      {"dist_ckpt_parallel_save"},
      {"dist_ckpt_torch_dist_multiproc"},
      {"drop_layers", {"[]"}},
      {"ffn_dropout", {"0"}},
      {"fsdp_grad_reduce_dtype"},
      {"fsdp_sharding_strategy"},
      {"gc_interval"},
      {"get_attention_mask_from_fusion"},
      {"grad_allreduce_chunk_size_mb"},
      {"grad_div_ar_fusion"},
      {"gradient_as_bucket_view"},
      {"hysteresis"},
      {"mcore_gpt", {"true"}},
      {"megatron_amp_O2", {"true"}},
      {"native_amp_growth_interval"},
      {"native_amp_init_scale"},
      {"normalize_attention_scores", {"true"}},
      {"num_micro_batches_with_partial_activation_checkpoints", {"0"}},
      {"overlap_p2p_comm", {"true"}},
      {"persist_layer_norm"},
      {"post_process", {"true"}},
      {"pre_process", {"true"}},
      {"reduce_amax"},
      {"scale_positional_embedding"},
      {"transformer_block_type", {"\"pre_ln\""}},
      {"transformer_engine", {"true"}},
      {"use_flash_attention"},
      {"use_scaled_init_method"},
  };
  return keys;
}

}  // namespace tidemark::scenarios
