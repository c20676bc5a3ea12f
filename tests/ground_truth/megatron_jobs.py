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
MOE = {
    "num-experts": 8, "moe-router-topk": 2, "moe-token-dispatcher-type": "alltoall",
    "moe-router-load-balancing-type": "aux_loss", "moe-aux-loss-coeff": 0.01,
}  # fmt: skip
# Experts one after another (SequentialMLP); how many tokens each gets, megatron_routing.py says.
MIXTRAL = LLAMA | MOE
GPT_EXPERTS = GPT | MOE | {
    "disable-bias-linear": True, "no-bias-gelu-fusion": True, "untie-embeddings-and-output-weights": True,
    "moe-ffn-hidden-size": 1024,
}  # fmt: skip
ALL_GATHER = {"moe-token-dispatcher-type": "allgather"}
CAPACITY = {"moe-expert-capacity-factor": 1.0, "moe-pad-expert-input-to-capacity": True}
# Of Transformer Engine the Python side, over stand-ins (transformer_engine_stand_ins.py). What cuDNN's attention works in,
# no source says; FlashAttention's package is not there.
ENGINE = {"transformer-impl": "transformer_engine", "attention-backend": "fused"}
LATENT = {
    "multi-latent-attention": True, "q-lora-rank": 256, "kv-lora-rank": 128, "qk-head-dim": 64,
    "qk-pos-emb-head-dim": 32, "v-head-dim": 64, "qk-layernorm": True, "normalization": "LayerNorm",
    "group-query-attention": False, "num-query-groups": False,
}  # fmt: skip
CONTEXT = {"context-parallel-size": 2}
GROUPED = {"moe-grouped-gemm": True}
ENDS = {"first": 1, "last": 7}  # of eight: two stages of two replicas of two tensor-parallel ranks
STAGES = {"first": 0, "last": 3}  # of four: two stages of two replicas


def experts(ranks, tensor=None):
    """Ranks that a layer's experts are on, and how many each of them is cut over where that is not the layers' number."""
    made = {"expert-model-parallel-size": ranks}
    return made if tensor is None else made | {"expert-tensor-parallel-size": tensor}



def of_ranks(name, flags, ranks, world, **more):
    return {f"{name}_{end}": (flags, {"world": world, "rank": rank, **more}) for end, rank in ranks.items()}


def engine(flags, **settings):
    return flags | ENGINE, {"transformer_engine": "2.11.0", **settings}


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
    "moe": (MIXTRAL, {}),
    "moe_fp32": (MIXTRAL | FP32, {}),
    "moe_uniform": (MIXTRAL | UNIFORM, {}),
    "moe_capacity": (MIXTRAL | CAPACITY, {}),
    "moe_ep2": (MIXTRAL | experts(2), {"world": 2, "rank": 1}),
    "moe_ep2_all_gather": (MIXTRAL | experts(2) | ALL_GATHER, {"world": 2, "rank": 1}),
    "moe_ep4_zero": (MIXTRAL | experts(4) | ZERO, {"world": 4, "rank": 3}),
    **of_ranks("moe_pp2_ep2", MIXTRAL | ZERO | PIPELINE | experts(2), STAGES, 4),
    "gpt_moe_shared": (GPT_EXPERTS | {"moe-shared-expert-intermediate-size": 1024}, {}),
    "gpt_moe_sp2": (GPT_EXPERTS | SEQUENCE, {"world": 2, "rank": 1, "apex": True}),
    "gpt_moe_sp2_ep2": (GPT_EXPERTS | SEQUENCE | experts(2), {"world": 4, "rank": 3, "apex": True}),
    "gpt_moe_sp2_ep2_etp1": (GPT_EXPERTS | SEQUENCE | experts(2, 1), {"world": 4, "rank": 3, "apex": True}),
    "te_llama": engine(LLAMA),
    "te_llama_sp2": engine(LLAMA | SEQUENCE, world=2, rank=1),
    **{f"te_llama_cp2_{how}": engine(LLAMA | CONTEXT | {"cp-comm-type": how}, world=2, rank=1)
       for how in ("p2p", "a2a", "all_gather")},
    "te_llama_sp2_cp2_zero": engine(LLAMA | SEQUENCE | CONTEXT | ZERO, world=8, rank=7),
    "te_llama_uniform": engine(LLAMA | UNIFORM),
    "te_latent": engine(LLAMA | LATENT),
    "te_latent_sp2": engine(LLAMA | LATENT | SEQUENCE, world=2, rank=1),
    "te_latent_pp2_last": engine(LLAMA | LATENT | PIPELINE | ZERO, world=4, rank=3),
    "te_moe_ep2": engine(MIXTRAL | GROUPED | experts(2), world=2, rank=1),
    "te_moe_sp2_ep2": engine(MIXTRAL | GROUPED | SEQUENCE | experts(2), world=4, rank=3),
    "te_latent_moe": engine(LLAMA | LATENT | MOE | GROUPED),
}


def settings_of(job):
    return {**SETTINGS, **job[1]}


def flags_of(job):
    for flag, value in job[0].items():
        if value is not False:
            yield from [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
