"""Records the memory of sharded trainings, as PyTorch's own allocator counts it, without a GPU: see README.md.

python tests/ground_truth/record_sharded.py --all
python tests/ground_truth/record_sharded.py NAME...
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import record_fake
from sharded import RECORDINGS, settings_of

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "sharded" / "recordings"
STEPS = 3

# By the function of FSDP2 that makes a tensor; the first that is found counts.
MADE_BY = {
    "_get_param_all_gather_inputs": "all_gather_input",
    "foreach_all_gather_copy_out": "unsharded_parameters",
    "wait_for_unshard": "unsharded_parameters",  # of one rank, which gathers nothing
    "foreach_all_gather": "all_gather_output",
    "foreach_reduce": "reduce_scatter",
    "to_sharded_post_forward": "parameters",
    "to_empty": "parameters",
    "reset_sharded_param": "parameters",
}


def prepare(config, settings):
    import torch
    import torch.distributed as dist
    import transformers
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import training

    world, rank, group = settings["world"], settings["rank"], settings["shard_group"]
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    sizes, names = ((world // group, group), ("replicate", "shard")) if group else ((world,), ("shard",))
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=names)
    model_class = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    config._attn_implementation = settings["attention"]
    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    torch.set_default_dtype(types[settings["parameters"]])
    try:
        with torch.device("meta"):
            model = model_class(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.train()
    if settings["checkpointing"]:
        reentrant = settings["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    one_type = settings["parameters"] == settings["precision"]  # adapters may have another, which they keep then
    policy = MixedPrecisionPolicy(
        param_dtype=None if one_type else types[settings["precision"]], reduce_dtype=types[settings["reduce_dtype"]]
    )
    how = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": settings["reshard_after_forward"]}
    if settings.get("offload"):
        how["offload_policy"] = CPUOffloadPolicy(pin_memory=settings["offload"] == "pinned")
    base = model.base_model
    if settings.get("adapter"):
        with torch.device("meta"):
            model = training.adapt(model, settings["adapter"])
    layers = list(base.layers if hasattr(base, "layers") else base.h)
    for layer in layers:
        fully_shard(layer, **how)
    fully_shard(model, **how)
    prefetch(layers, settings)
    model.to_empty(device="cpu" if settings.get("offload") else "cuda")
    if config.tie_word_embeddings:
        model.tie_weights()
    if settings.get("offload"):
        buffers_to_device(model)
    return model, training.build_optimizer(model, settings), training.Batches(vars(config), settings)


def prefetch(layers, settings):
    """As PyTorch's example does (examples/distributed/FSDP2/example.py)."""
    forward, backward = settings.get("forward_prefetch", 0), settings.get("backward_prefetch", 0)
    for i, layer in enumerate(layers):
        if forward and i + forward < len(layers):
            layer.set_modules_to_forward_prefetch([layers[i + j] for j in range(1, forward + 1)])
        if backward and i >= backward:
            layer.set_modules_to_backward_prefetch([layers[i - j] for j in range(1, backward + 1)])


def buffers_to_device(model):
    """Only parameters are offloaded."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to("cuda"))


def train_step(model, optimizer, batches, settings):
    """As in training.py; the batch and the loss outlive each other as there."""
    import torch

    optimizer.zero_grad(set_to_none=True)
    passes = settings["micro_batches"]
    for micro_batch in range(passes):
        batch = batches()
        model.set_requires_gradient_sync(settings["sync_each_batch"] or micro_batch + 1 == passes)
        if settings["outputs"] == "kept":
            outputs = model(**batch)
            loss = outputs.loss
        else:
            loss = model(**batch).loss
        loss.backward()
    if settings["clip_grad_norm"]:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
    optimizer.step()


def streams(model):
    """What the streams are called."""
    from torch.distributed.fsdp._fully_shard._fully_shard import FSDPModule

    assert isinstance(model, FSDPModule)
    comms = model._get_fsdp_state()._comm_ctx
    names = ("all_gather_copy_in", "all_gather", "reduce_scatter", "all_reduce")
    return {getattr(comms, f"{name}_stream").cuda_stream: name for name in names}


def pools(names):
    """Reserved bytes of each stream's pool."""
    import torch

    names = {**names, 0: "compute"}
    reserved = Counter()
    for segment in torch.cuda.memory_snapshot():
        reserved[names.get(segment["stream"], "other")] += segment["total_size"]
    return dict(sorted(reserved.items()))


