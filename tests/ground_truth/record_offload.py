"""Records host and device memory of trainings that keep some tensors on the host, without a GPU: see README.md.

python tests/ground_truth/record_offload.py --all
python tests/ground_truth/record_offload.py NAME...

Measured, each in every part of the run (what is set up before the first step, then each step):
- what PyTorch's tensors on the host ask for, pinned and pageable, to the byte: one run in which PyTorch's caching host
  allocator keeps nothing (pinned_max_cached_size_mb:0), so that every request for pinned memory reaches the runtime;
- what that allocator holds: another run with its defaults, in which the runtime sees its blocks alone;
- what crosses between host and device, from and to which kind of memory, on which stream, and where the host waits.
Both runs must agree in what the device's allocator counts. `held` must follow from `events` by the host allocator's
own rule (powers of two, a block is used again when it is free): the recorder replays them.
Not measured: time. Copies are over when they are asked for, so that a pinned block is free again as soon as its tensor
is dead; with a device that works it can take until the copy is over, and the pool can hold more. Host memory that is no
tensor's (Python, CUDA, NCCL, the page cache, compiled code) is not in these figures.
"""

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import offload
import record_fake
import record_sharded

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "offload" / "recordings"

# By the function that asks for a tensor on the host, what it is; the first that is found counts.
HOST_MADE_BY = {
    "clip_grad_norm_": "clipping",
    "_init_group": "optimizer_state",
    "_get_param_all_gather_inputs": "all_gather_input",
    "foreach_all_gather_copy_out": "copy_tables",  # pointers and sizes that a kernel over many tensors is given
    "foreach_reduce_scatter_copy_in": "copy_tables",
    "foreach_reduce": "gradients",
    "finalize_backward": "gradients",
    "reset_sharded_param": "parameters",
    "to_empty": "unpinned_parameters",
    "tie_weights": "unpinned_parameters",
}

UNCACHED = "pinned_max_cached_size_mb:0"


