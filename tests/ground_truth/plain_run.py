"""The same steps without any dispatch mode: PyTorch's own allocator counts, over CUDA without a device. Run by
record_fake.py in a process of its own, so that the allocator starts empty; prints JSON."""

import gc
import json
import os
import sys

import torch

import training
from recordings import settings_of

COUNTERS = {"requested": "requested_bytes", "allocated": "allocated_bytes", "active": "active_bytes",
            "reserved": "reserved_bytes"}  # fmt: skip


def counters(which):
    stats = torch.cuda.memory_stats()
    return {name: stats[f"{key}.all.{which}"] for name, key in COUNTERS.items()}


def main(name, steps, snapshot):
    gc.disable()
    config, settings = settings_of(name)
    training.answer_of_rows(settings)
    if snapshot:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    model, optimizer, scaler, batches = training.prepare(config, settings)
    if settings["ddp"]:
        model = training.distribute(model, settings)
    out = []
    for _ in range(steps):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        after = {}

        def mark(phase):
            after[phase] = counters("current")

        training.train_step(model, optimizer, scaler, batches, settings, mark)
        out.append({"peak": counters("peak"), "after": after})
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    print(json.dumps(out), flush=True)
    os._exit(0)  # autograd's device threads do not end in an orderly way without a device


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
