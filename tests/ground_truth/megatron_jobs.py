"""What is recorded of Megatron-LM: flags of pretrain_gpt.py, and which rank of which world. Layers are local ones. Of
tensor-parallel ranks the last is recorded: the first keeps what its data loader gave it, others do not."""

# `apex`: with Apex's LayerNorm. PyTorch's norms, which are taken without it, refuse sequence parallelism, and Apex's are no
# RMSNorm: only LayerNorm's models have it.
SETTINGS = {"megatron": "0.16.0", "world": 1, "rank": 0, "capability": "80", "triton": True, "apex": False}

ALWAYS = {
    "transformer-impl": "local", "tokenizer-type": "NullTokenizer", "disable-gloo-process-groups": True,
    "no-persist-layer-norm": True, "no-rope-fusion": True, "train-iters": 3, "lr": 1e-4,
}  # fmt: skip
UNFUSED = {"no-bias-dropout-fusion": True, "no-bias-swiglu-fusion": True, "no-bias-gelu-fusion": True}
SMALL = {
    **ALWAYS, "num-layers": 4, "hidden-size": 512, "num-attention-heads": 8, "seq-length": 512,
    "max-position-embeddings": 512, "micro-batch-size": 1, "global-batch-size": 4, "vocab-size": 8191, "bf16": True,
}  # fmt: skip
GPT = {**SMALL, "position-embedding-type": "learned_absolute"}
LLAMA = {
    **SMALL, "swiglu": True, "normalization": "RMSNorm", "disable-bias-linear": True, "position-embedding-type": "rope",
    "untie-embeddings-and-output-weights": True, "group-query-attention": True, "num-query-groups": 4,
    "ffn-hidden-size": 1536, "hidden-dropout": 0.0, "attention-dropout": 0.0,
}  # fmt: skip
ZERO = {"use-distributed-optimizer": True}
TENSOR = {"tensor-model-parallel-size": 2}
SEQUENCE = {**TENSOR, "sequence-parallel": True}
PIPELINE = {"pipeline-model-parallel-size": 2}
CHUNKS = {**PIPELINE, "num-layers-per-virtual-pipeline-stage": 1}
OVERLAP = {**ZERO, "overlap-grad-reduce": True, "overlap-param-gather": True}
FP32 = {"bf16": False}
UNIFORM = {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
BLOCK = {"recompute-granularity": "full", "recompute-method": "block", "recompute-num-layers": 2}
SELECTIVE = {"recompute-granularity": "selective"}
OWN_GRADIENTS = {"no-gradient-accumulation-fusion": True}
OWN_SOFTMAX = {"no-masked-softmax-fusion": True, "attention-softmax-in-fp32": True}
ENDS = {"first": 1, "last": 7}  # of eight: two stages of two replicas of two tensor-parallel ranks
STAGES = {"first": 0, "last": 3}  # of four: two stages of two replicas


def of_ranks(name, flags, ranks, world, **more):
    return {f"{name}_{end}": (flags, {"world": world, "rank": rank, **more}) for end, rank in ranks.items()}


RECORDINGS = {
    "llama": (LLAMA | UNFUSED, {}),
    "gpt": (GPT | UNFUSED, {}),
    "llama_fused": (LLAMA, {}),
    "gpt_fused": (GPT, {}),
    **of_ranks("llama_tp2_pp2_dp2", LLAMA | UNFUSED | ZERO | TENSOR | PIPELINE, ENDS, 8),
    **of_ranks("gpt_sp2_pp2_dp2", GPT | ZERO | SEQUENCE | PIPELINE, ENDS, 8, apex=True),
    **of_ranks("llama_chunks", LLAMA | ZERO | CHUNKS, STAGES, 4),
    "llama_fp32": (LLAMA | FP32, {}),
    "llama_overlap": (LLAMA | OVERLAP | {"global-batch-size": 8}, {"world": 4, "rank": 3}),
    "llama_uniform": (LLAMA | UNIFORM, {}),
    "llama_block": (LLAMA | BLOCK, {}),
    "llama_selective": (LLAMA | SELECTIVE, {}),
    "llama_own_gradients": (LLAMA | OWN_GRADIENTS, {}),
    "llama_own_softmax": (LLAMA | OWN_SOFTMAX, {}),
}


def settings_of(job):
    return {**SETTINGS, **job[1]}


def flags_of(job):
    for flag, value in job[0].items():
        if value is not False:
            yield from [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