def under_host_memory(folder, settings, requests, releases):
    environment = record_fake.under_null_cuda(folder, settings)
    for package, prefix in (("torchtitan", ""), ("megatron", "megatron-")):
        if package in settings:
            release = releases / f"{prefix}{settings[package]}"
            environment["PYTHONPATH"] = f"{release}:{environment.get('PYTHONPATH', '')}"
    include = Path(list(importlib.util.find_spec("nvidia").submodule_search_locations)[0]) / "cu13" / "include"
    library = Path(folder) / "host_memory.so"
    command = ["cc", "-shared", "-fPIC", "-O1", f"-I{include}", str(HERE / "host_memory.c"), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    environment["LD_PRELOAD"] = f"{library} {environment['LD_PRELOAD']}"
    if requests:
        said = environment.get("PYTORCH_ALLOC_CONF")
        environment["PYTORCH_ALLOC_CONF"] = f"{said},{UNCACHED}" if said else UNCACHED
    return environment


def let_go_of_pinned(*_):
    """The caching host allocator sees that pinned memory is no longer used when it is asked for more, or here. It would
    count as used in the optimizer's step, where pageable memory grows."""
    import torch

    if UNCACHED in os.environ.get("PYTORCH_ALLOC_CONF", ""):
        torch._C._host_emptyCache()


def run(name):
    """One of the two runs: the device's figures and the host's, part by part."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    import host_log
    import training

    gc.disable()
    training.one_sequence_per_row()
    trainer = importlib.import_module(offload.RECORDINGS[name][0])
    config, settings = offload.settings_of(name)
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python", context="alloc")
    torch.cuda.init()
    subjects = ()
    log = host_log.HostLog(
        {**HOST_MADE_BY, **getattr(trainer, "HOST_MADE_BY", {})},
        getattr(trainer, "HOST_LINES", {}),
        lambda: trainer.streams(subjects[0]) if hasattr(trainer, "streams") else {},
    )
    register_optimizer_step_pre_hook(let_go_of_pinned)
    subjects = trainer.prepare(config, settings)
    let_go_of_pinned()
    host, at_peak, events, steps = [log.part()], [log.at_peak()], [log.events], []
    for _ in range(record_sharded.STEPS):
        log.start()
        steps += record_sharded.counted_steps(lambda: trainer.train_step(*subjects, settings), 1)
        let_go_of_pinned()
        host.append(log.part())
        at_peak.append(log.at_peak())
        events.append(log.events)
    copies, waits = log.crossings(), log.waited()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    made_by = getattr(trainer, "made_by", lambda frames: record_sharded.maker_of(frames, trainer.MADE_BY))
    return {
        "versions": trainer.versions() if hasattr(trainer, "versions") else {},
        "device": {"steps": steps, "live_at_peak": record_sharded.live_at_peak(history, made_by)},
        "parts": host,
        "host": {
            "live_at_peak": {"set_up": at_peak[0], "last_step": at_peak[-1]},
            "live_after": log.made_of(log.by_maker()),
            "copies": copies,
            "waits": waits,
        },
        "events": [log.text(lines) for lines in events],
    }


def held_by_pool(events):
    """What a pool holds that gives each request of `events` a block of a power of two: at the end of each part. A block
    is used again once its tensor is dead."""
    free, size_of, held, out = {}, {}, 0, []
    for part in events:
        for line in part:
            sign, id, bytes, kind, *_ = [*line.split(), "", "", ""]
            if kind != "pinned" or sign not in "+-":
                continue
            if sign == "-":
                size = size_of.pop(id)
                free[size] = free.get(size, 0) + 1
                continue
            size = 1 << (int(bytes) - 1).bit_length()
            size_of[id] = size
            if free.get(size):
                free[size] -= 1
            else:
                held += size
        out.append(held)
    return out


def merged(name, requests, pool):
    """One recording of both runs."""
    assert requests["device"] == pool["device"], f"{name}: the two runs differ on the device"
    held = held_by_pool(requests["events"])
    seen = [part["after"]["pinned"] for part in pool["parts"]]
    assert held == seen, f"{name}: the pool holds {seen}, {held} by its rule"
    parts = []
    for asked, given in zip(requests["parts"], pool["parts"]):
        part = {}
        for when in ("peak", "after"):
            part[when] = {**asked[when], "pinned_held": given[when]["pinned"], "both_held": given[when]["both"]}
        parts.append(part)
    config, settings = offload.settings_of(name)
    head = record_fake.head_of(name, config, settings, "real tensors on a device that does nothing")
    head["provenance"]["command"] = f"python tests/ground_truth/record_offload.py {name}"
    head["provenance"].update(requests["versions"])
    host = {"set_up": parts[0], "steps": parts[1:], **requests["host"]}
    return {**head, "by": offload.RECORDINGS[name][0], **requests["device"], "host": host}


SCALARS = 64  # bytes: pageable tensors that are smaller are not written as events


def told(events):
    """Events but those of scalars on pageable memory."""
    for line in events:
        sign, _, bytes, kind, *_ = [*line.split(), "", "", ""]
        if sign not in "+-" or kind != "pageable" or int(bytes) >= SCALARS:
            yield line


def write_events(path, parts):
    names = ["set up", *[f"step {i + 1}" for i in range(len(parts) - 1)]]
    lines = []
    for part, events in zip(names, parts):
        if part in ("set up", "step 1", names[-1]):
            lines += [f"= {part}", *told(events)]
    path.write_text("\n".join(lines) + "\n")


def make(name, out, releases):
    settings = offload.settings_of(name)[1]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for requests in (True, False):
            told = Path(folder) / "told.json"
            command = [sys.executable, str(HERE / "record_offload.py"), name, "--told", str(told)]
            subprocess.run(command, env=under_host_memory(folder, settings, requests, releases), check=True)
            runs.append(json.loads(told.read_text()))
    recording = merged(name, *runs)
    record_fake.write(out / f"{name}.json", recording)
    if name in offload.WITH_EVENTS:
        write_events(out / f"{name}.host.txt", runs[0]["events"])
    peak = recording["host"]["steps"][-1]["peak"]
    on_device = recording["steps"][-1]["peak"]["allocated"]
    print(name, *[f"{key} {bytes / 2**20:.1f}" for key, bytes in {"device": on_device, **peak}.items()], flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--releases", type=Path, help="torchtitan's, as record_titan.py has it, and megatron-VERSION")
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = list(offload.RECORDINGS) if arguments.all else arguments.names
    if unknown := [name for name in names if name not in offload.RECORDINGS]:
        parser.error(f"no such recording: {', '.join(unknown)}")
    if arguments.told:
        arguments.told.write_text(json.dumps(run(names[0])))
        os._exit(0)  # autograd's device threads do not end in an orderly way without a device
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        make(name, arguments.out, arguments.releases and arguments.releases.resolve())


if __name__ == "__main__":
    main()
