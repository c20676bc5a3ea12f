"""Records the memory of real Hugging Face models in training, without a GPU: see README.md.

python tests/ground_truth/record_fake.py --all
python tests/ground_truth/record_fake.py --drawn
python tests/ground_truth/record_fake.py --optimizers
python tests/ground_truth/record_fake.py --fused
python tests/ground_truth/record_fake.py --packed
python tests/ground_truth/record_fake.py --adapted
python tests/ground_truth/record_fake.py --experts
python tests/ground_truth/record_fake.py --families
python tests/ground_truth/record_fake.py --list
python tests/ground_truth/record_fake.py NAME... [--out DIRECTORY]
"""

import argparse
import contextlib
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
DRAWN_OUT = HERE.parent / "golden" / "fake_tensor" / "drawn"
FUSED_OUT = HERE.parent / "golden" / "fake_tensor" / "fused"
OPTIMIZERS_OUT = HERE.parent / "golden" / "fake_tensor" / "optimizers"
PACKED_OUT = HERE.parent / "golden" / "fake_tensor" / "packed"
EXPERTS_OUT = HERE.parent / "golden" / "fake_tensor" / "experts"
ADAPTED_OUT = HERE.parent / "golden" / "fake_tensor" / "adapted"
FAMILIES_OUT = HERE.parent / "golden" / "fake_tensor" / "families"
LISTED = 150  # lines of live storages at a peak
LISTED_OF_DRAWN = 40


