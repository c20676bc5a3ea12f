"""CPU time that a training step costs its host, by phase: python host_code.py [--steps N] [JOB...]

Frameworks run unchanged on a CUDA device that does nothing, so what is measured is Python, autograd, the dispatcher,
the allocator and the libraries' host code, without the driver's launch. Times are CPU time of all threads of the
process, so that a busy machine matters little; each job runs at two depths, and figures are per layer (the slope) and
besides layers. Prints one line of JSON a job and phase."""

import argparse
import ctypes
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEPTHS = (2, 6)
KINDS = ("kernels", "products", "copies", "records", "waits")
HIDDEN, HEADS, VOCABULARY, SEQUENCE, WORLD = 256, 4, 1024, 128, 8

JOBS = {
    "plain_foreach": {},
    "plain_fused": {"optimizer": "fused"},
    "plain_forloop": {"optimizer": "forloop"},
    "autocast": {"dtype": "float32", "autocast": True},
    "checkpoint_nonreentrant": {"checkpoint": False},
    "checkpoint_reentrant": {"checkpoint": True},
    "lora": {"lora": True},
    "ddp": {"wrap": "ddp"},
    "fsdp2": {"wrap": "fsdp2", "dtype": "float32"},
    "fsdp2_checkpoint": {"wrap": "fsdp2", "dtype": "float32", "checkpoint": False},
    "fsdp1": {"wrap": "fsdp1", "dtype": "float32"},
    "zero1": {"wrap": "zero", "stage": 1},
    "zero2": {"wrap": "zero", "stage": 2},
    "zero3": {"wrap": "zero", "stage": 3},
    "megatron_local": {"wrap": "megatron"},
}


def counts(library):
    return [library.launches_counted(k) for k in range(len(KINDS))]


def build(job, layers):
    import torch
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=layers, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, vocab_size=VOCABULARY, max_position_embeddings=SEQUENCE, use_cache=False,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(getattr(torch, job.get("dtype", "bfloat16")))
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    if "checkpoint" in job:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": job["checkpoint"]})
        model.enable_input_require_grads()
    if job.get("lora"):
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear"))
    return model


def wrapped(job, model):
    import functools

    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    kind = job.get("wrap")
    if kind is None:
        return model
    os.environ.update(RANK="0", WORLD_SIZE=str(WORLD), LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29500")
    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    if kind == "ddp":
        parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], init_sync=False)
        parallel.register_comm_hook(None, as_it_is)  # the fake group's futures hold nothing
        return parallel
    if kind == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
        for layer in model.model.layers:
            fully_shard(layer, **policy)
        return fully_shard(model, **policy)
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(model.model.layers[0])})
        precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=True, device_id=0
        )
    return model


def as_it_is(state, bucket):
    import torch

    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def optimizer_of(job, parameters):
    import torch

    kind = {"fused": {"fused": True}, "forloop": {"foreach": False}}.get(job.get("optimizer"), {"foreach": True})
    return torch.optim.AdamW(parameters, lr=1e-4, **kind)


