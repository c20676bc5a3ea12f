"""Records the memory of Megatron-LM's trainings, as PyTorch's own allocator counts it, without a GPU: see README.md.

python tests/ground_truth/record_megatron.py --releases FOLDER --all
python tests/ground_truth/record_megatron.py --releases FOLDER NAME...

FOLDER has a folder of each release that is asked for: Megatron-LM's sources at the tag core_v0.16.0 in FOLDER/0.16.0, and
where a recording's settings name a Transformer Engine, its Python package, which `pip install --no-deps --target
FOLDER/transformer_engine-2.11.0 transformer_engine==2.11.0` puts there.
"""

import argparse
import functools
import gc
import os
import platform
import subprocess
import sys
import tempfile
import typing
from pathlib import Path

import record_fake
from drawn_megatron import JOBS
from megatron_jobs import RECORDINGS, flags_of, settings_of

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "megatron_core" / "recordings"
ALL = {**RECORDINGS, **JOBS}


class HostBatches:
    """What a data loader of GPTDataset hands out: on the host."""

    def __init__(self, args):
        self.args = args

    def __iter__(self):
        return self

    def __next__(self):
        import torch

        rows, length = self.args.micro_batch_size, self.args.seq_length
        ids = [torch.zeros((rows, length), dtype=torch.int64) for _ in range(3)]
        batch = dict(zip(("tokens", "labels", "position_ids"), ids))
        batch["loss_mask"] = torch.ones((rows, length))
        if self.args.create_attention_mask_in_dataloader:
            batch["attention_mask"] = torch.ones((rows, 1, length, length), dtype=torch.bool)
        return batch


def iterators(args, training):
    """As build_train_valid_test_data_iterators makes them."""
    from megatron.core.rerun_state_machine import RerunDataIterator

    make = lambda: RerunDataIterator(HostBatches(args))  # noqa: E731
    chunks = args.virtual_pipeline_model_parallel_size
    return make() if chunks is None else [make() for _ in range(chunks)]


def answers():
    """What only other ranks, a device that computes, a compiler or a clock would say."""
    import torch
    from megatron.training import initialize, training
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    CachingAutotuner.bench = lambda *arguments, **more: 0.0

    broadcast = torch.distributed.broadcast

    def told(tensor, *arguments, **more):
        if tensor.dim() == 0 and tensor.dtype == torch.int64:  # how many packed sequences the first rank has: none
            tensor.copy_(torch.zeros((), dtype=torch.int64))
        return broadcast(tensor, *arguments, **more)

    torch.distributed.broadcast = told

    from megatron.core import rerun_state_machine
    from megatron.core.optimizer import optimizer

    validate = rerun_state_machine.RerunStateMachine.validate_result

    def validated(machine, result, rejection_func, *arguments, **more):
        def rejected(its):  # neither NaN nor infinite nor large: what the device holds says nothing
            found = rejection_func(its)
            return found.copy_(torch.zeros_like(found, device="cpu")) if isinstance(found, torch.Tensor) else False

        return validate(machine, result, rejected, *arguments, **more)

    rerun_state_machine.RerunStateMachine.validate_result = validated
    norm = optimizer.get_grad_norm_fp32
    optimizer.get_grad_norm_fp32 = lambda *arguments, **more: (norm(*arguments, **more), 0.5)[1]
    # Without extensions to compile for data sets, and without running compiled functions before the first step.
    initialize._compile_dependencies = initialize._warmup_jit_function = lambda **more: None
    return initialize, training


def set_up(pretrain_gpt, initialize, training):
    """Model, optimizer and scheduler, as pretrain() makes them. The model's builder is an argument from 0.16 on, and part of
    a configuration that is made first in 0.19."""
    from megatron.core.enums import ModelType

    kind, more = ModelType.encoder_or_decoder, {}
    if hasattr(pretrain_gpt, "gpt_config_from_args"):
        args = pretrain_gpt.parse_and_validate_args(args_defaults={})
        model = pretrain_gpt.gpt_config_from_args(args)
        more["cfg_container"] = pretrain_gpt.pretrain_cfg_container_from_args(args, model)
    initialize.initialize_megatron()
    training.set_jit_fusion_options()
    if more:
        from megatron.core.process_groups_config import ProcessGroupCollection

        groups = ProcessGroupCollection.use_mpu_process_groups()
        return training.setup_model_and_optimizer(kind, pg_collection=groups, **more)
    provider = pretrain_gpt.model_provider
    if hasattr(pretrain_gpt, "gpt_builder"):
        provider = functools.partial(provider, pretrain_gpt.gpt_builder)
    return training.setup_model_and_optimizer(provider, kind)


