"""Records the device's memory of the trainings that drawn_wrapped.py draws, as record_sharded.py does.

python tests/ground_truth/record_wrapped.py --releases FOLDER --all
python tests/ground_truth/record_wrapped.py --releases FOLDER NAME...

FOLDER has torchtitan's releases, as record_titan.py has it.
"""

import argparse
import gc
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import drawn_wrapped
import record_fake
import record_offload
import record_sharded

OUT = record_sharded.HERE.parent / "golden" / "wrapped" / "recordings"
NAMES = {drawn_wrapped.name_of(seed): seed for seed in drawn_wrapped.SEEDS}
MADE_BY = record_sharded.MADE_BY


def prepare(config, settings):
    """Of a model that is whole on each rank."""
    import training

    model, optimizer, scaler, batches = training.prepare(config, settings)
    if settings["ddp"]:
        model = training.distribute(model, settings)
    return model, optimizer, scaler, batches


def train_step(model, optimizer, scaler, batches, settings):
    import training

    training.train_step(model, optimizer, scaler, batches, settings, lambda phase: None)


def run(name):
    import torch

    import training

    gc.disable()
    training.one_sequence_per_row()
    by, config, settings = drawn_wrapped.job(NAMES[name])
    trainer = sys.modules[__name__] if by == "record_wrapped" else importlib.import_module(by)
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python", context="alloc")
    subjects = trainer.prepare(config, settings)
    steps = record_sharded.counted_steps(lambda: trainer.train_step(*subjects, settings))
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    made_by = getattr(trainer, "made_by", lambda frames: record_sharded.maker_of(frames, trainer.MADE_BY))
    head = record_fake.head_of(name, config, settings, "real tensors on a device that does nothing")
    head["provenance"]["command"] = f"python tests/ground_truth/record_wrapped.py {name}"
    if hasattr(trainer, "versions"):
        head["provenance"].update(trainer.versions())
    return {**head, "by": by, "steps": steps, "live_at_peak": record_sharded.live_at_peak(history, made_by)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--releases", type=Path, required=True)
    arguments = parser.parse_args()
    names = list(NAMES) if arguments.all else arguments.names
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"no such recording: {', '.join(unknown)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if "NULL_CUDA_CAPABILITY" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                settings = drawn_wrapped.job(NAMES[name])[2]
                # It knows which memory of the host is pinned, which those ask that put tensors there.
                environment = record_offload.under_host_memory(folder, settings, False, arguments.releases.resolve())
                command = [sys.executable, __file__, name, "--out", str(arguments.out)]
                command += ["--releases", str(arguments.releases)]
                if subprocess.run(command, env=environment).returncode:
                    print(f"{name}: refused", flush=True)
        return
    (name,) = names
    recording = run(name)
    record_fake.write(arguments.out / f"{name}.json", recording)
    peaks = [f"{step['peak']['allocated'] / 2**20:.1f}" for step in recording["steps"]]
    print(f"{name}: allocated {' '.join(peaks)} MiB", flush=True)
    os._exit(0)  # autograd's device threads do not end in an orderly way without a device


if __name__ == "__main__":
    main()