def under_null_cuda(folder, settings):
    """The environment in which PyTorch finds the device that does nothing. Gemma 3 makes its rotary tables in the order
    of a set of texts, which Python draws anew for each process unless told."""
    library = Path(folder) / "null_cuda.so"
    device = HERE.parents[1] / "kernels" / "null_device"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", f"-I{HERE.parents[1]}"]
    sources = sorted(map(str, device.glob("*.c")))
    subprocess.run([*command, *sources, "-o", str(library), "-ldl", "-lpthread"], check=True)
    said = {"NULL_CUDA_CAPABILITY": settings["capability"], "PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}
    if any(settings.get(asks) for asks in ("compile", "liger", "triton")):
        # Triton looks for the driver by itself; what it compiled is not found again.
        link = library.with_name("libcuda.so.1")
        link.unlink(missing_ok=True)
        link.symlink_to(library)
        said |= {"TRITON_LIBCUDA_PATH": str(folder), "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    if settings.get("allocator"):
        said["PYTORCH_ALLOC_CONF"] = settings["allocator"]
        said["TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"] = "0"  # else the allocator asks NVML how handles could be shared
    return {**os.environ, "LD_PRELOAD": str(library), **said}


def listed(entries):
    """The live storages, equal ones merged, largest first."""
    merged = Counter()
    for e in entries:
        merged[(e.bytes, e.category, e.op, e.module[1], e.phase, e.dtype, tuple(e.shape))] += 1
    lines = sorted(merged.items(), key=lambda item: (-item[0][0] * item[1], item[0]))
    keys = ("bytes", "category", "op", "class", "phase", "dtype", "shape")
    out = [{"count": count, **dict(zip(keys, key))} for key, count in lines[:LISTED]]
    rest = sum(key[0] * count for key, count in lines[LISTED:])
    return out + ([{"count": len(lines) - LISTED, "all_bytes": rest, "op": "not listed"}] if rest else [])


def record(config, settings, fake, in_place_accumulation, tracked=False, want_events=False):
    """The steps under StorageLog, and under MemTracker where `tracked`. Tensors are fake, or real ones on the device
    that does nothing, where StorageLog also asks what the kernels held."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    import training
    from storage_log import StorageLog

    steps = []
    with FakeTensorMode() if fake else contextlib.nullcontext():
        model, optimizer, scaler, batches = training.prepare(config, settings)
        reentrant = settings["checkpointing"] == "reentrant"
        log = StorageLog(model, in_place_accumulation, reentrant, with_kernels=not fake and not tracked)
        batches.named = lambda tensors: log.name_tensors(tensors, "input")
        batches.named(batches.tensors or ())
        log.name_tensors(model.buffers(), "buffer")
        log.name_tensors(model.parameters(), "parameter")
        if settings.get("quantization"):
            import quantized

            log.name_tensors(quantized.undoing(model), "parameter")
        parameters = sum(p.numel() for p in model.parameters())
        tracker = MemTracker() if tracked else None
        if tracked:
            tracker.track_external(model, optimizer, batches.tensors[0])
        with tracker if tracked else contextlib.nullcontext(), log:
            if settings["ddp"]:
                model = training.distribute(model, settings)
            for step in range(STEPS):
                gc.collect()
                log.events = [] if want_events and step == STEPS - 1 else None
                steps.append(record_step((model, optimizer, scaler, batches), settings, tracker, log))
    return {
        "parameters": parameters,
        "sdpa_kernels": sorted(log.attention_ops),
        "gradient_sums": dict(sorted(log.accumulations.items())),
        "steps": steps,
    }


def record_step(subjects, settings, tracker, log):
    import torch

    import training

    model, optimizer, scaler, batches = subjects
    start_step(tracker, log)
    phases = {}
    passes = 0

    def name_what_lasts():
        log.name_tensors((p.grad for p in model.parameters()), "gradient")
        log.name_tensors((getattr(scaler, name, None) for name in ("_scale", "_growth_tracker")), "other")
        for state in optimizer.state.values():
            log.name_tensors((v for v in state.values() if isinstance(v, torch.Tensor)), "optimizer_state")
            projection = getattr(state.get("projector"), "ortho_matrix", None)  # of apollo_torch
            log.name_tensors(() if projection is None else (projection,), "optimizer_state")

    def mark(phase):
        """A phase has ended. Its storages are kept as they are now: categories settle at the end of the step."""
        nonlocal passes
        passes += phase == "backward"
        name_what_lasts()
        phases[phase] = (list(log.live.values()), told_by(tracker, "current"))
        log.phase = training.phase_after(phase, settings, passes == settings.get("micro_batches", 1))
        if log.events is not None:
            log.events.append(("end of", phase))

    log.phase = "zero_grad"
    training.train_step(model, optimizer, scaler, batches, settings, mark)
    result = {
        "peak_bytes": log.peak,
        "peak_requested_bytes": log.peak_requested,
        "peak_by_category": log.by_category(log.peak_live),
        "peak_at": log.peak_at,
        **told_by(tracker, "peak", log.peak),
        "after": {
            phase: {
                "bytes": sum(e.bytes for e in entries),
                "requested_bytes": sum(e.requested for e in entries),
                "by_category": log.by_category(entries),
                **theirs,
            }
            for phase, (entries, theirs) in phases.items()
        },
        "live_at_peak": listed(log.peak_live),
    }
    if log.events is not None:
        result["events"] = told(log.events)
    if log.with_kernels:
        result["kernels"] = told_kernels(log)
    return result


def start_step(tracker, log):
    if tracker is not None:
        tracker.reset_mod_stats()
        tracker._peak_mem_snap = tracker.get_tracker_snapshot()
        tracker._peak_mem = {device: snap["Total"] for device, snap in tracker._peak_mem_snap.items()}
    log.reset_peak()
    log.module_of_node.clear()


def told_by(tracker, which, expected=None):
    """MemTracker's categories on the one CUDA device; the optimizers' step counts, on the CPU, are not counted."""
    if tracker is None:
        return {}
    (here,) = [sums for device, sums in tracker.get_tracker_snapshot(which).items() if device.type == "cuda"]
    out = {getattr(key, "value", key).lower(): value for key, value in here.items()}
    if expected not in (None, out["total"]):
        raise AssertionError(f"MemTracker's {which} is {out['total']}, the sum of storages {expected}")
    return {"mem_tracker": out}


def told_kernels(log):
    """What the allocator saw under the log, and what kernels held for themselves: at least 64 KiB, largest first."""
    held = sorted(log.kernels.items(), key=lambda item: (-item[1], item[0]))
    return {
        "peak_requested_bytes": log.kernel_peak,
        "peak_at": log.kernel_peak_at,
        "held": [{"op": op, "class": kind, "bytes": size} for (op, kind), size in held if size >= 1 << 16],
    }


def told(events):
    """One line each: `+ id bytes category op @ module` for a storage made, `- id bytes` for one that died."""
    lines = []
    for kind, what in events:
        if kind == "end of":
            lines.append(f"= end of {what}")
        elif kind == "alloc":
            where = what.module[0] or what.module[1]
            lines.append(f"+ {what.id} {what.bytes} {what.category} {what.op} @ {where}")
        else:
            lines.append(f"- {what.id} {what.bytes}")
    return lines


def plain_run(name, snapshot):
    """The allocator's own figures, from a process without any mode."""
    command = [sys.executable, str(HERE / "plain_run.py"), name, str(STEPS), snapshot or ""]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(text.splitlines()[-1])


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


def make(name, snapshot):
    import torch
    import transformers

    import training
    from recordings import WITH_EVENTS, settings_of

    gc.disable()
    training.one_sequence_per_row()
    config, settings = settings_of(name)
    fake = not settings["ddp"]  # DistributedDataParallel's host code reads some of its tensors' bytes
    run = record(config, settings, fake, in_place_accumulation=True, want_events=name in WITH_EVENTS)
    kernels = record(config, settings, fake=False, in_place_accumulation=True)
    outside = record(config, settings, fake, in_place_accumulation=False)
    tracked = record(config, settings, fake, in_place_accumulation=False, tracked=True)
    plain = plain_run(name, snapshot)
    kind = "fake tensors" if fake else "real tensors on a device that does nothing"
    events = run["steps"][-1].pop("events", None)
    for step in run["steps"][1:-1]:
        del step["live_at_peak"]
    for step in outside["steps"] + tracked["steps"]:
        del step["live_at_peak"]
    recording = {
        **head_of(name, config, settings, kind),
        **run,
        "without_in_place_accumulation": outside["steps"],
        "kernels": [step["kernels"] for step in kernels["steps"]],
        "under_mem_tracker": tracked["steps"],
        "caching_allocator": plain,
    }
    compare(run["steps"], kernels["steps"], plain)
    report(recording)
    return recording, events


def head_of(name, config, settings, kind):
    import torch
    import transformers

    return {
        "name": name,
        "provenance": {
            "command": f"python tests/ground_truth/record_fake.py {name}",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
            "device": f"cuda ({kind}), compute capability {settings['capability']}",
        },
        "config": config,
        "settings": settings,
    }


def make_drawn(name, snapshot):
    """In two runs: real tensors on the null device under StorageLog, and the plain one."""
    import training
    from recordings import settings_of

    gc.disable()
    config, settings = settings_of(name)
    training.answer_of_rows(settings)
    run = record(config, settings, fake=False, in_place_accumulation=True)
    plain = plain_run(name, snapshot)
    compare(run["steps"], run["steps"], plain)
    kernels = [step.pop("kernels") for step in run["steps"]]
    for step in run["steps"]:
        step["after"] = {phase: after["bytes"] for phase, after in step["after"].items()}
        step["live_at_peak"] = step["live_at_peak"][:LISTED_OF_DRAWN]
    for step in run["steps"][:-1]:
        del step["live_at_peak"]
    for step in kernels:
        step["held"] = step["held"][:LISTED_OF_DRAWN]
    for step in plain:
        del step["after"]
    recording = {
        **head_of(name, config, settings, "real tensors on a device that does nothing"),
        **run,
        "kernels": kernels,
        "caching_allocator": plain,
    }
    report(recording)
    return recording, None


def compare(steps, with_kernels, plain):
    """The three ways to run agree to the byte on what is requested: after every phase, and at the peak once what
    kernels hold is counted."""
    for ours, real, theirs in zip(steps, with_kernels, plain):
        pairs = [
            (real["peak_requested_bytes"], ours["peak_requested_bytes"], "the peak over real tensors"),
            (theirs["peak"]["requested"], real["kernels"]["peak_requested_bytes"], "the plain run's peak"),
        ]
        for phase, after in ours["after"].items():
            pairs.append(
                (theirs["after"][phase]["requested"], after["requested_bytes"], f"the plain run after {phase}")
            )
        for found, expected, what in pairs:
            if found != expected:
                raise AssertionError(f"{what}: {found}, expected {expected}")


def report(recording):
    peak, kernels = recording["steps"][-1], recording["kernels"][-1]["peak_requested_bytes"]
    mib = {key: round(value / 2**20, 1) for key, value in peak["peak_by_category"].items() if value >= 1 << 16}
    where = f"{peak['peak_at']['phase']}: {peak['peak_at']['op']} @ {peak['peak_at']['class']}"
    more = {
        "with kernels": kernels - peak["peak_requested_bytes"],
    }
    for what, runs in (("not in place", "without_in_place_accumulation"), ("under MemTracker", "under_mem_tracker")):
        if runs in recording:
            more[what] = recording[runs][-1]["peak_bytes"] - peak["peak_bytes"]
    differences = "".join(f"; {key} {value / 2**20:+.2f}" for key, value in more.items() if value)
    print(f"{recording['name']}: peak {peak['peak_bytes'] / 2**20:.1f} MiB {mib} in {where}{differences}")


def table(recordings):
    """One row per recording: what a scenario needs to say, and where the last step's peak is."""
    from drawn import MORE_SETTINGS
    from recordings import SETTINGS

    rows = ["| recording | model | settings | peak, MiB | where | kernels hold |", "|---|---|---|---:|---|---:|"]
    for r in recordings:
        c, s, step = r["config"], r["settings"], r["steps"][-1]
        wide, deep = c.get("hidden_size", c.get("n_embd")), c.get("num_hidden_layers", c.get("n_layer"))
        model = f"{c['model_type']}, {deep} x {wide}, vocabulary {c['vocab_size']}"
        said = [f"{s['batch']} x {s['sequence']}", s["precision"], s["optimizer"], s["attention"]]
        names = {"clip_grad_norm": "clipped", "outputs": "outputs kept", "amsgrad": "amsgrad"}
        for key in ("clip_grad_norm", "checkpointing", "outputs", "ddp", *MORE_SETTINGS):
            if key in s and s[key] != {**SETTINGS, **MORE_SETTINGS}[key]:
                said.append(names.get(key) or f"{key} {s[key]}")
        at = step["peak_at"]
        more = r["kernels"][-1]["peak_requested_bytes"] - step["peak_requested_bytes"]
        rows.append(
            f"| `{r['name']}` | {model} | {', '.join(said)} | {step['peak_bytes'] / 2**20:.1f} "
            f"| {at['phase']}: {at['op'].split(' ')[0]} | {f'{more / 2**20:+.1f}' if more else ''} |"
        )
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--drawn", action="store_true", help="the recordings that drawn.py draws")
    parser.add_argument("--optimizers", action="store_true", help="those of optimizers.py")
    parser.add_argument("--fused", action="store_true", help="those of fused.py")
    parser.add_argument("--packed", action="store_true", help="those of packed.py")
    parser.add_argument("--adapted", action="store_true", help="the recordings of models that PEFT adapts")
    parser.add_argument("--experts", action="store_true", help="those of experts.py")
    parser.add_argument("--families", action="store_true", help="the recordings of families that transformers alone builds")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true", help="print the recordings' table in Markdown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--snapshots", type=Path, help="also leave the plain runs' allocator snapshots here")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from experts import EXPERTS
    from fused import FUSED
    from optimizers import OPTIMIZERS
    from packed import PACKED
    from families import FAMILIES
    from recordings import ADAPTED, DRAWN, RECORDINGS, settings_of

    chosen = [(arguments.drawn, DRAWN), (arguments.adapted, ADAPTED), (arguments.optimizers, OPTIMIZERS), (arguments.fused, FUSED)]
    chosen += [(arguments.packed, PACKED), (arguments.experts, EXPERTS), (arguments.families, FAMILIES)]
    group = next((group for asked, group in chosen if asked), RECORDINGS)
    names = list(group) if arguments.all or group is not RECORDINGS else arguments.names
    in_two_runs = {**DRAWN, **ADAPTED, **OPTIMIZERS, **FUSED, **PACKED, **EXPERTS, **FAMILIES}
    folders = ((DRAWN, DRAWN_OUT), (ADAPTED, ADAPTED_OUT), (OPTIMIZERS, OPTIMIZERS_OUT), (FUSED, FUSED_OUT), (PACKED, PACKED_OUT), (EXPERTS, EXPERTS_OUT), (FAMILIES, FAMILIES_OUT), (RECORDINGS, OUT))

    def folder_of(name):
        return arguments.out or next(folder for group, folder in folders if name in group)

    if arguments.table:
        print(table(json.loads((folder_of(name) / f"{name}.json").read_text()) for name in group))
        return
    if arguments.list or not names:
        print("\n".join([*RECORDINGS, *in_two_runs]))
        return
    unknown = [name for name in names if name not in RECORDINGS and name not in in_two_runs]
    if unknown:
        parser.error(f"no such recording: {', '.join(unknown)}; --list names them")
    for folder in {arguments.snapshots, *map(folder_of, names)} - {None}:
        folder.mkdir(parents=True, exist_ok=True)
    if "NULL_CUDA_CAPABILITY" not in os.environ:  # each recording in a process of its own, under the null device
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                command = [sys.executable, __file__, name, "--out", str(folder_of(name))]
                command += ["--snapshots", str(arguments.snapshots)] if arguments.snapshots else []
                environment = under_null_cuda(folder, settings_of(name)[1])
                subprocess.run(command, env=environment, check=True)
        return
    for name in names:
        snapshot = str(arguments.snapshots / f"{name}.pickle") if arguments.snapshots else None
        recording, events = (make_drawn if name in in_two_runs else make)(name, snapshot)
        write(folder_of(name) / f"{name}.json", recording)
        if events:
            (folder_of(name) / f"{name}.events.txt").write_text("\n".join(events) + "\n")
    sys.stdout.flush()
    os._exit(0)  # autograd's device threads do not end in an orderly way without a device


if __name__ == "__main__":
    main()
