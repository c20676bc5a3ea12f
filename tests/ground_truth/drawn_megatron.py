"""Trainings by Megatron-LM that nobody chose: `job(seed)` says with which flags, and which rank of which world.

Releases take turns, and so do families; everything else is drawn. What Megatron-LM refuses is not drawn; a job that the
prediction gets wrong stays.
"""

import drawn
import megatron_jobs as jobs

SEEDS = range(200, 240)
EXPERT_SEEDS = range(240, 256)  # of models with experts
RELEASES = ("0.12.0", "0.14.0", "0.16.0", "0.19.0")
FAMILIES = ("gpt", "llama")
EXPERT_FAMILIES = ("gpt_moe", "moe")


def release_of(seed):
    return RELEASES[seed % len(RELEASES)]


def family_of(seed):
    families = EXPERT_FAMILIES if seed in EXPERT_SEEDS else FAMILIES
    return families[seed // len(RELEASES) % len(families)]


def name_of(seed):
    return f"drawn_{seed}_{family_of(seed)}"


def model(draw, family):
    heads, width = draw.one_of((4, 8)), draw.one_of((64, 80, 96, 128))
    hidden, sequence = heads * width, draw.one_of((128, 256, 320, 512, 768, 1024))
    flags = {
        **(jobs.GPT if family == "gpt" else jobs.LLAMA), "num-layers": draw.one_of((2, 4, 6)), "hidden-size": hidden,
        "num-attention-heads": heads, "seq-length": sequence, "max-position-embeddings": sequence,
        "vocab-size": draw.one_of((1000, 4095, 8191, 16383, 32000)), "micro-batch-size": draw.one_of((1, 1, 2, 3)),
        "ffn-hidden-size": heads * draw.one_of((96, 192, 256)), "bf16": draw.happens(0.8),
    }  # fmt: skip
    if family == "gpt":
        flags["hidden-dropout"] = flags["attention-dropout"] = draw.one_of((0.0, 0.1))
    else:
        flags["group-query-attention"] = draw.happens(0.6)
        if not flags["group-query-attention"]:
            del flags["num-query-groups"]
        flags["untie-embeddings-and-output-weights"] = draw.happens(0.7)
    return flags


def layout(draw, flags, apex):
    """Flags, and the ranks of a model and how many replicas it has."""
    tensor, stages, replicas = draw.one_of((1, 1, 2, 4)), draw.one_of((1, 1, 2)), draw.one_of((1, 2, 4))
    made = {"tensor-model-parallel-size": tensor, "pipeline-model-parallel-size": stages}
    made["sequence-parallel"] = apex and tensor > 1 and draw.happens(0.7)
    if stages > 1 and flags["num-layers"] > 2 and draw.happens(0.4):
        made["num-layers-per-virtual-pipeline-stage"] = 1
    if replicas > 1:
        made |= draw.one_of(({}, jobs.ZERO, jobs.ZERO, jobs.OVERLAP))
    passes = draw.one_of((1, 2, 2)) * stages
    made["global-batch-size"] = flags["micro-batch-size"] * replicas * passes
    return made, tensor * stages, replicas


def habits(draw):
    made = dict(draw.one_of(({}, {}, {}, jobs.UNIFORM, jobs.BLOCK, jobs.SELECTIVE)))
    for each in (jobs.UNFUSED, jobs.OWN_GRADIENTS, jobs.OWN_SOFTMAX):
        made |= each if draw.happens(0.25) else {}
    return made


def with_experts(seed):
    """(flags, settings) of a seed of EXPERT_SEEDS."""
    draw, gpt = drawn.Draw(seed), family_of(seed) == "gpt_moe"
    flags = model(draw, "gpt" if gpt else "llama")
    flags |= (jobs.GPT_EXPERTS if gpt else jobs.MIXTRAL) | {key: flags[key] for key in flags if key != "num-query-groups"}
    flags |= {"hidden-dropout": 0.0, "attention-dropout": 0.0, "untie-embeddings-and-output-weights": True}
    if not gpt:
        flags |= {"group-query-attention": True, "num-query-groups": flags["num-attention-heads"] // 2}
    flags["num-experts"] = draw.one_of((4, 8))
    if gpt:
        flags["moe-ffn-hidden-size"] = draw.one_of((256, 512, 768))
    if draw.happens(0.3):
        flags |= jobs.ALL_GATHER
    tensor, stages, replicas = draw.one_of((1, 2)) if gpt else 1, draw.one_of((1, 1, 2)), draw.one_of((1, 2, 4))
    flags |= {"tensor-model-parallel-size": tensor, "pipeline-model-parallel-size": stages}
    flags["sequence-parallel"] = tensor > 1  # experts of tensor-parallel ranks want it
    flags |= jobs.experts(draw.one_of((1, replicas)))
    flags |= draw.one_of(({}, jobs.ZERO)) if replicas > 1 else {}
    flags["global-batch-size"] = flags["micro-batch-size"] * replicas * draw.one_of((1, 2, 2)) * stages
    flags |= draw.one_of(({}, {}, {}, jobs.UNIFORM, jobs.BLOCK, jobs.SELECTIVE))
    stage = draw.one_of((0, stages - 1))
    rank, world = (stage + 1) * tensor * replicas - 1, tensor * stages * replicas
    return flags, {"megatron": release_of(seed), "world": world, "rank": rank, "apex": gpt}


def job(seed):
    """(flags, settings) of a seed."""
    if seed in EXPERT_SEEDS:
        return with_experts(seed)
    draw, family = drawn.Draw(seed), family_of(seed)
    flags = model(draw, family)
    apex = family == "gpt" and draw.happens(0.6)
    made, ranks, replicas = layout(draw, flags, apex)
    tensor, stages = made["tensor-model-parallel-size"], made["pipeline-model-parallel-size"]
    world = ranks * replicas
    stage = draw.one_of((0, stages - 1))
    # Tensor-parallel ranks come first, then replicas, then stages: the last replica's last tensor-parallel rank.
    rank = (stage + 1) * tensor * replicas - 1
    settings = {"megatron": release_of(seed), "world": world, "rank": rank, "apex": apex}
    return flags | made | habits(draw), settings


JOBS = {name_of(seed): job(seed) for seed in (*SEEDS, *EXPERT_SEEDS)}