def maker_of(frames, functions):
    names = [frame["name"] for frame in frames]
    for function, made in functions.items():
        if function in names:
            return made
    if "step" in names and any("optim" in frame["filename"] for frame in frames):
        return "optimizer"
    return "other"


def live_at_peak(history, maker):
    """What the last step's most live bytes are made of, from the trace of the allocator."""
    live, now, peak, at_peak = {}, 0, 0, {}
    for event in history:
        if event["action"] == "alloc":
            live[event["addr"]] = (event["size"], maker(event["frames"]))
            now += event["size"]
            if now > peak:
                peak, at_peak = now, dict(live)
        elif event["action"] == "free_completed" and event["addr"] in live:
            now -= live.pop(event["addr"])[0]
    sums = Counter()
    for size, maker in at_peak.values():
        sums[maker] += size
    return dict(sorted(sums.items()))


def counted_steps(step, count=STEPS):
    """What the allocator counts in some steps."""
    import torch

    import plain_run

    steps = []
    for _ in range(count):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        step()
        steps.append({"peak": plain_run.counters("peak"), "after": plain_run.counters("current")})
    return steps


def recorded_steps(step, names, functions=None):
    """The same, by stream too, and what the last one's peak is made of."""
    import torch

    steps = counted_steps(step)
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    return {
        "steps": steps,
        "reserved_by_stream": pools(names()),
        "live_at_peak": live_at_peak(history, lambda frames: maker_of(frames, functions or MADE_BY)),
    }


def run(trainer, name):
    import torch

    import training

    gc.disable()
    training.one_sequence_per_row()
    config, settings = trainer.settings_of(name)
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python", context="alloc")
    model, optimizer, batches = trainer.prepare(config, settings)
    return {
        **record_fake.head_of(name, config, settings, "real tensors on a device that does nothing"),
        **recorded_steps(
            lambda: trainer.train_step(model, optimizer, batches, settings),
            lambda: trainer.streams(model),
            trainer.MADE_BY,
        ),
    }


def main(trainer):
    """`trainer` is a module: what it trains (RECORDINGS, settings_of) and how (prepare, train_step), what its streams
    are called and which of its functions make tensors (MADE_BY), and where recordings go (OUT). Each is made in a process
    of its own, under the null device; by the module's own `record`, where it has one."""
    script = Path(trainer.__file__).resolve()
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path, default=trainer.OUT)
    arguments = parser.parse_args()
    names = list(trainer.RECORDINGS) if arguments.all else arguments.names
    if unknown := [name for name in names if name not in trainer.RECORDINGS]:
        parser.error(f"no such recording: {', '.join(unknown)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if "NULL_CUDA_CAPABILITY" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                environment = record_fake.under_null_cuda(folder, trainer.settings_of(name)[1])
                command = [sys.executable, str(script), name, "--out", str(arguments.out)]
                subprocess.run(command, env=environment, check=True)
        return
    (name,) = names
    recording = trainer.record(name) if hasattr(trainer, "record") else run(trainer, name)
    recording["provenance"]["command"] = f"python tests/ground_truth/{script.name} {name}"
    record_fake.write(arguments.out / f"{name}.json", recording)
    peaks = [f"{step['peak']['allocated'] / 2**20:.1f}" for step in recording["steps"]]
    print(f"{name}: allocated {' '.join(peaks)} MiB", flush=True)
    os._exit(0)  # autograd's device threads do not end in an orderly way without a device


if __name__ == "__main__":
    main(sys.modules[__name__])
