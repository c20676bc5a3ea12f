#include "parallel/known_flows/tables.hpp"

// Megatron-LM core 0.14 and TransformerEngine.

namespace tidemark::parallel {
namespace {

using enum FlowKind;

constexpr std::string_view
    batch =
        "get_batch_on_this_tp_rank makes room for all tensors, whichever the stage needs, and forward_step's "
        "variables hold them until it returns (training/utils.py)",
    zeros =
        "torch.zeros makes the buffer, and zero_grad_buffer clears it before the first step, or parameters are "
        "copied into it (core/distributed/param_and_grad_buffer.py)",
    whole_gradients =
        "whole gradients are summed, where a sharded optimizer reads its own part of them "
        "(core/distributed/finalize_model_grads.py)",
    padding = "padding between parameters is gathered with them (core/distributed/param_and_grad_buffer.py)",
    host_reads = "the host reads it: to clip, or for the log (core/optimizer/clip_grads.py, pretrain_gpt.py loss_func)",
    asks_for_nan = "the host asks whether it is a number (core/rerun_state_machine.py validate_result)",
    row_numbers =
        "torch.arange numbers the rows that logits are looked up in; the operation `gather` counts them by "
        "itself (core/tensor_parallel/cross_entropy.py)",
    second_run =
        "the second run of a checkpointed region ends with an output that nobody asks for, and the variables "
        "of CheckpointFunction.backward hold both ends of it (core/tensor_parallel/random.py)",
    own_part =
        "each rank keeps its part of the sequence (core/tensor_parallel/mappings.py "
        "scatter_to_sequence_parallel_region)",
    muon_frame =
        "variables of the optimizer's functions live until they return, and a matrix's update until the next one's is "
        "there (core/optimizer/emerging_optimizers.py; emerging_optimizers/orthogonalized_optimizers/)",
    own_slot =
        "of what is gathered a rank needs the others' parts only (core/optimizer/layer_wise_optimizer.py "
        "allgather_params)",
    muon_part =
        "each rank takes its part of what was gathered and made orthogonal (emerging_optimizers/"
        "orthogonalized_optimizers/muon_utils.py newton_schulz_tp)",
    step_ends = "main gradients live until the next step clears them (core/optimizer/optimizer.py zero_grad)",
    forward_frame =
        "variables of a forward function live until it returns (core/transformer/attention.py forward, "
        "multi_latent_attention.py, dot_product_attention.py, core/tensor_parallel/cross_entropy.py)",
    rotary_frame =
        "the angles and what is made of them are variables of RotaryEmbedding.forward until it returns "
        "(core/models/common/embeddings/rotary_pos_embedding.py)",
    saved_mask =
        "a checkpoint saves all that its function is handed, the mask among them, which causal kernels do not read "
        "(core/tensor_parallel/random.py CheckpointFunction)",
    counts_zeros =
        "before core 0.14 a chain of optimizers counts the gradients' zeros in every step, asked for or not "
        "(core/optimizer/optimizer.py ChainedOptimizer.step)",
    loss_frame =
        "numbers of the loss are variables of loss_func, of the schedule's lists and of train_step until they are "
        "logged "
        "(pretrain_gpt.py, core/pipeline_parallel/schedules.py, training/training.py)",
    loss_reports =
        "what micro-batches report of their losses is stacked and summed once a step, and its variables live until "
        "train_step returns (megatron/training/training.py)",
    masked_ids =
        "masks of the ids that other ranks' rows are for; the kernels that make them are one operation here "
        "(core/tensor_parallel/layers.py VocabParallelEmbedding.forward)",
    backward_frame =
        "variables of a backward function, what it has saved and what it is handed, live until it returns "
        "or until its fused norm's is over (transformer_engine/pytorch/module/layernorm_linear.py, linear.py; "
        "core/tensor_parallel/layers.py)",
    scan_frame =
        "variables of a function live until it returns; the kernels between them are one operation here "
        "(mamba_ssm/ops/triton/ssd_combined.py)",
    sent =
        "variables of the schedule refer to what was sent until the next takes its place "
        "(core/pipeline_parallel/schedules.py)",
    in_lists =
        "a stage's input and its output's gradient are in the schedule's lists and variables while others pass "
        "(core/pipeline_parallel/schedules.py)",
    deallocated =
        "deallocate_output_tensor leaves a tensor of one element in an output's place "
        "(core/pipeline_parallel/schedules.py)",
    grows =
        "the buffer that tensors take turns in is as large as the largest so far (core/utils.py GlobalMemoryBuffer)",
    in_context =
        "variables of the functions of context-parallel attention live until they return "
        "(transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py)",
    ring_of_parts =
        "under a causal mask most ranks have no gradients of the second chunk of keys: what goes round is memory that "
        "nobody has written, until the first rank writes to it "
        "(transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py AttnFuncWithCPAndKVP2P)",
    left_out =
        "keys and values come whole, and a causal mask leaves some of them out "
        "(transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py)",
    own_angles =
        "every rank makes the angles of all tokens, and keeps those of its own "
        "(core/models/common/embeddings/rotary_pos_embedding.py get_pos_emb_on_this_cp_rank)",
    yarn_frame =
        "variables of YarnRotaryEmbedding.forward live until it returns "
        "(core/models/common/embeddings/yarn_rotary_pos_embedding.py)",
    yarn_constructor =
        "YarnRotaryEmbedding's constructor asks for angles of the original length, and drops them "
        "(core/models/common/embeddings/yarn_rotary_pos_embedding.py)",
    grouping = "a loop's variable lives until it is bound again (core/optimizer/cpu_offloading/hybrid_optimizer.py)",
    first_of_whole =
        "the first of two optimizers copies whole parameters, and goes without a step (core/optimizer/__init__.py, "
        "distrib_optimizer.py)",
    hybrid_gradients =
        "gradients of fp32 copies live until the next step's take their place "
        "(core/optimizer/cpu_offloading/hybrid_optimizer.py)",
    unscaled_lists =
        "lists of what is read in place of state live until the next group's, variables until their function "
        "returns (transformer_engine/pytorch/optimizers/fused_adam.py)",
    scale_of_one =
        "torch.ones makes a scale, and the first parameters are scaled at once "
        "(transformer_engine/pytorch/optimizers/fused_adam.py set_scaled_state)",
    transposed_state =
        "a quantizer that is not told otherwise writes the transposed tensor too, and quantizes the zeros that it "
        "begins with (transformer_engine/pytorch/tensor/float8_tensor.py)",
    addend =
        "torch.baddbmm is handed a tensor to add to, of which it reads nothing (beta = 0) "
        "(core/transformer/dot_product_attention.py)";

// Of core/transformer/moe/.
constexpr std::string_view
    routing =
        "variables of TopKRouter.routing and of what it calls live until these return (moe/router.py, moe_utils.py)",
    dropped = "the choice that capacity then takes the place of (moe/moe_utils.py apply_router_token_dropping)",
    chosen = "torch.topk gives values and places, and often only one of them is asked for (moe/moe_utils.py)",
    other_ranks_choices =
        "choices of all experts are gathered, summed and sorted, and a rank looks at those of its own "
        "(moe/token_dispatcher.py)",
    moe_frame =
        "variables of MoELayer's and TEGroupedMLP's forward functions live until they return (moe/moe_layer.py, "
        "experts.py)",
    dispatcher_keeps = "attributes of the dispatcher live until the next call (moe/token_dispatcher.py)",
    host_counts = "the host reads how many tokens go where (moe/token_dispatcher.py)",
    loss_for_scale = "MoEAuxLossAutoScaler saves the auxiliary loss, and takes its shape (moe/moe_utils.py)",
    grouped_backward =
        "variables of _GroupedLinear.backward live until it returns (TransformerEngine module/grouped_linear.py)";

// Of modules that predict further tokens, and of what CheckpointWithoutOutput runs again.
constexpr std::string_view
    rolled =
        "torch.roll brings the first token's value to the last place, where 0 is written "
        "(core/transformer/multi_token_prediction.py roll_tensor)",
    next_frame =
        "variables of MultiTokenPredictionLayer's and GPTModel's functions live until these return "
        "(core/transformer/multi_token_prediction.py, core/models/gpt/gpt_model.py)",
    next_loss_for_scale =
        "MTPLossAutoScaler saves the further tokens' loss, and takes its shape "
        "(core/transformer/multi_token_prediction.py)",
    rolled_frame =
        "lists of what is sent to neighbours and received from them live until roll_tensor returns; at the ends of the "
        "ranks there is nobody to send to (core/transformer/multi_token_prediction.py)",
    one_dummy =
        "an LM head that is used several times gives one tensor of zeros, written anew each time "
        "(TransformerEngine module/base.py get_dummy_wgrad)",
    spare_head =
        "a last stage's own head, in place of which the embedding's copy is used (core/models/gpt/gpt_model.py "
        "shared_embedding_or_output_weight)",
    view_of_all =
        "each rank goes on with its tokens in a view of all, and its columns of their gradients "
        "(core/tensor_parallel/mappings.py scatter_to_sequence_parallel_region, "
        "gather_from_tensor_model_parallel_region)",
    dummies =
        "autograd sums the dummies that an LM head's several uses give, and Megatron's hook drops the sum "
        "(core/distributed/distributed_data_parallel.py grad_added_to_main_grad)",
    run_again =
        "what runs again keeps what it was given and has made until its backward pass is over, and its outputs' copies "
        "are read in their place (core/tensor_parallel/random.py CheckpointWithoutOutput)",
    bias_frame =
        "variables of get_updated_expert_bias and _update_router_expert_bias live until these return "
        "(moe/moe_utils.py, core/distributed/finalize_model_grads.py)",
    gating_backward = "variables of RouterGatingLinearFunction.backward live until it returns (moe/moe_utils.py)";

constexpr KnownFlow flows_by_operation[] = {
    {Kept, "expert_bias.*", "communication finish_routing", "communication finish_routing", bias_frame},
    {Unread, "next_tokens.*.tokens", "forward *", "forward *", rolled},
    {Unread, "next_tokens.*.loss", "forward next_tokens.*.head", "forward next_tokens.*.head", rolled},
    {Unread, "next_tokens.*.chunk", "forward *", "forward *", rolled},
    {Unread, "next_tokens.*.sent", "forward *", "forward *", rolled_frame},
    {Kept, "next_tokens.*.sent", "forward *", "forward *", rolled_frame},
    {Kept, "next_tokens.*.received", "forward *", "forward *", rolled_frame},
    {Kept, "next_tokens.*.tokens", "forward next_tokens.*.embedding", "forward next_tokens", next_frame},
    {Kept, "next_tokens.*.embedding_norm.out", "forward next_tokens.*", "forward next_tokens.*", next_frame},
    {Kept, "next_tokens.*.loss", "forward next_tokens.*.loss", "forward next_tokens.*.loss", next_frame},
    {Kept, "next_tokens.*.loss", "forward next_tokens.*.head", "forward next_tokens.*.head", next_frame},
    {Kept, "next_tokens.*.head.logits", "forward next_tokens.*.loss", "forward next_tokens.*.head", next_frame},
    {Unread, "next_tokens.*.loss.div", "forward next_tokens.*.loss", "backward next_tokens.*.loss.joined",
     next_loss_for_scale},
    {Kept, "next_tokens.*.loss.div", "forward next_tokens.*.loss", "backward next_tokens.*.loss.joined",
     next_loss_for_scale},
    {Unread, "next_tokens.*.joined", "forward next_tokens.*", "backward layers.*", view_of_all},
    {Unread, "next_tokens.*.scatter_gradient", "backward next_tokens.*.scatter", "backward next_tokens.*.gather",
     view_of_all},
    {Unread, "model.add", "backward next_tokens.*.head", "backward next_tokens.*.head", dummies},
    {Unread, "model.add", "backward next_tokens.*.embedding", "backward next_tokens.*.embedding", dummies},
    {Unread, "dummy_gradient.*", "backward head", "backward next_tokens.*.head", one_dummy},
    {Unread, "head.weight", "optimizer_step optimizer_step", "optimizer_step optimizer_step", spare_head},
    {Kept, "next_tokens.cat", "backward next_tokens.*.head", "backward next_tokens.*.head", backward_frame},
    {Kept, "next_tokens.*.cat", "backward next_tokens.*.projection", "backward next_tokens.*.projection",
     backward_frame},
    {Kept, "next_tokens.*.input_gradient", "backward next_tokens.*.projection", "backward next_tokens.*.projection",
     backward_frame},
    {Kept, "layers.*.norm.out", "forward layers.*.norm", "backward layers.*.norm", run_again},
    {Kept, "layers.*.mlp.experts.activation", "forward layers.*.mlp.experts.activation",
     "backward layers.*.mlp.experts.activation", run_again},
    {Kept, "layers.*.attention.*", "forward layers.*.attention.rotary", "backward layers.*.attention.q*", run_again},
    {Kept, "layers.*.attention.kv_down.out", "forward layers.*.attention.q*", "backward layers.*.attention.q*",
     run_again},
    {Kept, "layers.*.attention.core.*_gradient", "backward layers.*.attention.rotary", "backward layers.*.attention.q*",
     run_again},
    {Kept, "layers.*.attention.kv_latent", "forward layers.*.attention.kv_norm", "forward layers.*.attention.kv_up",
     forward_frame},
    {Kept, "layers.*.mlp.norm.out", "forward layers.*.mlp.shared.fc1", "forward layers.*.mlp", moe_frame},
    {Kept, "layers.*.mlp.router.to", "forward layers.*.mlp.router", "forward layers.*.mlp.dispatcher", moe_frame},
    {Unread, "layers.*.mlp.shared.fc2.out", "forward layers.*.mlp.shared.fc2", "backward layers.*.mlp.shared.fc1",
     second_run},
    {Kept, "layers.*.mlp.shared.fc2.out", "forward layers.*.mlp.shared.fc2", "backward layers.*.mlp.shared.fc1",
     second_run},
    {Kept, "layers.*.mlp.norm.out", "backward layers.*.mlp.router", "backward layers.*.mlp.router", gating_backward},
    {Kept, "layers.*.mlp.dispatcher.sorted", "backward layers.*.mlp.experts.*", "backward layers.*.mlp.experts.*",
     grouped_backward},
    {Kept, "layers.*.attention.*", "forward layers.*.attention.q_up", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.attention.*", "forward layers.*.attention.q", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.attention.*", "backward layers.*.attention.kv_up", "backward layers.*.attention.*",
     backward_frame},
    {Kept, "layers.*.attention.*", "backward layers.*.attention.kv_down", "backward layers.*.attention.*",
     backward_frame},
    {Kept, "layers.*.attention.*", "backward layers.*.attention.q", "backward layers.*.attention.*", backward_frame},
    {Kept, "layers.*.attention.*", "backward layers.*.attention.q_up", "backward layers.*.attention.*", backward_frame},
    {Kept, "layers.*.attention.*", "forward layers.*.attention.rotary", "forward layers.*.attention.rotary",
     forward_frame},
    {Unread, "layers.*.attention.rotary.whole_table", "forward layers.*", "forward layers.*", own_angles},
    {Kept, "layers.*.attention.rotary.angles", "forward layers.*", "forward layers.*", yarn_frame},
    {Kept, "layers.*.attention.rotary.table", "forward layers.*", "forward layers.*", yarn_frame},
    {Unread, "layers.*.attention.rotary.table", "forward layers.*", "forward layers.*", yarn_constructor},
    {Unread, "layers.*.mlp.router.to", "forward layers.*.mlp.router", "*", dropped},
    {Kept, "layers.*.mlp.dispatcher.*", "forward layers.*.mlp.dispatcher", "forward layers.*.mlp", moe_frame},
    {Kept, "layers.*.mlp.shared.*", "backward layers.*.mlp.shared.*", "backward layers.*.mlp.*", backward_frame},
    {Kept, "layers.*.attention.*", "backward layers.*.attention.q_down", "backward layers.*.attention.*",
     backward_frame},
    {Kept, "layers.*.mlp.router.*", "backward layers.*.mlp.router", "*", dispatcher_keeps},
    {Kept, "layers.*.mlp.router.*", "forward layers.*.mlp.router", "forward layers.*.mlp.router", routing},
    {Unread, "layers.*.mlp.router.topk*", "forward layers.*.mlp.router", "forward layers.*.mlp.router", chosen},
    {Kept, "layers.*.mlp.router.*", "forward layers.*.mlp.dispatcher", "*", dispatcher_keeps},
    {Kept, "layers.*.mlp.router.mul_number", "forward layers.*.mlp.router", "*", loss_for_scale},
    {Unread, "layers.*.mlp.router.mul_number", "forward layers.*.mlp.router", "*", loss_for_scale},
    {Kept, "layers.*.mlp.dispatcher.row_id_map", "*", "*", dispatcher_keeps},
    {Kept, "layers.*.mlp.dispatcher.masked_select", "backward layers.*.mlp.dispatcher",
     "forward layers.*.mlp.dispatcher", dispatcher_keeps},
    {Kept, "layers.*.mlp.dispatcher.*", "forward layers.*.mlp.dispatcher", "forward layers.*.mlp.dispatcher",
     moe_frame},
    {Kept, "layers.*.mlp.experts.*", "forward layers.*.mlp.dispatcher", "forward layers.*.mlp.dispatcher", moe_frame},
    {Kept, "layers.*.mlp.norm.out", "forward layers.*.mlp.dispatcher", "forward layers.*.mlp.dispatcher", moe_frame},
    {Unread, "layers.*.mlp.dispatcher.tokens_per_expert", "forward layers.*.mlp.dispatcher", "*", host_counts},
    {Kept, "layers.*.mlp.dispatcher.exchanged", "backward layers.*.mlp.experts.*", "backward layers.*.mlp.experts.*",
     grouped_backward},
    {Kept, "layers.*.mlp.experts.*", "backward layers.*.mlp.experts.*", "backward layers.*.mlp.experts.*",
     grouped_backward},
    {Unread, "batch.*", "forward load_batch", "forward *", batch},
    {Kept, "batch.*", "forward *", "forward *", batch},
    {Unread, "gradient_buffer*", "construction build_buffers", "optimizer_step zero_gradients", zeros},
    {Unread, "parameter_buffer*", "construction build_buffers", "*", zeros},
    {Unread, "gradient_buffer*", "communication reduce_gradients", "optimizer_step zero_gradients", whole_gradients},
    {Unread, "parameter_buffer*", "communication gather_parameters", "communication gather_parameters", padding},
    {Unread, "gradient_norm", "optimizer_step *", "optimizer_step *", host_reads},
    {Unread, "gathered_parameters", "communication gather_parameters", "communication gather_parameters", own_slot},
    {Unread, "*.weight.converted", "optimizer_step *", "optimizer_step *", muon_part},
    {Kept, "*.weight.scaled", "optimizer_step *", "optimizer_step *", muon_frame},
    {Kept, "*.weight.joined", "optimizer_step *", "optimizer_step *", muon_frame},
    {Kept, "*.weight.part", "optimizer_step *", "optimizer_step *", muon_frame},
    {Kept, "*.weight.shards", "optimizer_step *", "optimizer_step *", muon_frame},
    {Kept, "*.weight.gathered", "optimizer_step *", "optimizer_step *", muon_frame},
    {Kept, "*.weight.norm", "optimizer_step *", "optimizer_step *", muon_frame},
    {Kept, "*.weight.square", "optimizer_step *", "optimizer_step *", muon_frame},
    {Unread, "loss.out", "forward loss", "forward loss", host_reads},
    {Kept, "loss.out", "forward loss", "forward loss", asks_for_nan},
    {Unread, "loss.is*", "forward *", "forward *", asks_for_nan},
    {Unread, "*bucket_norm", "communication reduce_gradients", "communication reduce_gradients", asks_for_nan},
    {Kept, "*bucket_norm", "communication reduce_gradients", "communication reduce_gradients", asks_for_nan},
    {Unread, "bucket_norm.is*", "communication reduce_gradients", "communication reduce_gradients", asks_for_nan},
    {Unread, "*loss.row_numbers", "forward *loss", "forward *loss", row_numbers},
    {Kept, "*loss.row_numbers", "forward *loss", "forward *loss", row_numbers},
    {Unread, "layers.*.attention.context", "forward layers.*.attention.core", "backward layers.*.attention.core",
     second_run},
    {Unread, "layers.*.mlp.add.out", "forward layers.*.mlp.add", "backward layers.*", second_run},
    {Unread, "layers.*.mlp.fc2.out", "forward layers.*.mlp.fc2", "backward layers.*.mlp.norm", second_run},
    {Kept, "layers.*.attention.context", "forward layers.*.attention.core", "backward layers.*.attention.core",
     second_run},
    {Kept, "layers.*.attention.*", "forward layers.*.attention.core", "backward layers.*.attention.core", second_run},
    {Kept, "layers.*.mlp.add.out", "forward layers.*.mlp.add", "backward layers.*.attention.norm", second_run},
    {Kept, "layers.*.mlp.fc2.out", "forward layers.*.mlp.fc2", "backward layers.*.mlp.norm", second_run},
    // FlashAttention's core begins and ends with copies.
    {Unread, "layers.*.attention.context.transposed", "forward *.context.transpose", "backward *.q.transpose",
     second_run},
    {Kept, "layers.*.attention.context.transposed", "forward *.context.transpose", "backward *.q.transpose",
     second_run},
    {Kept, "layers.*.attention.*", "forward *.transpose", "backward *.q.transpose", second_run},
    {Kept, "global_memory_buffer.mpu", "forward *", "forward *", grows},
    {Unread, "layers.*.attention.rotary.*gradient", "backward *.rotary", "backward *.rotary", laid_in_zeros},
    {Unread, "embedding.sequence_first", "forward embedding", "forward embedding", own_part},
    {Unread, "embedding.sum", "forward embedding", "forward embedding", own_part},
    {Kept, "*.main_gradient", "optimizer_step *", "optimizer_step zero_gradients", step_ends},
    // The optimizer's own.
    {Kept, "*.on_host", "construction build_optimizer", "construction build_optimizer", grouping},
    {Unread, "*.whole.main", "construction build_optimizer", "optimizer_step zero_gradients", first_of_whole},
    {Kept, "*.whole.main", "construction build_optimizer", "optimizer_step zero_gradients", first_of_whole},
    {Kept, "*.gradient", "optimizer_step optimizer_step", "optimizer_step optimizer_step", hybrid_gradients},
    {Kept, "*.unscaled", "optimizer_step optimizer_step", "optimizer_step optimizer_step", unscaled_lists},
    {Kept, "*.absmax", "optimizer_step optimizer_step", "optimizer_step optimizer_step", unscaled_lists},
    {Unread, "*.main.scale", "optimizer_step optimizer_step", "optimizer_step optimizer_step", scale_of_one},
    {Unread, "*.transposed", "optimizer_step optimizer_step", "*", transposed_state},
    {Unread, "*.exp_avg*", "optimizer_step optimizer_step", "optimizer_step optimizer_step", transposed_state},
    // Forward functions.
    {Kept, "layers.*.attention.q", "forward layers.*.attention.*", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.attention.k", "forward layers.*.attention.*", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.attention.v", "forward layers.*.attention.*", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.attention.qkv.out", "forward layers.*.attention.*", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.attention.split.*_normed", "forward layers.*.attention.*", "forward layers.*.attention.*",
     forward_frame},
    // Of layers that run again, whose first run saves nothing that would keep them besides.
    {Kept, "layers.*.attention.norm.out", "forward layers.*.attention.kv_down", "forward layers.*.attention.proj",
     forward_frame},
    {Kept, "layers.*.attention.q_*.out", "forward layers.*.attention.*", "forward layers.*.attention.*", forward_frame},
    {Kept, "layers.*.mlp.experts.fc1.out", "forward layers.*.mlp.experts.activation",
     "forward layers.*.mlp.experts.fc2", moe_frame},
    {Kept, "add", "backward layers.*.mlp.router", "backward layers.*.mlp.router", gating_backward},
    {Kept, "layers.*.attention.core.scores_addend", "forward layers.*.attention.core",
     "forward layers.*.attention.core", addend},
    {Kept, "layers.*.attention.core.scores*", "forward layers.*.attention.core", "forward layers.*.attention.core",
     forward_frame},
    {Kept, "embedding.*", "forward embedding", "forward embedding", forward_frame},
    {Kept, "*head.logits", "forward *loss", "forward *loss", forward_frame},
    {Kept, "head.uncapped", "forward head", "forward head", forward_frame},
    {Kept, "*loss.labels", "forward *loss", "forward *loss", forward_frame},
    {Kept, "*loss.target_below", "forward *loss", "forward *loss", forward_frame},
    {Kept, "*loss.target_above", "forward *loss", "forward *loss", forward_frame},
    {Kept, "*loss.maximum", "forward *loss", "forward *loss", forward_frame},
    {Kept, "*loss.target_mask", "backward *loss", "backward *loss", backward_frame},
    {Kept, "*loss.masked_target", "backward *loss", "backward *loss", backward_frame},
    {Kept, "*loss.logits_gradient", "backward *head", "backward *head", backward_frame},
    {Kept, "*head.logits", "backward *head", "backward *head", backward_frame},
    {Kept, "rotary.angles", "forward embedding", "forward embedding", rotary_frame},
    {Kept, "rotary.angles", "forward load_batch", "forward load_batch", rotary_frame},
    {Unread, "rotary.whole_table", "forward embedding", "forward embedding", own_angles},
    {Unread, "rotary.whole_table", "forward load_batch", "forward load_batch", own_angles},
    {Kept, "layers.*.attention.rotary.query*", "forward layers.*.attention.rotary", "forward layers.*.attention.*",
     forward_frame},
    {Kept, "layers.*.attention.proj.out", "forward layers.*.attention.add", "forward layers.*.attention.add",
     forward_frame},
    {Kept, "layers.*.attention.*_repeated", "backward *.attention.core", "backward *.attention.core", backward_frame},
    {Kept, "layers.*.attention.core.uncapped_gradient", "backward *.attention.core", "backward *.attention.core",
     backward_frame},
    {Kept, "layers.*.attention.core.*_gradient", "backward *.attention.rotary", "backward *.attention.rotary",
     backward_frame},
    {Kept, "layers.*.attention.core.weights_gradient", "backward *.attention.core", "backward *.attention.core",
     backward_frame},
    {Kept, "next_tokens.*.embedding.below", "forward next_tokens.*.embedding", "forward next_tokens.*.embedding",
     masked_ids},
    {Kept, "next_tokens.*.embedding.above", "forward next_tokens.*.embedding", "forward next_tokens.*.embedding",
     masked_ids},
    {Kept, "next_tokens.*.embedding.ids_copy", "forward next_tokens.*.embedding", "forward next_tokens.*.embedding",
     masked_ids},
    {Kept, "layers.*.attention.core.scores_gradient", "backward *.attention.core", "backward *.attention.core",
     backward_frame},
    {Kept, "layers.*.attention.rotary.positions_gradient", "backward *.attention.rotary", "backward *.attention.rotary",
     backward_frame},
    {Kept, "head.uncapped_gradient", "backward head", "backward head", backward_frame},
    {Kept, "layers.*.attention.dropped", "backward *.attention.core", "backward *.attention.core", backward_frame},
    {Kept, "layers.*.attention.core.dropout_gradient", "backward *.attention.core", "backward *.attention.core",
     backward_frame},
    {Unread, "batch.attention_mask*", "forward load_batch", "backward *", saved_mask},
    {Kept, "batch.attention_mask*", "forward load_batch", "backward *", saved_mask},
    {Kept, "zeros.*", "optimizer_step optimizer_step", "optimizer_step optimizer_step", counts_zeros},
    {Kept, "loss.stacked", "communication end_step", "communication end_step", loss_reports},
    {Kept, "loss.reported*", "communication end_step", "communication end_step", loss_reports},
    {Kept, "loss.total_tokens", "*", "*", loss_frame},
    {Kept, "loss.tokens", "*", "*", loss_frame},
    {Kept, "loss.report", "*", "*", loss_frame},
    {Kept, "loss.sum_copy", "forward loss", "forward loss", loss_frame},  // while torch.cat makes the report
    {Kept, "loss.sum", "*", "*", loss_frame},
    {Kept, "loss.scaled", "*", "*", loss_frame},
    {Kept, "loss.gradient", "*", "*", loss_frame},
    {Kept, "loss.mask*", "forward loss", "forward loss", loss_frame},
    {Kept, "loss.logged", "communication end_step", "communication end_step", loss_frame},
    // Backward functions.
    {Kept, "layers.*.attention.norm.out", "backward *.attention.qkv", "backward *.attention.qkv", backward_frame},
    {Kept, "layers.*.mlp.norm.out", "backward *.mlp.fc1", "backward *.mlp.fc1", backward_frame},
    {Kept, "layers.*.add.out", "backward *.attention.qkv", "backward *.attention.qkv", backward_frame},
    {Kept, "layers.*.add.out", "backward *.mlp.fc1", "backward *.mlp.fc1", backward_frame},
    {Kept, "layers.*.add.out", "backward *.norm", "backward *.norm", backward_frame},
    {Kept, "embedding.out", "backward layers.*.attention.*", "backward layers.*.attention.*", backward_frame},
    {Kept, "final_norm.out", "backward head", "backward head", backward_frame},
    {Kept, "head.input_gradient", "backward head", "backward head", backward_frame},
    {Kept, "layers.*.attention.qkv.input_gradient", "backward *.attention.*", "backward *.attention.*", backward_frame},
    {Kept, "layers.*.mlp.fc1.input_gradient", "backward *.mlp.*", "backward *.mlp.*", backward_frame},
    {Kept, "layers.*.mixed_gradient", "backward *.attention.qkv", "backward *.attention.norm", backward_frame},
    {Kept, "layers.*.mlp.*.input_gradient", "backward *.mlp.fc1", "backward *.mlp.norm", backward_frame},
    {Kept, "layers.*.mlp.*glu", "backward *.mlp.fc2", "backward *.mlp.fc2", backward_frame},
    {Kept, "layers.*.mlp.*elu", "backward *.mlp.fc2", "backward *.mlp.fc2", backward_frame},
    {Kept, "layers.*.attention.context*", "backward *.attention.proj", "backward *.attention.proj", backward_frame},
    {Kept, "layers.*.mixer.scan.*", "forward *.mixer.scan", "forward *.mixer.scan", scan_frame},
    {Kept, "layers.*.mixer.*", "backward *.mixer.scan", "backward *.mixer.scan", scan_frame},
    {Kept, "layers.*.mixer.out_norm.out", "backward *.mixer.out_proj", "backward *.mixer.out_proj", backward_frame},
    {Kept, "layers.*.mixer.*", "backward *.mixer.in_proj", "backward *.mixer.norm", backward_frame},
    {Kept, "layers.*.mixer.norm.out", "backward *.mixer.in_proj", "backward *.mixer.in_proj", backward_frame},
    {Kept, "layers.*.mixer.in_proj.out", "forward *.mixer.batch_first", "forward *.mixer.out_proj", forward_frame},
    {Kept, "layers.*.attention.proj.input_gradient", "backward *.attention.core", "backward *.attention.core",
     backward_frame},
    {Kept, "layers.*.attention.q*", "backward *.attention.core", "backward *.attention.core", backward_frame},
    {Kept, "layers.*.norm.gradient_sum", "backward layers.*", "backward layers.*", backward_frame},
    {Kept, "final_norm.input_gradient", "backward layers.*", "backward layers.*", backward_frame},
    // Context parallelism.
    {Kept, "layers.*.attention.q.transposed", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.k.transposed", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.v.transposed", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.sent", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.all_tokens", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.kv", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.context", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.lse", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.rng_state", "forward *.attention.core", "forward *.attention.core", in_context},
    {Unread, "layers.*.attention.rng_state", "forward *.attention.core", "forward *.attention.core", in_context},
    {Kept, "layers.*.attention.kv", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.context", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.lse", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.rng_state", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.k", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.v", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.all_*", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.sent", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.second_lse", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.ring", "backward *.attention.core", "backward *.attention.core", in_context},
    {Kept, "layers.*.attention.core.query_gradient", "backward *.attention.core", "backward *.attention.core",
     in_context},
    {Kept, "layers.*.attention.core.query_gradients", "backward *.attention.core", "backward *.attention.core",
     in_context},
    {Kept, "layers.*.attention.core.key_gradient", "backward *.attention.core", "backward *.attention.core",
     in_context},
    {Kept, "layers.*.attention.core.value_gradient", "backward *.attention.core", "backward *.attention.core",
     in_context},
    {Kept, "layers.*.attention.core.all_heads", "backward *.attention.proj", "backward *.attention.proj",
     backward_frame},
    {Unwritten, "layers.*.attention.core.ring", "backward *.attention.core", "*", ring_of_parts},
    {Unread, "layers.*.attention.core.ring", "backward *.attention.core", "backward *", ring_of_parts},
    {Unread, "layers.*.attention.core.all_*", "forward *.attention.core", "forward *.attention.core", left_out},
    {Unread, "layers.*.attention.core.all_*", "backward *.attention.core", "backward *.attention.core", left_out},
    {Unread, "layers.*.attention.kv", "forward *.attention.core", "forward *.attention.core", left_out},
    // The pipeline.
    {Kept, "output.deallocated", "communication *", "*", deallocated},
    {Kept, "embedding.out", "communication *", "communication *", sent},
    {Kept, "layers.*.add.out", "communication *", "communication *", sent},
    {Kept, "final_norm.input_gradient", "communication *", "*", sent},
    {Kept, "layers.*.norm.gradient_sum", "communication *", "*", sent},
    {Kept, "received.input", "backward *", "*", in_lists},
    {Kept, "received.output_gradient", "backward *", "*", in_lists},
    // Of all dispatchers, and of experts one after another.
    {Unread, "layers.*.mlp.dispatcher.*", "forward layers.*.mlp.dispatcher", "*", other_ranks_choices},
    {Unread, "layers.*.mlp.dispatcher.slice_gradient", "backward layers.*.mlp.dispatcher",
     "backward layers.*.mlp.dispatcher", other_ranks_choices},
    {Kept, "layers.*.mlp.*", "backward layers.*.mlp.activation", "backward layers.*.mlp.activation", backward_frame},
    {Kept, "layers.*.mlp.dispatcher.*", "* layers.*.mlp.*", "forward layers.*.mlp.dispatcher", dispatcher_keeps},
    {Kept, "layers.*.mlp.*", "forward layers.*.mlp.dispatcher", "backward layers.*.mlp.dispatcher", dispatcher_keeps},
    {Kept, "layers.*.mlp.*", "backward layers.*.mlp.*", "backward layers.*.mlp.*", backward_frame},
};

// What layers save is in lists of TransformerEngine's.
constexpr std::string_view
    until_sent = "what a layer saved stays on the device until its copy is done (pytorch/cpu_offload.py)",
    until_next_layer =
        "what a layer saved, and its copy on the host, stay until the backward pass of the layer before begins, or "
        "that of all is over (pytorch/cpu_offload.py release_all_memory)",
    requested_or_not = "all that was saved comes back, whether or not a node asks for it (pytorch/cpu_offload.py)";

constexpr KnownFlow of_offloaded_layers[] = {
    {Kept, "*", "forward *", "forward layers.*.mlp.add", until_sent},
    {Kept, "*", "backward layers.*", "backward layers.*.attention.norm", until_next_layer},
    {Kept, "*", "backward *", "backward embedding", until_next_layer},
    {Kept, "*", "forward layers.*.mlp.*", "backward layers.*.attention.norm", until_next_layer},
    {Unread, "*", "backward layers.*.attention.norm", "backward embedding", requested_or_not},
};

constexpr std::string_view
    until_all_are_sent =
        "what a module's group gives up goes once all of its copies to the host are on their way "
        "(core/pipeline_parallel/fine_grained_activation_offload.py bulk_offload)",
    again_for_nobody =
        "a norm that runs again restores its output, which those that read it have back from the host "
        "(core/tensor_parallel/random.py CheckpointWithoutOutput)";

constexpr KnownFlow of_offloaded_modules[] = {
    {Kept, "received.input", "forward *", "*", in_lists},
    {Kept, "layers.*.attention.*", "forward layers.*.attention.core", "forward layers.*.attention.core",
     until_all_are_sent},
    {Unread, "layers.*.attention.norm.out", "forward layers.*.attention.norm", "*", again_for_nobody},
    {Kept, "layers.*.mlp.norm.out", "forward layers.*.mlp.dispatcher", "forward layers.*.mlp", moe_frame},
};

}  // namespace

std::span<const KnownFlow> flows_of_megatron() { return flows_by_operation; }
std::span<const KnownFlow> flows_of_offloaded_layers() { return of_offloaded_layers; }
std::span<const KnownFlow> flows_of_offloaded_modules() { return of_offloaded_modules; }

}  // namespace tidemark::parallel