def engine_of(job, model):
    import deepspeed
    import torch

    deepspeed.logger.setLevel("ERROR")
    deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False, verbose=False)
    settings = {
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": job["stage"]}, "bf16": {"enabled": True},
        "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    inner = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return deepspeed.initialize(model=model, optimizer=inner, config=settings, dist_init_required=False)[0]


def megatron(layers):
    """Megatron-core's GPT of local modules, DistributedDataParallel and distributed optimizer: pretrain_gpt.py's train_step
    without its loop."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.module import Float16Module
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=layers, hidden_size=HIDDEN, ffn_hidden_size=2 * HIDDEN, num_attention_heads=HEADS, add_bias_linear=False,
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm", bf16=True,
        params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, hidden_dropout=0.0, attention_dropout=0.0,
        gradient_accumulation_fusion=False, persist_layer_norm=False, bias_activation_fusion=False, perform_initialization=False,
    )  # fmt: skip
    model = GPTModel(
        config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=VOCABULARY, max_sequence_length=SEQUENCE,
        position_embedding_type="rope", share_embeddings_and_output_weights=False,
    ).cuda()  # fmt: skip
    buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True, check_for_nan_in_grad=False)
    model = DistributedDataParallel(config, buckets, Float16Module(config, model))
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True, clip_grad=1.0), [model],
        use_gloo_process_groups=False,
    )
    ids = torch.zeros((1, SEQUENCE), dtype=torch.int64, device="cuda")
    mask = torch.zeros((1, 1, SEQUENCE, SEQUENCE), dtype=torch.bool, device="cuda")

    def forward():
        model.zero_grad_buffer()
        optimizer.zero_grad()
        return model(ids, ids, mask, labels=ids).float().mean()

    def step():
        finalize_model_grads([model])
        optimizer.step()

    return model, forward, step


def steps_of(job, layers, steps, warm):
    import torch

    library = ctypes.CDLL(None)
    library.launches_counted.restype = ctypes.c_long
    if job.get("wrap") == "megatron":
        model, forward, step = megatron(layers)
        engine = optimizer = None
    else:
        model = wrapped(job, build(job, layers))
        engine = engine_of(job, model) if job.get("wrap") == "zero" else None
        optimizer = None if engine else optimizer_of(job, [p for p in model.parameters() if p.requires_grad])
    ids = torch.zeros((1, SEQUENCE), dtype=torch.int64, device="cuda")
    # A mask and positions of the host's own: what the device would say of them is not there to be read.
    batch = {"input_ids": ids, "labels": ids, "position_ids": torch.zeros_like(ids)}
    rows, yardsticks, x = [], [], torch.zeros(64, device="cuda")
    yardstick(x)

    def mark():
        now = (time.process_time_ns(), time.thread_time_ns(), counts(library))
        marks.append(now)

    for number in range(warm + steps):
        marks = []
        mark()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bool(job.get("autocast"))):
            loss = forward() if job.get("wrap") == "megatron" else (engine or model)(**batch).loss
        mark()
        engine.backward(loss) if engine else loss.backward()
        mark()
        if engine:
            engine.step()
        elif job.get("wrap") == "megatron":
            step()
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) if job.get("clip") else None
            optimizer.step()
        mark()
        if optimizer:
            optimizer.zero_grad(set_to_none=True)
        mark()
        del loss
        if number >= warm:
            rows.append(marks)
            yardsticks.append(yardstick(x))
    out = {}
    for p, phase in enumerate(("forward", "backward", "optimizer", "zero_grad")):
        times = [(r[p + 1][0] - r[p][0]) / 1e3 for r in rows]
        own = [(r[p + 1][1] - r[p][1]) / 1e3 for r in rows]
        last = rows[-1]
        out[phase] = {
            "median_us": statistics.median(times), "least_us": min(times), "caller_median_us": statistics.median(own),
            "in_additions": statistics.median(t / y for t, y in zip(times, yardsticks)),
            "quartile_us": statistics.quantiles(times, n=4)[2],
            **{k: last[p + 1][2][i] - last[p][2][i] for i, k in enumerate(KINDS)},
        }  # fmt: skip
    out["forward"]["ops"], out["backward"]["ops"] = operations(engine or model, batch, job, engine)
    out["addition_us"] = statistics.median(yardsticks)
    out["parameters"] = sum(1 for p in model.parameters() if p.requires_grad)
    return out


def yardstick(x, number=300):
    """CPU time of one addition on the device, without autograd: what a neighbour's load does to it, it does to a step."""
    import torch

    with torch.no_grad():
        begin = time.process_time_ns()
        for _ in range(number):
            x + x
        return (time.process_time_ns() - begin) / 1e3 / number


def operations(model, batch, job, engine):
    """Operations below autograd in one more pass, seen by a dispatch mode; views count."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            Count.seen += 1
            return function(*arguments, **(keywords or {}))

    try:
        with Count():
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bool(job.get("autocast"))):
                loss = model(**batch).loss
            forward, Count.seen = Count.seen, 0
            engine.backward(loss) if engine else loss.backward()
        return forward, Count.seen
    except Exception:  # some wrappers refuse a mode
        return None, None


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith(("model name", "Model")):
            return line.split(":")[1].strip()
    return platform.processor()


def environment(folder):
    include = Path(list(importlib.util.find_spec("nvidia").submodule_search_locations)[0]) / "cu13" / "include"
    root, libraries = HERE.parents[1], []
    device = root / "kernels" / "null_device"
    for name, codes, extra in (
        ("count_launches", [HERE / "count_launches.c"], [f"-I{include}"]),
        ("null_cuda", sorted(device.glob("*.c")), ["-Wl,-soname,libcuda.so.1", f"-I{root}", "-ldl", "-lpthread"]),
    ):
        library = Path(folder) / (name + ".so")
        command = ["cc", "-shared", "-fPIC", "-O1", *map(str, codes), *extra, "-o", str(library)]
        subprocess.run(command, check=True)
        libraries.append(str(library))
    return {**os.environ, "LD_PRELOAD": " ".join(libraries), "NULL_CUDA_CAPABILITY": "80", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cuda"}  # fmt: skip


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=15)
    arguments.add_argument("--warm", type=int, default=4)
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    arguments.add_argument("jobs", nargs="*")
    chosen = arguments.parse_args()
    if chosen.one:
        for layers in DEPTHS:
            print(json.dumps(steps_of(JOBS[chosen.one], layers, chosen.steps, chosen.warm)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        surroundings = environment(folder)
        for name in chosen.jobs or JOBS:
            command = [sys.executable, str(HERE / "host_code.py"), "--one", name,
                       "--steps", str(chosen.steps), "--warm", str(chosen.warm)]  # fmt: skip
            run = subprocess.run(command, env=surroundings, capture_output=True, text=True)
            found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
            if len(found) < len(DEPTHS):
                print(json.dumps({"job": name, "failed": run.stderr.strip().splitlines()[-1:]}), flush=True)
                continue
            few, many = found
            span = DEPTHS[1] - DEPTHS[0]
            for phase in ("forward", "backward", "optimizer", "zero_grad"):
                row = {"job": name, "phase": phase, "processor": processor(),
                       "addition_us": [round(few["addition_us"], 2), round(many["addition_us"], 2)]}  # fmt: skip
                for key in few[phase]:
                    if few[phase][key] is None:
                        continue
                    slope = (many[phase][key] - few[phase][key]) / span
                    row[key] = {"layer": round(slope, 1), "besides": round(few[phase][key] - DEPTHS[0] * slope, 1)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
