"""Records the memory of torchtitan's trainings, as PyTorch's own allocator counts it, without a GPU: see README.md.

python tests/ground_truth/record_titan.py --releases FOLDER --all
python tests/ground_truth/record_titan.py --releases FOLDER NAME...

FOLDER has a folder of each release of torchtitan that is asked for, as `pip install --target FOLDER/0.2.2` leaves it.
"""

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import record_fake
import record_sharded
from titan import RECORDINGS, settings_of

HERE = Path(__file__).resolve().parent
MADE_BY = {**record_sharded.MADE_BY, "allocate_buffer": "receive_buffer"}
HOST_MADE_BY = {"batches": "batch", "batch_generator": "batch", "forward_backward_step": "batch"}
OUT = HERE.parent / "golden" / "titan" / "recordings"
COMPILED = HERE.parent / "golden" / "compiled" / "recordings"
TYPES = {"bf16": "bfloat16", "fp32": "float32"}


def parallel_dims(settings):
    """torchtitan's mesh, whatever its release's constructor still asks for."""
    import dataclasses

    from torchtitan.distributed import ParallelDims

    said = {
        "dp_replicate": settings["replicate"], "dp_shard": -1, "cp": settings["context"], "tp": settings["tensor"],
        "pp": settings["pipeline"], "ep": settings["expert"], "etp": settings["expert_tensor"],
        "world_size": settings["world"],
        "enable_loss_parallel": settings["loss_parallel"],
    }  # fmt: skip
    known = {field.name for field in dataclasses.fields(ParallelDims)}
    made = ParallelDims(**{name: value for name, value in said.items() if name in known})
    return made, made.build_mesh("cuda") if settings["torchtitan"] == "0.1.0" else made.build_mesh()


def job_config(settings):
    try:
        from torchtitan.config import JobConfig
    except ImportError:
        from torchtitan.config_manager import JobConfig

    made = JobConfig()
    made.training.seq_len = settings["sequence"]
    made.training.local_batch_size = settings["batch"]
    made.training.mixed_precision_param = TYPES[settings["precision"]]
    made.training.mixed_precision_reduce = TYPES[settings["reduce_dtype"]]
    made.parallelism.data_parallel_replicate_degree = settings["replicate"]
    made.parallelism.tensor_parallel_degree = settings["tensor"]
    made.parallelism.context_parallel_degree = settings["context"]
    if settings["expert"] > 1:
        made.parallelism.expert_parallel_degree = settings["expert"]
        made.parallelism.expert_tensor_parallel_degree = settings["expert_tensor"]
    if settings["pipeline"] > 1:
        made.training.local_batch_size = settings["batch"] * settings["micro_batches"]
        made.parallelism.pipeline_parallel_degree = settings["pipeline"]
        made.parallelism.pipeline_parallel_microbatch_size = settings["batch"]
        made.parallelism.pipeline_parallel_schedule = settings["schedule"]
        # With it two threads run what is to overlap, one step of neither before or after one of the other.
        made.parallelism.pipeline_parallel_expert_parallel_overlap = False
        made.parallelism.pipeline_parallel_layers_per_stage = settings["layers_per_stage"]
        made.parallelism.pipeline_parallel_first_stage_less_layers = settings["first_less"]
        made.parallelism.pipeline_parallel_last_stage_less_layers = settings["last_less"]
    if settings["context"] > 1:
        made.parallelism.context_parallel_load_balancer = settings["load_balancer"]
    made.parallelism.disable_loss_parallel = not settings["loss_parallel"]
    made.parallelism.fsdp_reshard_after_forward = settings["reshard"]
    checkpointing = settings["checkpointing"]
    if checkpointing.startswith("budget "):
        made.activation_checkpoint.mode = "memory_budget"
        made.activation_checkpoint.memory_budget = float(checkpointing.split()[1])
    else:
        made.activation_checkpoint.mode = checkpointing if checkpointing in ("none", "full") else "selective"
        made.activation_checkpoint.selective_ac_option = checkpointing
    made.optimizer.implementation = settings["implementation"]
    made.training.enable_cpu_offload = bool(settings.get("offload"))
    if hasattr(made, "compile"):
        made.compile.enable = settings["compile"]
    else:
        made.training.compile = settings["compile"]
    return made