def counted(train_step, steps):
    """train_step, of which the allocator's counters are noted."""
    import torch

    import plain_run

    def step(*arguments, **more):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        result = train_step(*arguments, **more)
        steps.append({"peak": plain_run.counters("peak"), "after": plain_run.counters("current")})
        return result

    return step


def run(name):
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import megatron_kernels
    import megatron_routing

    settings = settings_of(ALL[name])
    sys.argv = ["pretrain_gpt.py", *flags_of(ALL[name])]
    os.environ.update(RANK=str(settings["rank"]), WORLD_SIZE=str(settings["world"]), LOCAL_RANK="0",
                      MASTER_ADDR="localhost", MASTER_PORT="0")  # fmt: skip
    if not hasattr(typing, "override"):  # which core 0.19 takes from Python 3.12 on
        typing.override = lambda method: method
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python", context="alloc")
    megatron_kernels.before_import(settings)
    dist.init_process_group("fake", rank=settings["rank"], world_size=settings["world"], store=FakeStore())
    import pretrain_gpt

    initialize, training = answers()
    megatron_kernels.after_import()
    model, optimizer, scheduler = set_up(pretrain_gpt, initialize, training)
    from megatron.training import get_args

    args = get_args()
    if args.num_experts:
        megatron_routing.tell(args)
    args.iteration = args.num_floating_point_operations_so_far = 0
    args.do_train, args.do_valid, args.do_test = True, False, False
    steps = []
    training.train_step = counted(training.train_step, steps)
    from megatron.core.utils import get_model_config

    training.train(
        pretrain_gpt.forward_step, model, optimizer, scheduler, iterators(args, training), None, None,
        get_model_config(model[0]), {}, None,
    )  # fmt: skip
    return {
        "name": name,
        "provenance": {
            "command": f"python tests/ground_truth/record_megatron.py {name}",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": f"cuda (real tensors on a device that does nothing), compute capability {settings['capability']}",
        },
        "settings": settings,
        "flags": " ".join(sys.argv[1:]),
        "steps": steps,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--snapshots", type=Path)
    arguments = parser.parse_args()
    names = list(ALL) if arguments.all else arguments.names
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"no such recording: {', '.join(unknown)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if "NULL_CUDA_CAPABILITY" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                settings = settings_of(ALL[name])
                environment = record_fake.under_null_cuda(folder, settings)
                release = arguments.releases.resolve() / settings["megatron"]
                paths = [release, environment.get("PYTHONPATH", "")]
                if settings.get("transformer_engine"):
                    paths.insert(1, release.parent / f"transformer_engine-{settings['transformer_engine']}")
                environment["PYTHONPATH"] = ":".join(map(str, paths))
                environment |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
                command = [sys.executable, __file__, name, "--out", str(arguments.out)]
                command += ["--snapshots", str(arguments.snapshots)] if arguments.snapshots else []
                subprocess.run([*command, "--releases", str(arguments.releases)], env=environment, check=True)
        return
    (name,) = names
    recording = run(name)
    record_fake.write(arguments.out / f"{name}.json", recording)
    if arguments.snapshots:
        import torch

        torch.cuda.memory._dump_snapshot(str(arguments.snapshots / f"{name}.pickle"))
    peaks = [f"{step['peak']['allocated'] / 2**20:.1f}" for step in recording["steps"]]
    print(f"{name}: allocated {' '.join(peaks)} MiB", flush=True)
    os._exit(0)  # autograd's device threads do not end in an orderly way without a device


if __name__ == "__main__":
    main()
