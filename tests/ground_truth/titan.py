"""What is recorded of torchtitan: its models by a config.json as transformers has it, and how they are trained."""

from recordings import deepseek_v2, deepseek_v3, llama, qwen3, qwen3_moe

SETTINGS = {
    "torchtitan": "0.2.2",
    "batch": 1,  # with a pipeline: pipeline_parallel_microbatch_size
    "sequence": 1024,
    "world": 8,
    "rank": 0,
    "replicate": 1,  # data_parallel_replicate_degree: groups that hold the same shards (HSDP)
    "tensor": 1,  # tensor_parallel_degree
    "context": 1,  # context_parallel_degree
    "expert": 1,  # expert_parallel_degree
    "expert_tensor": 1,  # expert_tensor_parallel_degree, where experts are shared out
    "pipeline": 1,  # pipeline_parallel_degree
    # pipeline_parallel_schedule: 1F1B | GPipe | Interleaved1F1B | LoopedBFS | InterleavedZeroBubble | ZBVZeroBubble |
    # DualPipeV, without expert_parallel_overlap
    "schedule": "1F1B",
    "layers_per_stage": None,  # pipeline_parallel_layers_per_stage
    "first_less": 1,  # pipeline_parallel_first_stage_less_layers
    "last_less": 1,  # pipeline_parallel_last_stage_less_layers
    "load_balancer": "headtail",  # context_parallel_load_balancer: headtail | None
    "loss_parallel": True,
    "reshard": "default",  # fsdp_reshard_after_forward: default | always | never
    "checkpointing": "none",  # none | full | op | every how many layers | budget 0.5: memory_budget, with compile
    "precision": "bf16",
    "reduce_dtype": "fp32",
    "implementation": "fused",  # of the optimizer: fused | foreach | for-loop
    "micro_batches": 1,  # gradient_accumulation_steps; with a pipeline: how many of them a step's one batch has
    "compile": False,  # torch.compile of each layer and of the loss
    "capability": "80",
    "triton": False,  # its kernels, of which torchtitan's experts have one
}

DEEP = {"num_hidden_layers": 6, "vocab_size": 4096}
UNTIED = {"vocab_size": 8192, "tie_word_embeddings": False}
UNTIED_DEEP = {**DEEP, "tie_word_embeddings": False}
# torch._grouped_mm by its own kernels: an H100's.
GROUPED = {"capability": "90", "triton": True}
ALONE = {"world": 1}
REPLICATED = {"world": 4, "replicate": 4}  # DistributedDataParallel
INTERLEAVED = {"pipeline": 2, "schedule": "Interleaved1F1B", "micro_batches": 4}
BREADTH_FIRST = {**INTERLEAVED, "schedule": "LoopedBFS"}
ZERO_BUBBLE = {**INTERLEAVED, "schedule": "InterleavedZeroBubble"}
ZERO_BUBBLE_V = {**INTERLEAVED, "schedule": "ZBVZeroBubble"}
DUAL_PIPE_V = {**INTERLEAVED, "schedule": "DualPipeV"}
DEEPER = {**DEEP, "num_hidden_layers": 14}