def model_of(config, settings, job):
    """torchtitan's model of these sizes, on the meta device, and how it is made parallel."""
    import torch
    from torch.nn.attention import SDPBackend

    arguments = {
        "dim": config["hidden_size"], "n_layers": config["num_hidden_layers"], "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"], "vocab_size": config["vocab_size"],
        "max_seq_len": settings["sequence"],
    }  # fmt: skip
    if config["model_type"].startswith("qwen3"):
        from torchtitan.models.qwen3.infra.parallelize import parallelize_qwen3 as parallelize
        from torchtitan.models.qwen3.model.args import Qwen3ModelArgs
        from torchtitan.models.qwen3.model.model import Qwen3Model as Model

        if config["model_type"] == "qwen3_moe":
            from torchtitan.models.moe import MoEArgs

            arguments |= {
                "moe_enabled": True, "moe_inter_dim": config["moe_intermediate_size"],
                "moe_args": MoEArgs(num_experts=config["num_experts"], num_shared_experts=0, top_k=config["num_experts_per_tok"],
                                    score_func="softmax", route_norm=config["norm_topk_prob"], route_scale=1.0,
                                    score_before_experts=False),
            }  # fmt: skip
        args = Qwen3ModelArgs(**arguments, head_dim=config["head_dim"], hidden_dim=config["intermediate_size"],
                              enable_weight_tying=config["tie_word_embeddings"])  # fmt: skip
    elif config["model_type"].startswith("deepseek"):
        args, Model, parallelize = deepseek_of(config, arguments)
        args.update_from_config(job)
    else:
        from torchtitan.models.llama3.infra.parallelize import parallelize_llama as parallelize
        from torchtitan.models.llama3.model.args import TransformerModelArgs
        from torchtitan.models.llama3.model.model import Transformer as Model

        # Two thirds of four widths, rounded up to a multiple: of the width that is asked for.
        wide = config["intermediate_size"]
        assert 8 * config["hidden_size"] // 3 <= wide < 16 * config["hidden_size"] // 3
        args = TransformerModelArgs(**arguments, multiple_of=wide)
    try:
        import torchtitan.models.attention as attention
    except ImportError:
        import torchtitan.models.attention
    # cuDNN's attention cannot be asked on a device that does nothing; these come next.
    for kind in ("ScaledDotProductAttentionWrapper", "ScaledDotProductAttention"):
        if hasattr(attention, kind):
            name = "sdpa_backends" if hasattr(getattr(attention, kind), "sdpa_backends") else "backends"
            setattr(getattr(attention, kind), name, [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
    with torch.device("meta"):
        return Model(args), parallelize


def deepseek_of(config, arguments):
    """Arguments of torchtitan's DeepSeek-V3, as its flavors have them, the model and how it is made parallel."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention
    from torchtitan.models.attention import FlexAttentionWrapper
    from torchtitan.models.deepseek_v3.infra.parallelize import parallelize_deepseekv3
    from torchtitan.models.deepseek_v3.model.args import DeepSeekV3ModelArgs
    from torchtitan.models.deepseek_v3.model.model import DeepSeekV3Model
    from torchtitan.models.moe import MoEArgs

    # Without trying kernels, which takes long and measures nothing here.
    FlexAttentionWrapper._compiled_flex_attn = torch.compile(
        flex_attention, options={"wrap_inductor_compiled_regions": True, "triton.cudagraphs": False}
    )
    del arguments["n_kv_heads"]
    groups = config["n_group"] if config["n_group"] > 1 else None
    return (
        DeepSeekV3ModelArgs(
            **arguments, inter_dim=config["intermediate_size"], moe_inter_dim=config["moe_intermediate_size"],
            n_dense_layers=config["first_k_dense_replace"], q_lora_rank=config["q_lora_rank"] or 0,
            kv_lora_rank=config["kv_lora_rank"], qk_nope_head_dim=config["qk_nope_head_dim"],
            qk_rope_head_dim=config["qk_rope_head_dim"], v_head_dim=config["v_head_dim"], attn_type="flex",
            attn_mask_type="block_causal",
            moe_args=MoEArgs(num_experts=config["n_routed_experts"], num_shared_experts=config["n_shared_experts"],
                             top_k=config["num_experts_per_tok"], score_func=config["scoring_func"],
                             route_norm=config["norm_topk_prob"], route_scale=config["routed_scaling_factor"],
                             num_expert_groups=groups, num_limited_groups=groups and config["topk_group"],
                             score_before_experts=False),
        ),
        DeepSeekV3Model,
        parallelize_deepseekv3,
    )  # fmt: skip


def answer_splits(config, settings):
    """How many rows go to, and come from, each rank of an expert group, which the device is asked for: as many. Where
    tensor-parallel ranks have no parts of experts, each sends a part of the tokens (ReordererSequenceParallel)."""
    import torch

    ranks = settings["expert"]
    tokens = settings["batch"] * settings["sequence"] * settings["expert_tensor"] // settings["tensor"]
    rows = tokens * config["num_experts_per_tok"] // ranks
    read = torch.Tensor.tolist

    def answered(tensor):  # where a rank is in a mesh is read from tensors of numbers too
        asks = Path(sys._getframe(1).f_code.co_filename).name == "expert_parallel.py"
        return [rows] * ranks if asks else read(tensor)

    torch.Tensor.tolist = answered


def answer_replicas(parts):
    """What other ranks would say of their parameters, and what all of them sum."""
    import torch
    from training import reduced

    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *its, **more: None
    for part in parts:
        part.register_comm_hook(None, reduced)


def prepare(config, settings):
    """A trainer of which only what its steps ask for is there, and the batches that it is given."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.distributed import utils
    from torchtitan.train import Trainer

    dist.init_process_group("fake", rank=settings["rank"], world_size=settings["world"], store=FakeStore())
    job = job_config(settings)
    dims, mesh = parallel_dims(settings)
    if settings["expert"] > 1:
        answer_splits(config, settings)
    model, parallelize = model_of(config, settings, job)
    releases_before_meshes = settings["torchtitan"] == "0.1.0"
    trainer = Trainer.__new__(Trainer)
    trainer.job_config, trainer.parallel_dims = job, dims
    trainer.world_mesh, trainer.device = mesh, torch.device("cuda")
    trainer.model_args = getattr(model, "model_args", SimpleNamespace())
    trainer.tokenizer = SimpleNamespace(eos_id=1)
    set_loss(trainer, settings)
    if settings["pipeline"] > 1:
        pipelined(trainer, model, parallelize, settings)
    else:
        trainer.model_parts = [
            parallelize(model, mesh, dims, job) if releases_before_meshes else parallelize(model, dims, job)
        ]
    if dims.dp_replicate_enabled and not dims.fsdp_enabled:
        answer_replicas(trainer.model_parts)
    del model
    make_parameters(trainer.model_parts, settings.get("offload"))
    trainer.optimizers = optimizers_of(trainer.model_parts, job, dims)
    trainer.lr_schedulers = SimpleNamespace(
        step=lambda: None, schedulers=[SimpleNamespace(get_last_lr=lambda: [1e-4])]
    )
    trainer.checkpointer = SimpleNamespace(maybe_wait_for_staging=lambda: None)
    trainer.metrics_processor = SimpleNamespace(
        should_log=lambda step: False, ntokens_since_last_log=0, data_loading_times=[]
    )
    trainer.ntokens_seen = trainer.step = 0
    trainer.gradient_accumulation_steps = 1 if settings["pipeline"] > 1 else settings["micro_batches"]
    loss_parallel = settings["tensor"] > 1 and settings["loss_parallel"]
    trainer.train_context = (
        utils.get_train_context(loss_parallel, False)
        if releases_before_meshes or settings["torchtitan"] == "0.2.0"
        else utils.get_train_context(loss_parallel)
    )
    trainer.maybe_enable_amp = utils.maybe_enable_amp(dims, TYPES[settings["precision"]], "cuda")
    iterator = batches(config, settings)
    return trainer, trainer.batch_generator(iterator) if hasattr(trainer, "batch_generator") else iterator


def set_loss(trainer, settings):
    import torch
    from torchtitan.components import loss

    trainer.loss_fn = torch.compile(loss.cross_entropy_loss) if settings["compile"] else loss.cross_entropy_loss
    if hasattr(loss, "rescale_accumulated_loss"):
        trainer.loss_fn = loss.rescale_accumulated_loss(trainer.loss_fn, settings["micro_batches"])


def make_parameters(parts, offload):
    import torch

    # It draws until all values lie within bounds, which those of a device that does nothing never do.
    torch.nn.init.trunc_normal_ = lambda tensor, *args, **kwargs: tensor.zero_()
    for part in parts:
        part.to_empty(device="cpu" if offload else "cuda")
        with torch.no_grad():
            part.init_weights(buffer_device=torch.device("cuda") if offload else None)
        part.train()


def pipelined(trainer, model, parallelize, settings):
    """The rank's stages, and the schedule by which they run."""
    from torchtitan.distributed.pipeline_parallel import pipeline_llm

    answer_stages(handed_over(trainer, settings))
    trainer.pp_schedule, trainer.model_parts, trainer.pp_has_first_stage, trainer.pp_has_last_stage = pipeline_llm(
        model, trainer.parallel_dims, trainer.job_config, trainer.device, trainer.model_args, parallelize, trainer.loss_fn
    )


def handed_over(trainer, settings):
    """What stages hand each other: a rank's part of the sequences. Only FSDP2 lowers the precision."""
    import torch
    from torch.distributed.pipelining._utils import _TensorMeta

    sequence = settings["sequence"] // settings["context"] // settings["tensor"]
    shape = torch.Size((settings["batch"], sequence, trainer.model_args.dim))
    lowered = settings["precision"] == "bf16" and trainer.parallel_dims.fsdp_enabled
    strides = (shape[1] * shape[2], shape[2], 1)
    return _TensorMeta(shape, strides, torch.bfloat16 if lowered else torch.float32, requires_grad=True)


def answer_stages(activation):
    """On a fake process group PyTorch refuses what it does on others where no shapes are given: one micro-batch goes
    through all stages before the first step, each telling the next one what it gets. What the others would tell is
    answered, and what this rank tells is what it would have been told."""
    from dataclasses import replace

    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining._utils import InferenceMode, _StageBackwardMeta, _StageForwardMeta
    from torch.distributed.pipelining.schedules import _PipelineSchedule

    told = {1: _StageForwardMeta((activation,)), -1: _StageBackwardMeta((replace(activation, requires_grad=False),))}

    def infer(schedule, stages, has_backward, initialize_p2p):
        for stage in stages:
            stage._inference_mode = InferenceMode.DYNAMIC

    def send(stage, meta, to):
        assert meta == told[to - stage.stage_index], meta
        time.sleep(0.2)  # as sending takes: autograd's threads let go of what they held meanwhile

    _PipelineSchedule._initialize_pipeline_distributed_state = infer
    PipelineStage._send_meta = send
    PipelineStage._recv_meta = lambda stage, source: told[stage.stage_index - source]


def train_step(trainer, iterator, settings):
    trainer.train_step(iterator)


def streams(trainer):
    """Those of all stages. Without data parallelism there is no FSDP2."""
    if not trainer.parallel_dims.fsdp_enabled:
        return {}
    return {stream: name for part in trainer.model_parts for stream, name in record_sharded.streams(part).items()}


def versions():
    import importlib.metadata

    return {"torchtitan": importlib.metadata.version("torchtitan")}


def optimizers_of(parts, job, dims):
    """As build_optimizers makes them of torchtitan's defaults."""
    import torch
    from torchtitan.components.optimizer import OptimizersContainer

    if any(hasattr(layer, "moe") for part in parts for layer in part.layers.values()):
        from torchtitan.components.optimizer import build_optimizers_with_moe_load_balancing

        return build_optimizers_with_moe_load_balancing(parts, job.optimizer, dims)

    how = job.optimizer.implementation
    arguments = {"lr": 8e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": how == "fused",
                 "foreach": how == "foreach"}  # fmt: skip
    return OptimizersContainer(parts, torch.optim.AdamW, arguments)


def batches(config, settings):
    """What a data loader hands out: on the host."""
    import torch

    passes = settings["micro_batches"] if settings["pipeline"] > 1 else 1
    shape = (settings["batch"] * passes, settings["sequence"])
    while True:
        yield {"input": torch.zeros(shape, dtype=torch.int64)}, torch.zeros(shape, dtype=torch.int64)


def run(name):
    import torch

    gc.disable()
    config, settings = settings_of(name)
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python", context="alloc")
    trainer, iterator = prepare(config, settings)
    return {
        **record_fake.head_of(name, config, settings, "real tensors on a device that does nothing"),
        **record_sharded.recorded_steps(
            lambda: train_step(trainer, iterator, settings), lambda: streams(trainer), MADE_BY
        ),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--releases", type=Path, required=True)
    arguments = parser.parse_args()
    names = list(RECORDINGS) if arguments.all else arguments.names
    if unknown := [name for name in names if name not in RECORDINGS]:
        parser.error(f"no such recording: {', '.join(unknown)}")
    if "NULL_CUDA_CAPABILITY" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                settings = settings_of(name)[1]
                environment = record_fake.under_null_cuda(folder, settings)
                release = arguments.releases.resolve() / settings["torchtitan"]
                environment["PYTHONPATH"] = f"{release}:{environment.get('PYTHONPATH', '')}"
                out = arguments.out or (COMPILED if settings["compile"] else OUT)
                out.mkdir(parents=True, exist_ok=True)
                command = [sys.executable, __file__, name, "--out", str(out)]
                subprocess.run([*command, "--releases", str(arguments.releases)], env=environment, check=True)
        return
    (name,) = names
    recording = run(name)
    recording["provenance"]["command"] = f"python tests/ground_truth/record_titan.py {name}"
    record_fake.write(arguments.out / f"{name}.json", recording)
    peaks = [f"{step['peak']['allocated'] / 2**20:.1f}" for step in recording["steps"]]
    print(f"{name}: allocated {' '.join(peaks)} MiB", flush=True)
    os._exit(0)  # autograd's device threads do not end in an orderly way without a device


if __name__ == "__main__":
    main()
