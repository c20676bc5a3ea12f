"""Records the memory of real Hugging Face models in training, without a GPU: see README.md.

    python tests/ground_truth/record_fake.py --all
    python tests/ground_truth/record_fake.py --list
    python tests/ground_truth/record_fake.py NAME... [--out DIRECTORY]
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "fake_tensor" / "recordings"
STEPS = 3
LISTED = 150  # lines of live storages at a peak


def preload_null_cuda(capability):
    """Runs this program anew under the CUDA runtime that has no device, unless it runs there already."""
    if os.environ.get("NULL_CUDA_CAPABILITY") == capability:
        return
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    include = Path(list(spec.submodule_search_locations)[0]) / "cu13" / "include"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "null_cuda.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", f"-I{include}"]
        subprocess.run([*command, str(HERE / "null_cuda.c"), "-o", str(library)], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "NULL_CUDA_CAPABILITY": capability}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


def listed(entries):
    """The live storages, equal ones merged, largest first."""
    merged = Counter()
    for e in entries:
        merged[(e.bytes, e.category, e.op, e.module[1], e.phase, e.dtype, tuple(e.shape))] += 1
    lines = sorted(merged.items(), key=lambda item: (-item[0][0] * item[1], item[0]))
    keys = ("bytes", "category", "op", "class", "phase", "dtype", "shape")
    out = [{"count": count, **dict(zip(keys, key))} for key, count in lines[:LISTED]]
    rest = sum(key[0] * count for key, count in lines[LISTED:])
    return out, rest


def mem_tracker_snapshot(snapshot, device):
    return {getattr(key, "value", key).lower(): value for key, value in snapshot.get(device, {}).items()}


def record(config, settings, in_place_accumulation, want_events=False):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    import training
    from storage_log import StorageLog

    device = torch.device("cuda", 0)
    steps = []
    with FakeTensorMode():
        model = training.build_model(config, settings)
        optimizer = training.build_optimizer(model, settings)
        batch = training.build_batch(config, settings)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch.values())
        log = StorageLog(model, device, in_place_accumulation)
        log.name_tensors(batch.values(), "input")
        log.name_tensors(model.buffers(), "buffer")
        log.name_tensors(model.parameters(), "parameter")
        with tracker, log:
            for step in range(STEPS):
                gc.collect()
                last = step == STEPS - 1
                steps.append(record_step(model, optimizer, batch, settings, tracker, log, device, want_events and last))
        parameters = sum(p.numel() for p in model.parameters())
    for step in steps[1:-1]:  # as the last
        del step["live_at_peak"]
    return {
        "parameters": parameters,
        "sdpa_kernels": sorted(log.attention_ops),
        "gradient_sums": dict(sorted(log.accumulations.items())),
        "steps": steps,
    }


def record_step(model, optimizer, batch, settings, tracker, log, device, want_events):
    import training

    tracker.reset_mod_stats()
    tracker._peak_mem_snap = tracker.get_tracker_snapshot()
    tracker._peak_mem = {device: snap["Total"] for device, snap in tracker._peak_mem_snap.items()}
    log.reset_peak()
    log.module_of_node.clear()
    log.events = [] if want_events else None
    at_start = [(entry.id, entry) for entry in log.live.values()]
    phases = {}
    peaks = {}
    order = iter(("forward", "backward", "clip" if settings["clip_grad_norm"] else "optimizer", "optimizer", None))

    def mark(phase):
        """A phase has ended. Its storages are kept as they are now: categories settle at the end of the step."""
        name_what_lasts()
        phases[phase] = (list(log.live.values()), mem_tracker_snapshot(tracker.get_tracker_snapshot(), device))
        log.phase = next(order)
        if log.events is not None:
            log.events.append(("end of", phase))

    def name_what_lasts():
        log.name_tensors((p.grad for p in model.parameters()), "gradient")
        for state in optimizer.state.values():
            log.name_tensors((v for v in state.values() if isinstance(v, torch.Tensor)), "optimizer_state")

    import torch

    log.phase = "zero_grad"
    training.train_step(model, optimizer, batch, settings, mark)
    log.phase = "between steps"
    theirs = mem_tracker_snapshot(tracker.get_tracker_snapshot("peak"), device)
    if theirs["total"] != log.peak:
        raise AssertionError(f"MemTracker's peak is {theirs['total']}, the sum of storages {log.peak}")
    now = mem_tracker_snapshot(tracker.get_tracker_snapshot(), device)
    if now["total"] != log.total:
        raise AssertionError(f"MemTracker holds {now['total']} after the step, the sum of storages is {log.total}")
    live, rest = listed(log.peak_live)
    result = {
        "peak_bytes": log.peak,
        "peak_by_category": log.by_category(log.peak_live),
        "peak_at": log.peak_at,
        "mem_tracker_peak": theirs,
        "after": {
            phase: {"bytes": sum(e.bytes for e in entries), "by_category": log.by_category(entries),
                    "mem_tracker": theirs}
            for phase, (entries, theirs) in phases.items()
        },
        "live_at_peak": live,
        "live_not_listed_bytes": rest,
    }  # fmt: skip
    if log.events is not None:
        result["events"] = told(log.events)
        log.events = None
    return result


def told(events):
    lines = []
    for kind, what in events:
        if kind == "end of":
            lines.append(f"end of {what}")
        elif kind == "alloc":
            lines.append(f"alloc {what.id} {what.bytes} {what.category} {what.module[0] or what.module[1]}: {what.op}")
        else:
            lines.append(f"free {what.id} {what.bytes}")
    return lines


def write(path, recording):
    """One line per entry of the long lists, so that a diff shows what changed."""

    def text(value, depth):
        compact = json.dumps(value)
        if not isinstance(value, (dict, list)) or (depth > 0 and len(compact) <= 200) or not value:
            return compact
        pad = "  " * (depth + 1)
        if isinstance(value, dict):
            inner = [f"{pad}{json.dumps(key)}: {text(item, depth + 1)}" for key, item in value.items()]
            return "{\n" + ",\n".join(inner) + "\n" + "  " * depth + "}"
        inner = [pad + text(item, depth + 1) for item in value]
        return "[\n" + ",\n".join(inner) + "\n" + "  " * depth + "]"

    path.write_text(text(recording, 0) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from recordings import RECORDINGS, WITH_EVENTS, settings_of

    names = list(RECORDINGS) if arguments.all else arguments.names
    if arguments.list or not names:
        print("\n".join(RECORDINGS))
        return
    unknown = [name for name in names if name not in RECORDINGS]
    if unknown:
        parser.error(f"no such recording: {', '.join(unknown)}; --list names them")
    capabilities = {settings_of(name)[1]["capability"] for name in names}
    if len(capabilities) > 1:  # a process sees one device
        for name in names:
            subprocess.run([sys.executable, __file__, name, "--out", str(arguments.out)], check=True)
        return
    preload_null_cuda(capabilities.pop())

    import torch
    import transformers

    import training

    gc.disable()
    training.one_sequence_per_row()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        config, settings = settings_of(name)
        run = record(config, settings, in_place_accumulation=True, want_events=name in WITH_EVENTS)
        outside = record(config, settings, in_place_accumulation=False)
        recording = {
            "name": name,
            "provenance": {
                "command": f"python tests/ground_truth/record_fake.py {name}",
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
                "device": f"cuda (fake tensors), compute capability {settings['capability']}",
            },
            "config": config,
            "settings": settings,
            **run,
            "without_in_place_accumulation": [
                {key: step[key] for key in ("peak_bytes", "peak_by_category", "peak_at", "mem_tracker_peak")}
                for step in outside["steps"]
            ],
        }
        write(arguments.out / f"{name}.json", recording)
        step, plain = run["steps"][-1], outside["steps"][-1]
        print(name, step["peak_bytes"], step["peak_by_category"], step["peak_at"], run["gradient_sums"],
              "out of place", plain["peak_bytes"])


if __name__ == "__main__":
    main()