RECORDINGS = {
    "llama_8": (llama(), {}),
    "llama_layers_8": (llama(**DEEP), {"batch": 4}),
    "llama_layers_8_full": (llama(**DEEP), {"batch": 4, "checkpointing": "full"}),
    "llama_layers_8_op": (llama(**DEEP), {"batch": 4, "checkpointing": "op"}),
    "llama_layers_8_second": (llama(**DEEP), {"batch": 4, "checkpointing": "2"}),
    "llama_layers_4_rank_3": (llama(**DEEP), {"world": 4, "rank": 3, "checkpointing": "op"}),
    "llama_layers_16_never": (llama(**DEEP), {"world": 16, "reshard": "never", "checkpointing": "full"}),
    "llama_layers_2_always": (llama(**DEEP), {"world": 2, "reshard": "always", "batch": 2}),
    "llama_layers_8_foreach": (llama(**DEEP), {"implementation": "foreach", "checkpointing": "op", "batch": 2}),
    "llama_layers_8_accumulating": (llama(**DEEP), {"micro_batches": 3, "checkpointing": "op"}),
    "llama_hsdp_16": (llama(**DEEP), {"world": 16, "replicate": 2, "checkpointing": "full"}),
    "llama_uneven_48_last": (llama(**DEEP), {"world": 48, "rank": 47, "checkpointing": "op"}),
    "llama_64_reduce_bf16": (llama(), {"world": 64, "reduce_dtype": "bf16", "checkpointing": "op"}),
    "llama_0.2.0_8": (llama(**DEEP), {"torchtitan": "0.2.0", "batch": 2}),
    "llama_0.2.0_8_op": (llama(**DEEP), {"torchtitan": "0.2.0", "batch": 4, "checkpointing": "op"}),
    "llama_0.1.0_8": (llama(**DEEP), {"torchtitan": "0.1.0", "batch": 2, "checkpointing": "full"}),
    "llama_0.1.0_8_op": (llama(**DEEP), {"torchtitan": "0.1.0", "batch": 4, "checkpointing": "op"}),
    "llama_0.1.0_32_always": (
        llama(**DEEP), {"torchtitan": "0.1.0", "world": 32, "reshard": "always", "micro_batches": 2},
    ),
    "llama_tensor_2_8": (llama(**DEEP), {"tensor": 2, "batch": 2}),
    "llama_tensor_4_16_op": (llama(**DEEP), {"tensor": 4, "world": 16, "batch": 4, "checkpointing": "op"}),
    "llama_tensor_2_32_full": (llama(**DEEP), {"tensor": 2, "world": 32, "batch": 4, "checkpointing": "full"}),
    "llama_tensor_4_8_whole_loss": (llama(**DEEP), {"tensor": 4, "batch": 2, "loss_parallel": False}),
    "llama_tensor_8_64": (llama(num_key_value_heads=8), {"tensor": 8, "world": 64, "checkpointing": "full"}),
    "llama_tensor_4_4": (llama(**DEEP), {"tensor": 4, "world": 4, "batch": 2}),  # without FSDP: fp32
    "llama_tensor_2_2_op": (llama(**DEEP), {"tensor": 2, "world": 2, "batch": 2, "checkpointing": "op"}),
    "llama_tensor_2_2_accumulating": (llama(**DEEP), {"tensor": 2, "world": 2, "micro_batches": 3}),
    "llama_tensor_2_2_foreach": (llama(**DEEP), {"tensor": 2, "world": 2, "implementation": "foreach"}),
    "llama_tensor_4_4_for_loop": (llama(**DEEP), {"tensor": 4, "world": 4, "rank": 3, "implementation": "for-loop"}),
    "llama_8_fp32": (llama(**DEEP), {"precision": "fp32", "batch": 2}),
    "llama_8_fp32_full": (llama(**DEEP), {"precision": "fp32", "batch": 2, "checkpointing": "full"}),
    "llama_1": (llama(**DEEP), {**ALONE, "batch": 2}),
    "llama_1_full": (llama(**DEEP), {**ALONE, "batch": 4, "checkpointing": "full"}),
    "llama_1_op": (llama(**DEEP), {**ALONE, "batch": 4, "checkpointing": "op"}),
    "llama_1_accumulating": (llama(**DEEP), {**ALONE, "micro_batches": 3, "checkpointing": "2"}),
    "llama_1_foreach_fp32": (llama(**DEEP), {**ALONE, "precision": "fp32", "implementation": "foreach"}),
    "llama_0.1.0_1_op": (llama(**DEEP), {**ALONE, "torchtitan": "0.1.0", "batch": 2, "checkpointing": "op"}),
    "llama_0.2.0_1": (llama(**DEEP), {**ALONE, "torchtitan": "0.2.0", "batch": 2}),
    "qwen3_1": (qwen3(**UNTIED_DEEP), {**ALONE, "batch": 2}),
    "qwen3_1_op_accumulating": (qwen3(**UNTIED), {**ALONE, "micro_batches": 2, "checkpointing": "op"}),
    "replicated_4": (llama(**DEEP), {**REPLICATED, "batch": 2}),
    "replicated_4_op": (llama(**DEEP), {**REPLICATED, "batch": 4, "checkpointing": "op"}),
    "replicated_4_accumulating": (llama(**DEEP), {**REPLICATED, "micro_batches": 3, "checkpointing": "full"}),
    "replicated_0.1.0_4": (llama(**DEEP), {**REPLICATED, "torchtitan": "0.1.0", "batch": 2}),
    "qwen3_replicated_4_full": (qwen3(**UNTIED_DEEP), {**REPLICATED, "batch": 2, "checkpointing": "full"}),
    "compiled_8": (llama(**DEEP), {"compile": True, "batch": 4}),
    "compiled_8_full": (llama(**DEEP), {"compile": True, "batch": 4, "checkpointing": "full"}),
    "compiled_8_op": (llama(**DEEP), {"compile": True, "batch": 4, "checkpointing": "op"}),
    "compiled_8_second": (llama(**DEEP), {"compile": True, "batch": 4, "checkpointing": "2"}),
    "compiled_0.2.0_8_op": (llama(**DEEP), {"torchtitan": "0.2.0", "compile": True, "batch": 4, "checkpointing": "op"}),
    "compiled_0.1.0_8_op": (llama(**DEEP), {"torchtitan": "0.1.0", "compile": True, "batch": 4, "checkpointing": "op"}),
    "compiled_0.1.0_8_full": (
        llama(**DEEP), {"torchtitan": "0.1.0", "compile": True, "batch": 2, "checkpointing": "full"},
    ),
    "compiled_tensor_2_8": (llama(**DEEP), {"compile": True, "tensor": 2, "batch": 4}),
    "compiled_tensor_2_8_op": (llama(**DEEP), {"compile": True, "tensor": 2, "batch": 4, "checkpointing": "op"}),
    "qwen3_8": (qwen3(**UNTIED), {"batch": 4}),
    "qwen3_8_full": (qwen3(**UNTIED), {"batch": 2, "checkpointing": "full"}),
    "qwen3_8_op": (qwen3(**UNTIED), {"batch": 2, "checkpointing": "op"}),
    "qwen3_layers_8_op": (qwen3(**UNTIED_DEEP), {"batch": 4, "checkpointing": "op"}),
    "qwen3_hsdp_16_accumulating": (
        qwen3(**UNTIED_DEEP), {"world": 16, "replicate": 2, "checkpointing": "full", "micro_batches": 3},
    ),
    "qwen3_0.2.0_8_full": (qwen3(**UNTIED_DEEP), {"torchtitan": "0.2.0", "batch": 4, "checkpointing": "full"}),
    "qwen3_0.2.0_8_op": (qwen3(**UNTIED_DEEP), {"torchtitan": "0.2.0", "batch": 4, "checkpointing": "op"}),
    "qwen3_tensor_2_8": (qwen3(**UNTIED), {"tensor": 2, "batch": 4}),
    "qwen3_tensor_2_8_full": (qwen3(**UNTIED), {"tensor": 2, "batch": 2, "checkpointing": "full"}),
    "qwen3_tensor_4_16_op": (qwen3(**UNTIED_DEEP), {"tensor": 4, "world": 16, "batch": 4, "checkpointing": "op"}),
    "llama_context_2_8": (llama(**DEEP), {"context": 2, "batch": 4}),
    "llama_context_4_8_rank_2": (llama(**DEEP), {"context": 4, "rank": 2, "sequence": 4096}),
    "llama_context_2_8_op": (llama(**DEEP), {"context": 2, "batch": 2, "rank": 1, "checkpointing": "op"}),
    "llama_context_2_16_tensor_2_full": (
        llama(**DEEP), {"context": 2, "tensor": 2, "world": 16, "batch": 2, "rank": 2, "checkpointing": "full"},
    ),
    "llama_context_4_16_hsdp": (
        llama(**DEEP), {"context": 4, "world": 16, "replicate": 2, "sequence": 4096, "rank": 7, "micro_batches": 2},
    ),
    "llama_context_2_8_unbalanced": (
        llama(**DEEP), {"context": 2, "batch": 2, "rank": 1, "load_balancer": None},
    ),
    "qwen3_context_2_8": (qwen3(**UNTIED_DEEP), {"context": 2, "batch": 2, "sequence": 2048}),
    "qwen3_context_4_32_full": (
        qwen3(**UNTIED_DEEP), {"context": 4, "world": 32, "sequence": 8192, "rank": 3, "checkpointing": "full"},
    ),
    "qwen3_compiled_8_full": (qwen3(**UNTIED_DEEP), {"compile": True, "batch": 4, "checkpointing": "full"}),
    "qwen3_compiled_8_vocabulary": (
        qwen3(num_hidden_layers=2, tie_word_embeddings=False), {"compile": True, "batch": 4, "checkpointing": "full"},
    ),
    "compiled_8_budget_20": (llama(**DEEP), {"compile": True, "batch": 4, "checkpointing": "budget 0.2"}),
    "compiled_8_budget_50": (llama(**DEEP), {"compile": True, "batch": 4, "checkpointing": "budget 0.5"}),
    "compiled_8_budget_80": (llama(**DEEP), {"compile": True, "batch": 4, "checkpointing": "budget 0.8"}),
    "qwen3_compiled_8_budget_40": (
        qwen3(**UNTIED_DEEP), {"compile": True, "batch": 4, "checkpointing": "budget 0.4"},
    ),
    "qwen3_compiled_8_budget_70": (
        qwen3(**UNTIED_DEEP), {"compile": True, "batch": 4, "checkpointing": "budget 0.7"},
    ),
    "qwen3_compiled_8_op": (qwen3(**UNTIED_DEEP), {"compile": True, "batch": 4, "checkpointing": "op"}),
    "experts_8": (qwen3_moe(), {"batch": 4, **GROUPED}),
    "experts_8_full": (qwen3_moe(), {"batch": 4, "checkpointing": "full", **GROUPED}),
    "experts_8_op": (qwen3_moe(), {"batch": 2, "checkpointing": "op", **GROUPED}),
    "experts_parallel_8": (qwen3_moe(), {"expert": 8, "batch": 4, **GROUPED}),
    "experts_parallel_4_8_full": (qwen3_moe(), {"expert": 4, "batch": 4, "rank": 6, "checkpointing": "full", **GROUPED}),
    "experts_parallel_2_16_hsdp": (
        qwen3_moe(), {"expert": 2, "world": 16, "replicate": 2, "batch": 2, "micro_batches": 2, **GROUPED},
    ),
    "experts_32_accumulating": (
        qwen3_moe(num_hidden_layers=3, num_experts=48, num_experts_per_tok=6),
        {"world": 32, "replicate": 2, "rank": 5, "batch": 2, "sequence": 1000, "micro_batches": 2,
         "checkpointing": "2", **GROUPED},
    ),
    "experts_tensor_2_8": (qwen3_moe(), {"tensor": 2, "batch": 4, **GROUPED}),
    "experts_tensor_2_8_full": (qwen3_moe(), {"tensor": 2, "batch": 4, "checkpointing": "full", **GROUPED}),
    "experts_tensor_4_16_op": (
        qwen3_moe(), {"tensor": 4, "world": 16, "rank": 6, "batch": 4, "checkpointing": "op", **GROUPED},
    ),
    "experts_tensor_2_16_hsdp": (
        qwen3_moe(num_hidden_layers=3, num_experts=48, num_experts_per_tok=6),
        {"tensor": 2, "world": 16, "replicate": 2, "batch": 2, "micro_batches": 2, "loss_parallel": False, **GROUPED},
    ),
    "experts_tensor_parallel_2_8": (qwen3_moe(), {"tensor": 2, "expert": 2, "batch": 4, **GROUPED}),
    "experts_tensor_parallel_4_8": (qwen3_moe(), {"tensor": 2, "expert": 4, "rank": 5, "batch": 4, **GROUPED}),
    "experts_tensor_parallel_4_8_full": (
        qwen3_moe(), {"tensor": 2, "expert": 4, "rank": 2, "batch": 4, "checkpointing": "full", **GROUPED},
    ),
    "experts_tensor_parallel_2_16_hsdp": (
        qwen3_moe(num_hidden_layers=3, num_experts=48, num_experts_per_tok=6),
        {"tensor": 4, "expert": 2, "world": 16, "replicate": 2, "rank": 3, "batch": 2, "micro_batches": 2, **GROUPED},
    ),
    "experts_tensor_parts_2_8": (qwen3_moe(), {"tensor": 2, "expert": 2, "expert_tensor": 2, "batch": 4, **GROUPED}),
    "experts_tensor_parts_4_16_full": (
        qwen3_moe(),
        {"tensor": 2, "expert": 4, "expert_tensor": 2, "world": 16, "rank": 6, "batch": 4, "checkpointing": "full",
         **GROUPED},
    ),
    "experts_1": (qwen3_moe(), {**ALONE, "batch": 2, **GROUPED}),
    "deepseek_1_full": (deepseek_v2(), {**ALONE, "batch": 2, "checkpointing": "full", **GROUPED}),
    "deepseek_8": (deepseek_v2(), {"batch": 4, **GROUPED}),
    "deepseek_8_full": (deepseek_v2(), {"batch": 4, "checkpointing": "full", **GROUPED}),
    "deepseek_8_op": (deepseek_v2(), {"batch": 2, "checkpointing": "op", **GROUPED}),
    "deepseek_groups_8": (deepseek_v3(), {"batch": 2, **GROUPED}),
    "deepseek_groups_16_hsdp_op": (
        deepseek_v3(num_hidden_layers=5, first_k_dense_replace=3),
        {"batch": 2, "world": 16, "replicate": 2, "rank": 3, "micro_batches": 2, "checkpointing": "op", **GROUPED},
    ),
    "deepseek_tensor_2_8": (deepseek_v2(), {"tensor": 2, "batch": 4, **GROUPED}),
    "deepseek_tensor_2_8_full": (
        deepseek_v2(n_shared_experts=1), {"tensor": 2, "batch": 4, "checkpointing": "full", **GROUPED},
    ),
    "deepseek_groups_tensor_4_16_op": (
        deepseek_v3(), {"tensor": 4, "world": 16, "batch": 2, "rank": 6, "checkpointing": "op", **GROUPED},
    ),
    "deepseek_parallel_8": (deepseek_v2(), {"expert": 8, "batch": 4, **GROUPED}),
    "deepseek_parallel_4_8_full": (
        deepseek_v2(n_shared_experts=1), {"expert": 4, "batch": 4, "rank": 6, "checkpointing": "full", **GROUPED},
    ),
    "deepseek_groups_parallel_2_16_hsdp": (
        deepseek_v3(), {"expert": 2, "world": 16, "replicate": 2, "batch": 2, "micro_batches": 2, **GROUPED},
    ),
    "deepseek_groups_parallel_8_32_second": (
        deepseek_v3(num_hidden_layers=6, qk_rope_head_dim=32, v_head_dim=96, moe_intermediate_size=768),
        {"expert": 8, "world": 32, "rank": 17, "batch": 3, "sequence": 2048, "checkpointing": "2", **GROUPED},
    ),
    "deepseek_tensor_parallel_2_8": (deepseek_v2(), {"tensor": 2, "expert": 2, "batch": 4, **GROUPED}),
    "deepseek_groups_tensor_parallel_8_16_full": (
        deepseek_v3(),
        {"tensor": 2, "expert": 8, "world": 16, "batch": 2, "rank": 6, "checkpointing": "full", **GROUPED},
    ),
    "deepseek_tensor_parts_4_16_hsdp": (
        deepseek_v2(n_shared_experts=1),
        {"tensor": 2, "expert": 4, "expert_tensor": 2, "world": 16, "replicate": 2, "rank": 3, "batch": 2, **GROUPED},
    ),
    "pipeline_2_2": (llama(**DEEP), {"pipeline": 2, "world": 2, "micro_batches": 4}),  # without FSDP: fp32
    "pipeline_2_2_last": (llama(**DEEP), {"pipeline": 2, "world": 2, "micro_batches": 4, "rank": 1}),
    "pipeline_2_8": (llama(**DEEP), {"pipeline": 2, "micro_batches": 4}),
    "pipeline_2_8_last": (llama(**DEEP), {"pipeline": 2, "micro_batches": 4, "rank": 4}),
    "pipeline_4_8_full": (
        llama(**DEEP), {"pipeline": 4, "batch": 2, "micro_batches": 8, "rank": 2, "checkpointing": "full"},
    ),
    "pipeline_2_8_op_always": (
        llama(**DEEP), {"pipeline": 2, "micro_batches": 3, "rank": 5, "checkpointing": "op", "reshard": "always"},
    ),
    "pipeline_2_8_tensor_2": (llama(**DEEP), {"pipeline": 2, "tensor": 2, "micro_batches": 4, "rank": 1}),
    "pipeline_2_8_tensor_2_last": (llama(**DEEP), {"pipeline": 2, "tensor": 2, "micro_batches": 4, "rank": 6}),
    "pipeline_2_16_hsdp": (
        llama(**DEEP), {"pipeline": 2, "world": 16, "replicate": 2, "micro_batches": 2, "rank": 3},
    ),
    "pipeline_2_8_gpipe": (llama(**DEEP), {"pipeline": 2, "schedule": "GPipe", "micro_batches": 4, "rank": 1}),
    "pipeline_4_16_context_2": (
        llama(**DEEP), {"pipeline": 4, "context": 2, "world": 16, "micro_batches": 4, "rank": 13},
    ),
    "pipeline_interleaved_2_8": (llama(**DEEP), INTERLEAVED),
    "pipeline_interleaved_2_8_last": (llama(**DEEP), {**INTERLEAVED, "rank": 4}),
    "pipeline_interleaved_4_8_full": (
        llama(**{**DEEP, "num_hidden_layers": 14}),
        {**INTERLEAVED, "pipeline": 4, "micro_batches": 8, "rank": 3, "checkpointing": "full"},
    ),
    "pipeline_experts_2_8": (qwen3_moe(num_hidden_layers=4), {"pipeline": 2, "micro_batches": 4, **GROUPED}),
    "pipeline_experts_2_8_last_full": (
        qwen3_moe(num_hidden_layers=4),
        {"pipeline": 2, "micro_batches": 4, "rank": 5, "checkpointing": "full", **GROUPED},
    ),
    "pipeline_experts_parallel_2_8_full": (
        qwen3_moe(num_hidden_layers=4),
        {"pipeline": 2, "expert": 4, "micro_batches": 4, "rank": 2, "checkpointing": "full", **GROUPED},
    ),
    "pipeline_experts_interleaved_2_4_last": (
        qwen3_moe(num_hidden_layers=6), {**INTERLEAVED, "world": 4, "rank": 3, **GROUPED},
    ),
    "pipeline_experts_tensor_2_8_last": (
        qwen3_moe(num_hidden_layers=4), {"pipeline": 2, "tensor": 2, "micro_batches": 4, "rank": 7, **GROUPED},
    ),
    "pipeline_experts_tensor_parallel_2_8": (
        qwen3_moe(num_hidden_layers=4),
        {"pipeline": 2, "tensor": 2, "expert": 2, "micro_batches": 4, "rank": 1, **GROUPED},
    ),
    "pipeline_deepseek_2_8": (deepseek_v2(num_hidden_layers=4), {"pipeline": 2, "micro_batches": 4, **GROUPED}),
    "pipeline_deepseek_groups_tensor_2_8_last": (
        deepseek_v3(num_hidden_layers=4), {"pipeline": 2, "tensor": 2, "micro_batches": 4, "rank": 7, **GROUPED},
    ),
    "pipeline_deepseek_parallel_2_8_last": (
        deepseek_v2(num_hidden_layers=4), {"pipeline": 2, "expert": 2, "micro_batches": 3, "rank": 6, **GROUPED},
    ),
    "pipeline_deepseek_groups_4_16_full": (
        deepseek_v3(num_hidden_layers=10),
        {"pipeline": 4, "world": 16, "expert": 4, "micro_batches": 5, "rank": 6, "checkpointing": "full", **GROUPED},
    ),
    "pipeline_bfs_2_8": (llama(**DEEP), BREADTH_FIRST),
    "pipeline_bfs_2_8_last": (llama(**DEEP), {**BREADTH_FIRST, "rank": 4}),
    "pipeline_bfs_4_8_full": (
        llama(**DEEPER), {**BREADTH_FIRST, "pipeline": 4, "micro_batches": 6, "rank": 3, "checkpointing": "full"},
    ),
    "pipeline_zb_2_8": (llama(**DEEP), ZERO_BUBBLE),
    "pipeline_zb_2_8_last": (llama(**DEEP), {**ZERO_BUBBLE, "rank": 4}),
    "pipeline_zb_2_2_last": (llama(**DEEP), {**ZERO_BUBBLE, "world": 2, "rank": 1}),
    "pipeline_zb_2_8_tensor_2": (llama(**DEEP), {**ZERO_BUBBLE, "tensor": 2, "rank": 6}),
    "pipeline_zb_4_8": (llama(**DEEPER), {**ZERO_BUBBLE, "pipeline": 4, "micro_batches": 8, "rank": 5}),
    "pipeline_zbv_2_8": (llama(**DEEP), ZERO_BUBBLE_V),
    "pipeline_zbv_2_8_turn": (llama(**DEEP), {**ZERO_BUBBLE_V, "rank": 4}),
    "pipeline_zbv_4_8": (llama(**DEEPER), {**ZERO_BUBBLE_V, "pipeline": 4, "micro_batches": 8, "rank": 2}),
    "pipeline_zbv_qwen3_2_8": (qwen3(**UNTIED_DEEP), {**ZERO_BUBBLE_V, "rank": 4}),
    "pipeline_dual_2_8": (llama(**DEEP), DUAL_PIPE_V),
    "pipeline_dual_2_8_turn": (llama(**DEEP), {**DUAL_PIPE_V, "rank": 4}),
    "pipeline_dual_4_8": (llama(**DEEPER), {**DUAL_PIPE_V, "pipeline": 4, "micro_batches": 8, "rank": 2}),
    "pipeline_qwen3_2_8_full": (
        qwen3(**UNTIED_DEEP), {"pipeline": 2, "micro_batches": 4, "rank": 4, "checkpointing": "full"},
    ),
}  # fmt: skip


def settings_of(name):
    config, chosen = RECORDINGS[name]
    unknown = set(chosen) - set(SETTINGS)
    assert not unknown, f"{name}: unknown settings {unknown}"
    return dict(config), {**SETTINGS, **chosen}
