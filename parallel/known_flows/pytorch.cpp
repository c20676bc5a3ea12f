#include "parallel/known_flows/tables.hpp"

// PyTorch 2 and transformers, and what is built on them.

namespace tidemark::parallel {
namespace {

using enum FlowKind;

constexpr std::string_view
    loop = "variables of the training loop, and the collator's batch, live until the next are there",
    log_reads = "the host reads the loss, for the log",
    cached_projection =
        "keys and values that layers hand out, views of the joint projection, wait in the model's tuple of caches "
        "(transformers before 4.53, gpt_bigcode/modeling_gpt_bigcode.py forward)",
    whole_logits =
        "logits of all places are computed, and those of the last one shifted out "
        "(transformers models' compute_loss)",
    padded_labels =
        "labels are shifted, and some versions pad them with what the loss ignores (transformers loss_utils.py "
        "ForCausalLMLoss)",
    packed =
        "where sequences begin is counted whether or not anybody packs them "
        "(transformers masking_utils.py find_packed_sequence_indices)",
    second_run_ends =
        "the second run of a checkpointed region ends with an output that nobody asks for "
        "(torch/utils/checkpoint.py CheckpointFunction.backward)",
    forward_variables = "variables of a module's forward function live until it returns (transformers modeling_*.py)",
    unpacked =
        "what a node is handed and unpacks lives until its backward pass is over "
        "(torch/csrc/autograd/generated/Functions.cpp)",
    held_by_context =
        "a context holds what its product was given until the graph goes "
        "(bitsandbytes/autograd/_functions.py MatMul8bitLt)",
    no_outliers = "inputs are searched for outliers, and none is found (bitsandbytes/backends/cuda/ops.py)",
    until_zeroed = "gradients, and buckets that hold them, live until zero_grad or the next forward pass",
    reduced_waits =
        "what was reduced over replicas is kept until the next unit waits for that "
        "(_fsdp_param_group.py AllReduceState)",
    whole_gradient =
        "an embedding's gradient stays whole on every tensor rank until zero_grad, and the optimizer reads the rank's "
        "rows "
        "(torch/distributed/tensor/_ops/_embedding_ops.py)",
    next_denominator =
        "a loop's variable lives until the next parameter's is there "
        "(torch/optim/adam.py _single_tensor_adam)",
    step_variables_of =
        "variables of an optimizer's step live until the next parameter's are there (transformers/optimization.py "
        "Adafactor.step, torch/optim/_adafactor.py, _muon.py)",
    loss_by_kernel =
        "what fused losses make with gradients is written before it is clear who asks for it, and lives with their "
        "function (fms_acceleration_foak/kernels/unsloth/cross_entropy_loss.py, fused_ops/liger_ce)",
    shifted_states =
        "all tokens' hidden states but the last ones' are copied for the fused head "
        "(fms_acceleration_foak/fused_ops/liger_ce lce_forward)",
    filters_losses = "the host asks whether the loss is a number (transformers trainer.py _inner_training_loop)",
    counts_targets = "the host reads how many targets count (liger_kernel/ops/fused_linear_cross_entropy.py)",
    kept_size = "state[\"RMS\"] is kept, and read where learning rates are relative (transformers/optimization.py)",
    clipping = "variables of clip_grad_norm_ live until it returns (torch/nn/utils/clip_grad.py)",
    converted =
        "weights that autocast has converted stay until it ends, also where the region runs again "
        "(aten/src/ATen/autocast_mode.cpp cached_cast)",
    graph = "the graph that refers to it goes with the loss (torch/utils/checkpoint.py, reentrant)",
    sorted = "aten/src/ATen/native/cuda/Embedding.cu numbers the rows to sum in tensors of its own",
    unit_diagonal =
        "torch.eye zeroes its matrix, and writes the diagonal over that (aten/src/ATen/native/cuda/TensorFactories.cu)",
    made_to_copy = "torch.tril(torch.ones(...)): the ones go when the mask is there",
    next_copied_out =
        "what a unit is gathered into stays until the next one is copied out (fsdp/_fully_shard/ AllGatherState)",
    being_reduced =
        "what is reduced from stays until the next unit's backward pass is over (fsdp/_fully_shard/ "
        "ReduceScatterState)",
    engine_variables = "variables of DeepSpeedEngine.backward live until it returns (deepspeed/runtime/engine.py)",
    saved_for_frozen =
        "DeepSpeed's linear saves its input, whether or not its weight is trained (runtime/zero/linear.py)",
    zeroed_first = "gradients' partitions are zeroed, and the first pass writes over them (zero/stage3.py)",
    gathered_to_hook =
        "each parameter is gathered once while it is hooked (zero/stage3.py create_reduce_and_remove_grad_hooks)",
    own_codes =
        "a module's codes are gathered for it, of which it reads those that it has had all along "
        "(bitsandbytes/nn/modules.py Linear8bitLt)",
    cut_later =
        "a quantized model is made whole on every rank, which keeps its own part of each parameter "
        "(zero/partition_parameters.py _partition_param)",
    gathered_anyway =
        "a module's parameters are gathered for its backward pass whether or not that reads them "
        "(zero/parameter_offload.py)",
    gathered_together =
        "what several parameters were gathered into stays until the last is asked for (zero/partition_parameters.py "
        "AllGatherCoalescedHandle)",
    within_reach =
        "parameters stay gathered as far as limits of reuse and persistence allow "
        "(zero/partitioned_param_coordinator.py)",
    fetched_ahead =
        "the next parameters of the recorded order are gathered ahead, an embedding's too, whose backward pass does "
        "not "
        "read it (zero/partitioned_param_coordinator.py fetch_sub_module)",
    until_cleared = "gradients in bf16 live until the engine's zero_grad (runtime/bf16_optimizer.py clear_lp_grads)",
    clipped_everywhere = "all ranks clip whole gradients, of which each uses its own part (runtime/bf16_optimizer.py)",
    cleared_twice =
        "a step zeroes its gradients, and so does the engine's zero_grad (runtime/bf16_optimizer.py clear_hp_grads)",
    second_zeroed =
        "secondary parts are zeroed for their padding, and written over (zero/partition_parameters.py "
        "_partition_param_sec)",
    until_updated =
        "secondary parts of all parameters are made as these are given up, and go with the step, whether or not they "
        "are gathered again (zero/stage3.py invalidate_secondary_tensor)",
    ipg_variables = "variables of __reduce_and_partition_ipg_grads live until it returns (zero/stage3.py)",
    step_variables = "variables of a step live until it returns (zero/stage3.py, zero/stage_1_and_2.py)",
    cast_when_made =
        "a module makes a parameter in PyTorch's usual type, and zero.Init casts it before anything else sees it "
        "(deepspeed/runtime/zero/partition_parameters.py)",
    made_to_pin =
        "buffers of the host are zeroed and copied to pinned memory, and later written over; variables of what makes "
        "them live until it returns (zero/stage_1_and_2.py, zero/stage3.py, zero/partition_parameters.py)",
    comes_back =
        "gradients on the host go there after every pass, the last one's too, and come back to the device "
        "(zero/stage_1_and_2.py async_accumulate_grad_in_cpu_via_gpu, zero/stage3.py partition_grads)",
    zeroed_to_swap =
        "buffers for files are zeroed, and files and gradients written over that (swap_tensor/utils.py "
        "SwapBufferManager, partitioned_param_swapper.py)",
    waits_for_its_state =
        "gradients that are too small for files stay on the device until their sub-group's state is written "
        "(swap_tensor/optimizer_utils.py unswapped_gradients)",
    norms_wait = "parameters' norms are kept until the last is asked for (reset_cpu_buffers)",
    reported_norm = "the norm is kept for whoever asks (engine.py get_global_grad_norm)",
    summed_everywhere =
        "all ranks sum whole buckets, of which each keeps its own part, and whole gradients where they are partly its "
        "own (zero/stage_1_and_2.py allreduce_and_copy_with_multiple_ranks, copy_grads_in_partition)",
    end_of_buffer = "a flat buffer ends where all ranks' parts are as large (zero/stage_1_and_2.py)",
    host_reads_overflow = "the host reads whether a gradient is infinite (zero/stage_1_and_2.py has_overflow)",
    padded_shards = "padding is gathered with the rows of shards (fsdp/_fully_shard/ FSDPParam)",
    whole_unit = "a unit's parameters are gathered and given up together (fsdp/_fully_shard/ FSDPParamGroup)",
    flattened =
        "a unit's parameters are moved to the device and flattened whole before they are cut, and the states of the "
        "first rank take the place of others' (fsdp/_init_utils.py, _flat_param.py)",
    padded_flat = "padding between parameters, and after them, is gathered and reduced too (fsdp/_flat_param.py)",
    cast_anew =
        "without sharding the root is cast anew for its backward pass, the embedding too (fsdp/_runtime_utils.py)",
    behind_hooks =
        "what AccumulateGrad is handed lives until its hooks have run (torch/csrc/autograd/engine.cpp call_function)",
    until_next_forward =
        "where the optimizer sees parameters, the flat one keeps its gradient until the next forward pass begins "
        "(fsdp/_runtime_utils.py _reset_flat_param_grad_info_if_needed)",
    pinned_later =
        "until a unit is sharded again the optimizer's parameters are views of the shard as it was before it was "
        "pinned "
        "(fsdp/_flat_param.py init_flat_param_attributes, _use_sharded_views)",
    thought_new =
        "after a forward pass parameters show the pinned gradient, of which the flat one gets a copy that nobody reads "
        "(fsdp/_flat_param.py _writeback_orig_params)",
    comes_anyway = "from the host a shard comes whether or not it is gathered then (fsdp/_flat_param.py pre_unshard)",
    copied_to_host = "what was reduced stays until the backward pass is over (fsdp/_runtime_utils.py _finalize_params)",
    unpacked_anyway =
        "a node unpacks all that it saved, asked for or not (torch/csrc/autograd/generated/Functions.cpp)",
    gathered_ahead =
        "the unit that ran before is gathered ahead of its backward pass, and an embedding's reads no weight "
        "(fsdp/_fully_shard/_fsdp_param_group.py _backward_prefetch)",
    ring_seeds =
        "each step of the ring draws a seed and an offset, of which the first step's are kept "
        "(tensor/experimental/_context_parallel/_attention.py)",
    ring_gathers =
        "keys and values are put together at every step and gathered at the first, a rank's own too, and that of ranks "
        "of which it needs a part or nothing (tensor/experimental/_context_parallel/_attention.py)",
    ring_frame =
        "variables of _templated_ring_attention_backward live until it returns "
        "(tensor/experimental/_context_parallel/_attention.py)",
    cut_sequences =
        "sequences are rearranged whole before each rank keeps its part, and parts live with the functions that are "
        "handed them (torchtitan distributed/context_parallel.py, train.py)",
    titan_step = "variables of Trainer.train_step live until it returns (torchtitan train.py)",
    tokens_counted = "the host reads how many tokens all ranks have (torchtitan train.py Trainer.train_step)",
    never_recalled =
        "per-operation checkpointing keeps a last product that a layer which stops early never asks for "
        "(torch/utils/checkpoint.py create_selective_checkpoint_contexts)",
    fused_loss =
        "a fused kernel reads what it is given until it is over; of what it computes again, the loss itself is not "
        "asked for (torch/_inductor)",
    fused_part = "a fused kernel holds what it reads and makes between its steps until it is over (torch/_inductor)",
    input_requested =
        "what embeddings give asks for a gradient, and both stay with the graph, for nobody (transformers "
        "modeling_utils.py enable_input_require_grads)",
    cast_later = "adapters are of their linears' type until all are there (peft tuners_utils.py cast_adapter_dtype)",
    quantize_frame =
        "variables of quantize_4bit, and of what calls it, live until it returns (bitsandbytes functional.py)",
    reshard_hook =
        "the hook that reshards a frozen unit refers to the unit's input and that one's gradient until the backward "
        "pass is over (fsdp/_runtime_utils.py _register_post_backward_reshard_only_hook)",
    dtensor_variables =
        "variables of DTensor's operations, and what hooks of its parallel styles are handed, live until they return "
        "(torch/distributed/tensor/parallel/style.py, _ops/_embedding_ops.py)",
    whole_embedding =
        "an embedding's gradient is whole on every rank, of which each keeps its rows (torch/distributed/tensor)",
    weight_of_all =
        "how much all targets weigh is kept for a backward pass that does not ask (torch/distributed/tensor/parallel/"
        "loss.py)",
    gathered_again =
        "what products that are kept were given is gathered once more in the second run (torch/utils/checkpoint.py)",
    merged =
        "outputs of all micro-batches are put together for whoever asked (torch/distributed/pipelining/microbatch.py)",
    probed =
        "before the first step a micro-batch goes through each stage for the sizes of what it hands over "
        "(torch/distributed/pipelining/stage.py _forward_metadata_inference)",
    every_stage =
        "every stage is handed the batch, of which the first one reads inputs and the last one labels (torchtitan "
        "train.py Trainer.train_step)",
    being_sent =
        "what is sent is referred to until that is waited for, or the next is sent "
        "(torch/distributed/pipelining/schedules.py _step_microbatches)",
    received =
        "variables of a schedule refer to what came last, and the graph of the step's loss to all that the last stage "
        "was handed (torch/distributed/pipelining/schedules.py, stage.py stage_backward)",
    last_output =
        "the last stage refers to what it made until its backward pass is over "
        "(torch/distributed/pipelining/stage.py backward_one_chunk)",
    loss_logged = "the sum of a step's losses is for the log (torchtitan train.py Trainer.train_step)",
    until_last_weight =
        "where weights get their gradients later, their operations hold those before them, and what these saved, until "
        "the last weight has its own (torch/distributed/pipelining/_backward.py stage_backward_weight)",
    weight_by_weight =
        "where weights get their gradients later, those of one live until the next one's are there "
        "(torch/distributed/pipelining/_backward.py stage_backward_weight)";

constexpr std::string_view saved_bias =
    "what a LayerNorm's bias is converted to under autocast is saved, though its backward pass reads none of it "
    "(tools/autograd/derivatives.yaml native_layer_norm)";

constexpr std::string_view random_numbers =
    "without dropout, too, the memory-efficient kernel and cuDNN's give tensors that would say where their random "
    "numbers begin, and save them (aten/src/ATen/native/transformers/cuda/attention.cu, derivatives.yaml)";

constexpr std::string_view
    made_for_masks =
        "numbers of sequences, heads, queries and keys are made for any mask, and live until it is there "
        "(transformers masking_utils.py)",
    mask_of_all = "a variable of the model's forward function (transformers modeling_*.py causal_mask_mapping)",
    cached_window = "the cache that layers hand on lives until the loss is there (transformers cache_utils.py)";

constexpr std::string_view
    beyond_groups =
        "there is room for as many rows as padding could take, whose values nobody asks for; they are gathered, "
        "activated "
        "and put back as the others are (torchtitan/models/moe/utils.py _permute, _unpermute)",
    filled_first =
        "filled, and then written (torchtitan/models/moe/kernels.py fill_indices_wrapper, moe.py MoE.forward)",
    given_besides =
        "functions give more than is asked for: values of top-k, sorted numbers, scores in the order of experts "
        "(torchtitan/models/moe/moe.py)",
    own_chunk =
        "all tensor-parallel ranks have a router's whole gradient, of which each takes its part of the sequence "
        "(torch/distributed/tensor/placement_types.py Shard._replicate_to_shard)",
    ends_of_groups = "kernels read where groups end, and so their node saves it; programs say it in sizes",
    until_next_pass =
        "an attribute of ExpertParallel until the layer runs again (torchtitan/distributed/expert_parallel.py)",
    masks_of_blocks =
        "variables of Trainer.forward_backward_step live until it returns; flex_attention's kernels read which blocks "
        "are seen, programs say it in sizes (torchtitan train.py, torch/nn/attention/flex_attention.py)",
    kept_by_region =
        "per-operation checkpointing keeps all that a compiled region returns, queries, keys and values among it; "
        "those that "
        "run again nobody needs (torch/_higher_order_ops inductor_compiled_code)",
    counted_before =
        "per-operation checkpointing keeps what ranks told each other of it "
        "(torchtitan/models/deepseek_v3/infra/parallelize.py _op_sac_save_list)",
    layer_by_layer =
        "counts of all layers in one tensor, which goes when the last has been moved by its row "
        "(torchtitan/components/optimizer.py _update_expert_bias)",
    expert_frame =
        "numbers of experts are converted for torch.histc, and where they stand in order is found with them "
        "(transformers integrations/moe.py grouped_mm_experts_forward)",
    looked_at_first =
        "a wrapper of a parameter makes what takes its place once before, to compare sizes and types "
        "(torch/nn/utils/parametrize.py ParametrizationList.__init__)",
    copied_before =
        "what an operation in place needs of its input for a gradient is copied before, whether or not a checkpoint "
        "lets it go (torch/csrc/autograd/generated/VariableType div_)",
    hit_experts =
        "the host reads which experts any token chose (transformers models/*/modeling_*.py SparseMoeBlock.forward)";

constexpr KnownFlow of_pytorch[] = {
    {Unread, "layers.*.moe.experts.to", "*", "*", expert_frame},
    {Unread, "layers.*.moe.experts.expert_hit", "*", "*", hit_experts},
    {Unread, "layers.*.moe.router.add", "*", "*", looked_at_first},
    {Unread, "layers.*.moe.baddbmm", "*", "*", looked_at_first},
    {Unread, "layers.*.moe.router.clone", "forward layers.*", "forward layers.*", copied_before},
    {Unread, "layers.*.outliers", "forward layers.*", "forward layers.*", no_outliers},
    {Unread, "layers.*.outliers", "backward layers.*", "backward layers.*", no_outliers},
    {Kept, "layers.*.mul", "forward layers.*", "forward loss", held_by_context},
    {Kept, "layers.*.mul", "forward layers.*", "optimizer_step *", held_by_context},
    {Kept, "layers.*.attention.attention", "forward layers.*", "forward loss", held_by_context},
    {Kept, "layers.*.attention.attention", "forward layers.*", "optimizer_step *", held_by_context},
    {Unread, "layers.*.attention.attention_rng_*", "forward layers.*", "backward layers.*.attention", random_numbers},
    {Kept, "layers.*.attention.attention_rng_*", "forward layers.*", "backward layers.*.attention", random_numbers},
    {Unread, "mask_places", "forward *", "forward *", made_for_masks},
    {Kept, "mask_places", "forward *", "forward *", made_for_masks},
    {Kept, "mask", "forward layers.*", "forward norm", mask_of_all},
    {Kept, "layers.*.attention.cache_window", "forward layers.*", "forward loss", cached_window},
    {Unread, "layers.*.attention.attention_rng_*", "forward layers.*", "forward layers.*", ring_seeds},
    {Unread, "layers.*.attention.all_gather", "*", "*", ring_gathers},
    {Unread, "layers.*.attention.keys_and_values", "*", "*", ring_gathers},
    {Kept, "layers.*.attention.keys_and_values", "backward layers.*", "backward layers.*", ring_frame},
    {Unread, "part_of_batch.gather", "forward load_batch", "forward load_batch", cut_sequences},
    {Kept, "part_of_batch.*", "*", "*", cut_sequences},
    {Kept, "clip_grad_norm.total_norm", "optimizer_step *", "optimizer_step *", titan_step},
    {Kept, "valid_tokens.local", "forward count_tokens", "*", titan_step},
    {Unread, "valid_tokens.global", "forward count_tokens", "optimizer_step *", titan_step},
    {Kept, "valid_tokens.global", "forward count_tokens", "optimizer_step *", titan_step},
    {Unread, "valid_tokens.global", "forward count_tokens", "forward count_tokens", tokens_counted},
    {Kept, "loss.mul_number", "optimizer_step *", "optimizer_step *", titan_step},
    {Unread, "logged_loss.sum", "optimizer_step *", "optimizer_step *", loss_logged},
    {Kept, "output.mm", "forward loss", "forward loss", titan_step},
    {Kept, "loss.*", "backward loss", "backward loss", fused_loss},
    {Kept, "output.mm", "backward loss", "backward loss", fused_loss},
    {Unread, "loss.nll_loss", "backward loss", "backward loss", fused_loss},
    {Kept, "rms_norm", "backward output", "backward output", unpacked},
    {Kept, "output.to", "backward output", "backward output", unpacked},
    {Kept, "output.input_gradient", "backward model", "backward model", unpacked},
    {Kept, "layers.*.feed_forward.mm", "forward layers.*", "backward layers.*", never_recalled},
    {Unread, "*.reduce_scatter_output", "backward *", "backward *", padded_shards},
    {Unread, "tok_embeddings.weight.unsharded", "backward *", "backward *", gathered_ahead},
    {Unread, "batch.attention_mask", "forward load_batch", "forward load_batch", loop},
    {Unread, "batch.labels", "forward load_batch", "forward load_batch", padded_labels},
    {Kept, "batch.*", "*", "*", loop},
    {Unread, "*nan_inf_filter.is*", "*", "*", filters_losses},
    {Unread, "loss.nll_loss", "forward loss", "*", log_reads},
    {Kept, "loss.nll_loss", "forward loss", "*", log_reads},
    {Unread, "lm_head.mm", "forward lm_head", "forward loss", whole_logits},
    {Unread, "loss.to", "forward loss", "forward loss", whole_logits},
    {Unread, "lm_head.to", "forward lm_head", "forward loss", whole_logits},
    {Kept, "lm_head.to", "forward loss", "forward loss", forward_variables},
    {Unread, "lm_head.to", "forward lm_head", "optimizer_step zero_grad", whole_logits},
    {Kept, "lm_head.to", "forward loss", "optimizer_step zero_grad", loop},
    {Kept, "layers.*.attention.mm", "forward layers.*", "forward loss", cached_projection},
    {Kept, "layers.*.attention.lora.add", "forward layers.*", "forward loss", cached_projection},
    {Unread, "loss.padded_labels", "forward loss", "*", padded_labels},
    {Unread, "packed_sequences", "forward embedding", "forward embedding", packed},
    {Kept, "packed_sequences", "forward embedding", "forward embedding", packed},
    {Unread, "*.slice_gradient", "backward *", "backward *", laid_in_zeros},
    {Unread, "layers.*.add", "backward layers.*", "backward layers.*", second_run_ends},
    {Kept, "layers.*.add", "backward layers.*", "backward layers.*", second_run_ends},
    {Kept, "clip_grad_norm.*", "optimizer_step clip_grad_norm", "optimizer_step clip_grad_norm", clipping},
    {Kept, "*", "optimizer_step optimizer_step", "optimizer_step zero_grad", until_zeroed},
    {Unread, "model.weight_gradient", "optimizer_step clip_grad_norm", "optimizer_step zero_grad", whole_gradient},
    {Kept, "*.reduce_scatter_output", "backward *", "backward *", reduced_waits},
    {Kept, "optimizer.mul_number", "optimizer_step optimizer_step", "optimizer_step optimizer_step", next_denominator},
    {Unread, "loss.target_mask", "forward loss", "forward loss", counts_targets},
    {Kept, "rms_norm_rstd", "backward model", "backward model", unpacked},
    {Unread, "loss.gradients", "forward loss", "forward loss", loss_by_kernel},
    {Unread, "loss.logsumexp", "forward loss", "backward loss", loss_by_kernel},
    {Kept, "loss.logsumexp", "forward loss", "backward loss", loss_by_kernel},
    {Unread, "loss.losses", "*ward loss", "*ward loss", loss_by_kernel},
    {Unread, "loss.hidden_gradient", "forward loss", "forward loss", loss_by_kernel},
    {Unread, "loss.mean", "forward loss", "optimizer_step zero_grad", log_reads},
    {Kept, "loss.mean", "forward loss", "optimizer_step zero_grad", log_reads},
    {Unread, "loss.sum", "forward loss", "optimizer_step zero_grad", log_reads},
    {Kept, "loss.sum", "forward loss", "optimizer_step zero_grad", log_reads},
    {Unread, "rms_norm", "forward norm", "forward loss", shifted_states},
    {Kept, "rms_norm", "forward loss", "forward loss", shifted_states},
    {Kept, "loss.slice_gradient", "backward layers.*", "backward layers.*", unpacked},
    {Kept, "rms_norm", "backward lm_head", "backward lm_head", unpacked},
    {Unread, "optimizer.rms", "optimizer_step optimizer_step", "*", kept_size},
    {Kept, "optimizer.*", "optimizer_step optimizer_step", "optimizer_step optimizer_step", step_variables_of},
    {Kept, "reducer.bucket", "*", "forward load_batch", until_zeroed},
    {Kept, "loss_gradient", "backward loss", "backward *", loop},
    {Kept, "position_ids", "forward embedding", "*", graph},
    {Kept, "rotary_emb.to", "backward *", "*", graph},
    {Kept, "*.all_gather_output", "forward *", "forward *", next_copied_out},
    {Kept, "*.unsharded", "*", "*", whole_unit},
    {Unread, "*.unsharded", "forward *", "*", padded_shards},
    {Kept, "*.local", "construction build_model", "construction build_model", padded_shards},
    {Unread, "*.reduce_scatter_output", "backward *", "optimizer_step zero_grad", padded_shards},
    {Kept, "*.reduce_scatter_input", "backward *", "backward *", being_reduced},
    // DeepSpeed.
    {Kept, "mul", "forward lm_head", "backward lm_head", saved_for_frozen},
    {Kept, "layers.*mul", "forward layers.*", "backward layers.*", saved_for_frozen},
    {Unread, "mul_number", "forward loss", "backward *", engine_variables},
    {Kept, "mul_number", "forward loss", "backward *", engine_variables},
    {Kept, "loss_gradient", "backward model", "backward *", engine_variables},
    {Unread, "zero.grad_partitions", "construction build_optimizer", "backward *", zeroed_first},
    {Unread, "zero.grad_partitions", "backward *", "backward *", comes_back},
    {Unread, "*reduce.grad_buffer", "backward *", "backward *", comes_back},
    {Unread, "*reduce.accumulated", "backward *", "backward *", comes_back},
    {Kept, "*reduce.norm", "optimizer_step grad_norm", "optimizer_step *", norms_wait},
    {Unread, "zero.*_buffer", "construction build_optimizer", "*", zeroed_to_swap},
    {Kept, "*reduce.to", "optimizer_step *", "optimizer_step *", waits_for_its_state},
    {Unread, "zero.gradient", "construction build_optimizer", "*", made_to_pin},
    {Unread, "flat.gradient", "construction build_optimizer", "*", made_to_pin},
    {Unread, "flat.*_buffer", "construction build_optimizer", "*", made_to_pin},
    {Kept, "flat.*", "construction build_optimizer", "construction build_optimizer", made_to_pin},
    {Kept, "zero.*", "construction build_optimizer", "construction build_optimizer", made_to_pin},
    {Unread, "*.gathered", "construction build_optimizer", "construction build_optimizer", gathered_to_hook},
    {Kept, "*.made", "construction build_optimizer", "construction build_optimizer", cast_when_made},
    {Unread, "*.parameter", "construction build_model", "construction build_optimizer", cut_later},
    {Kept, "*", "backward *", "optimizer_step clear_gradients", until_cleared},
    {Unread, "flat.gradients", "optimizer_step clip_gradients", "optimizer_step *", clipped_everywhere},
    {Unread, "flat.gradients", "optimizer_step clear_gradients", "optimizer_step clear_gradients", cleared_twice},
    {Unread, "*.secondary", "construction build_optimizer", "construction build_optimizer", second_zeroed},
    {Unread, "*.secondary", "forward *", "forward *", second_zeroed},
    {Unread, "*.secondary", "backward *", "backward *", second_zeroed},
    {Unread, "*.secondary", "optimizer_step grad_norm", "optimizer_step *", until_updated},
    {Kept, "*.secondary", "*", "optimizer_step *", until_updated},
    {Unread, "*.gathered", "backward *", "*", gathered_anyway},
    {Unread, "*.gathered", "forward *", "backward *", fetched_ahead},
    {Unread, "layers.*_proj.gathered", "forward *", "forward *", own_codes},
    {Kept, "reduce.reduce_scatter", "backward *", "backward *", ipg_variables},
    {Kept, "*all_gather", "*", "*", gathered_together},
    {Kept, "*.gathered", "*", "*", within_reach},
    {Unread, "*reduce.allreduce_bucket", "backward *", "backward *", summed_everywhere},
    {Unread, "*.ipg_buffer", "backward *", "backward *", summed_everywhere},
    {Unread, "*.weight_gradient", "backward *", "backward *", summed_everywhere},
    {Unread, "*reduce.grads_in_partition", "backward *", "*", summed_everywhere},
    {Kept, "*reduce.grads_in_partition", "*", "*", step_variables},
    {Kept, "padding", "optimizer_step grad_norm", "optimizer_step *", step_variables},
    {Unread, "flat.parameters", "*", "optimizer_step *", end_of_buffer},
    {Unread, "zero.overflow.found", "optimizer_step grad_norm", "*", host_reads_overflow},
    {Unread, "zero.unscaled_norm", "optimizer_step grad_norm", "*", reported_norm},
    {Kept, "zero.*", "optimizer_step *", "optimizer_step *", step_variables},
    {Unread, "*.flat_param", "construction build_model", "construction build_model", flattened},
    {Kept, "*.parameter", "construction build_model", "construction build_model", flattened},
    {Unread, "*.unsharded", "backward *", "backward *", padded_flat},
    {Unread, "*.sharded_gradient", "backward *", "forward load_batch", padded_flat},
    {Unread, "*.low_precision_shard", "forward loss", "backward *", cast_anew},
    {Unread, "*.broadcast", "construction build_model", "construction build_model", flattened},
    {Kept, "*.flat_param_shard", "forward load_batch", "forward *", pinned_later},
    {Unread, "*.written_back", "*", "*", thought_new},
    {Kept, "*.written_back", "*", "*", thought_new},
    {Unread, "*.low_precision_shard", "forward loss", "forward loss", comes_anyway},
    {Kept, "*.sharded_gradient", "backward *", "backward *", copied_to_host},
    {Unread, "*from_host", "backward *", "backward *", unpacked_anyway},
    {Kept, "*saved_on_cpu", "backward *", "backward *", unpacked},
    {Kept, "*.flat_param_gradient", "backward *", "backward *", behind_hooks},
    {Kept, "*.sharded_gradient", "optimizer_step optimizer_step", "forward load_batch", until_next_forward},
    {Kept, "embedding", "forward layers.*", "forward norm", forward_variables},
    {Kept, "layers.*.to", "forward layers.*", "forward loss", converted},
    {Kept, "lm_head.to", "forward lm_head", "forward loss", converted},
    {Kept, "model.embedding_indices", "backward model", "backward model", sorted},
    {Kept, "ones", "construction build_model", "construction build_model", made_to_copy},
    {Unread, "layers.*.mlp.mm", "backward layers.*.mlp.lora", "backward layers.*.mlp.lora", second_run_ends},
    {Unread, "layers.*.mlp.lora.clone", "backward layers.*.mlp.lora", "backward layers.*.mlp.lora", second_run_ends},
    {Unread, "layers.*.mlp.to", "backward layers.*.mlp.lora", "backward layers.*.mlp.lora", second_run_ends},
    {Unread, "layers.*.mlp.lora.mul", "backward layers.*.mlp.lora", "backward layers.*.mlp.lora", second_run_ends},
    {Unread, "layers.*.lora.zeros", "* layers.*", "* layers.*", unit_diagonal},
    {Unread, "model.*", "backward layers.*", "*", input_requested},
    {Kept, "model.*", "backward layers.*", "*", input_requested},
    {Unread, "model.clone", "backward model", "*", input_requested},
    {Kept, "model.clone", "backward model", "*", input_requested},
    {Kept, "layers.*.add", "backward layers.*", "backward model", reshard_hook},
    {Kept, "embedding", "backward layers.*", "forward loss", input_requested},
    {Kept, "embedding", "forward embedding", "optimizer_step zero_grad", input_requested},
    {Unread, "layers.*.add", "backward layers.*", "optimizer_step *", input_requested},
    {Kept, "layers.*.add", "backward layers.*", "optimizer_step *", input_requested},
    {Unread, "layers.*.add", "backward layers.*", "forward loss", input_requested},
    {Kept, "layers.*.add", "backward layers.*", "forward loss", input_requested},
    {Unread, "model.dropout_gradient", "backward model", "optimizer_step zero_grad", input_requested},
    {Kept, "model.dropout_gradient", "backward model", "optimizer_step zero_grad", input_requested},
    {Unread, "layers.*.to", "backward layers.*", "optimizer_step zero_grad", input_requested},
    {Kept, "layers.*.to", "backward layers.*", "optimizer_step zero_grad", input_requested},
    {Kept, "dropout", "backward layers.*", "backward model", reshard_hook},
    {Kept, "adapter", "construction build_model", "construction build_model", cast_later},
    {Kept, "*.loaded", "construction build_model", "construction build_model", quantize_frame},
    {Kept, "layer_norm", "forward lm_head", "forward loss", forward_variables},
    {Kept, "rms_norm", "forward lm_head", "forward loss", forward_variables},
    {Kept, "embedding", "backward layers.*", "optimizer_step *", input_requested},
    // DTensor's tensor parallelism.
    {Kept, "mask", "forward tok_embeddings", "forward tok_embeddings", dtensor_variables},
    {Kept, "masked_ids", "forward tok_embeddings", "forward tok_embeddings", dtensor_variables},
    {Kept, "embedding", "forward tok_embeddings", "forward tok_embeddings", dtensor_variables},
    {Kept, "rms_norm", "forward output", "forward output", dtensor_variables},
    {Kept, "output.input_gradient", "backward output", "backward output", dtensor_variables},
    {Kept, "output.cat", "backward output", "backward output", dtensor_variables},
    {Kept, "add", "backward model", "backward model", dtensor_variables},
    {Unread, "model.to", "backward model", "backward reduce_gradients", whole_embedding},
    {Unread, "loss.nll_loss_weight", "forward loss", "backward loss", weight_of_all},
    {Kept, "loss.nll_loss_weight", "forward loss", "backward loss", weight_of_all},
    {Unread, "layers.*.attention.cat", "backward layers.*", "backward layers.*", gathered_again},
    {Unread, "layers.*.feed_forward.cat", "backward layers.*", "backward layers.*", gathered_again},
    {Unread, "layers.*.moe.cat", "backward layers.*", "backward layers.*", gathered_again},
    // Pipelines.
    {Unread, "output.merged", "forward merge_outputs", "forward merge_outputs", merged},
    {Unread, "*", "forward probe", "forward probe", probed},
    {Kept, "*", "forward probe", "*", probed},
    {Unread, "batch.*", "forward load_batch", "optimizer_step *", every_stage},
    {Kept, "layers.*.add", "communication send_forward*", "*", being_sent},
    {Kept, "model.rms_norm_gradient", "communication send_backward*", "*", being_sent},
    {Kept, "add", "communication send_backward*", "*", being_sent},
    {Kept, "output.mm", "forward merge_outputs", "forward load_batch", merged},
    {Kept, "received_*", "backward *", "*", received},
    {Kept, "output.mm", "forward loss", "backward *", last_output},
    {Kept, "loss.*", "optimizer_step *", "optimizer_step *", titan_step},
    {Kept, "loss.*", "backward loss", "backward layers.*", until_last_weight},
    {Kept, "loss.*", "backward loss", "backward model", until_last_weight},
    {Kept, "output.reduce_scatter", "backward model", "backward model", until_last_weight},
    {Unread, "loss.nll_loss_weight", "forward loss", "backward model", weight_of_all},
    {Kept, "loss.nll_loss_weight", "forward loss", "backward model", weight_of_all},
    {Kept, "loss.to", "backward output", "backward output", until_last_weight},
    {Kept, "layers.*", "backward layers.*", "backward output", until_last_weight},
    {Kept, "add", "backward layers.*", "backward model", until_last_weight},
    {Kept, "to", "backward layers.*", "backward layers.*", weight_by_weight},
    {Kept, "to", "backward layers.*", "backward model", weight_by_weight},
    {Kept, "to", "backward model", "backward output", weight_by_weight},
    {Kept, "*.reduce_scatter_input", "backward *", "communication *", being_reduced},
    // Modules and functions.
    {Kept, "embedding", "forward embedding", "forward norm", forward_variables},
    {Kept, "rotary_emb.*", "forward embedding", "forward embedding", forward_variables},
    {Kept, "embedding", "forward layers.*", "forward layers.*", forward_variables},
    {Kept, "layers.*", "forward layers.*", "forward layers.*", forward_variables},
    {Kept, "layers.*.attention.cat", "forward layers.*", "forward loss", forward_variables},
    {Kept, "layers.*.add", "forward norm", "forward norm", forward_variables},
    {Kept, "layers.*.mm", "forward norm", "forward norm", forward_variables},  // a compiled layer adds in its place
    {Kept, "mul", "forward *", "forward *", forward_variables},
    {Kept, "*", "forward compiled_*", "forward compiled_*", fused_part},
    {Kept, "*", "backward compiled_*", "backward compiled_*", fused_part},
    {Kept, "to", "backward lm_head", "backward lm_head", unpacked},
    {Kept, "mean", "forward norm", "forward norm", forward_variables},
    {Kept, "add_number", "forward norm", "forward norm", forward_variables},
    {Kept, "lm_head.mm", "forward loss", "forward loss", forward_variables},
    {Kept, "loss.*", "forward loss", "forward loss", forward_variables},
    {Unread, "block_mask.*", "forward load_batch", "*", masks_of_blocks},
    {Kept, "block_mask.*", "forward load_batch", "*", masks_of_blocks},
    {Unread, "layers.*.latent_attention.cat", "backward *", "backward *", kept_by_region},
    {Unread, "layers.*.latent_attention.mm", "backward *", "backward *", kept_by_region},
    // torchtitan's experts.
    {Unread, "layers.*.moe.experts.index", "*", "*", beyond_groups},
    {Unread, "layers.*.moe.experts.mul", "*", "*", beyond_groups},
    {Unread, "layers.*.moe.experts.out_unpermuted", "*", "*", beyond_groups},
    {Unread, "layers.*.moe.experts.index_gradient", "backward *", "backward *", beyond_groups},
    {Unread, "layers.*.moe.experts.index_put_gradient", "backward *", "backward *", beyond_groups},
    {Unread, "layers.*.moe.experts.mul_gradient", "backward *", "backward *", beyond_groups},
    {Unread, "layers.*.moe.experts.silu_gradient", "backward *", "backward *", beyond_groups},
    {Unread, "layers.*.moe.experts.indices.permuted_indices", "*", "*", filled_first},
    {Unread, "layers.*.moe.zeros", "*", "*", filled_first},
    {Unread, "layers.*.moe.histc", "backward layers.*", "backward layers.*", counted_before},
    {Unread, "layers.*.moe.index_gradient", "backward *", "backward *", own_chunk},
    {Unread, "layers.*.moe.shared_experts.all_reduce", "backward *", "backward *", own_chunk},
    {Unread, "layers.*.moe.router.topk", "*", "*", given_besides},
    {Unread, "layers.*.moe.router.topk_ids", "*", "*", given_besides},
    {Unread, "layers.*.moe.sorted", "*", "*", given_besides},
    {Unread, "layers.*.moe.index", "*", "*", given_besides},
    {Unread, "layers.*.moe.experts.offsets", "*", "*", ends_of_groups},
    {Kept, "layers.*.moe.experts.offsets", "forward *", "backward *", ends_of_groups},
    {Kept, "layers.*.moe.experts.indices.permuted_indices", "*", "*", until_next_pass},
    {Kept, "expert_bias.tokens_per_expert", "optimizer_step *", "optimizer_step *", layer_by_layer},
    // Nodes.
    {Kept, "layers.*", "backward layers.*", "backward layers.*", unpacked},
    {Kept, "layers.*.add", "backward model", "backward model", unpacked},
    {Kept, "embedding", "backward layers.*", "backward layers.*", unpacked},
    {Kept, "dropout", "backward layers.*", "backward layers.*", unpacked},
    {Kept, "add", "backward layers.*", "backward layers.*", unpacked},
    {Kept, "model.*", "backward *", "backward *", unpacked},
    {Kept, "lm_head.*", "backward *", "backward *", unpacked},
    {Kept, "layer_norm", "backward lm_head", "backward lm_head", unpacked},
    {Kept, "to", "forward norm", "backward model", saved_bias},
    {Kept, "mul", "backward *", "backward *", unpacked},
    {Kept, "rsqrt", "backward model", "backward model", unpacked},
    {Kept, "to", "backward model", "backward model", unpacked},
    {Kept, "rotary_emb.*", "backward layers.*.attention", "backward layers.*.attention", unpacked},
    {Kept, "rotary_emb.mul_number", "backward layers.*.attention", "backward layers.*", graph},
};

}  // namespace

std::span<const KnownFlow> flows_of_pytorch() { return of_pytorch; }

}  // namespace tidemark::parallel
