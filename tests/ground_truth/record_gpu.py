"""Records real device memory of small models in training, on a machine with one GPU: see README.md.

    python tests/ground_truth/record_gpu.py models [NAME...] [--steps N] [--out DIRECTORY]
    python tests/ground_truth/record_gpu.py ladder [--out DIRECTORY]
    python tests/ground_truth/record_gpu.py plain_runs [NAME...] [--at-once N] [--out DIRECTORY]
    python tests/ground_truth/record_gpu.py list

With --dry-run everything runs on the CPU, on tiny models: no memory is measured, every number of bytes is null.
"""

import argparse
import gc
import gzip
import json
import os
import pickle
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "gpu_recordings"
ENVIRONMENT = ("CUDA_", "CUBLAS", "NCCL_", "NVTE_", "PYTORCH_", "TORCH_")  # variables that memory may depend on
MOST_EVENTS = 2_000_000


def versions():
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        "nccl": nccl,
        "driver": driver_version(),
    }


def driver_version():
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def device_facts():
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "total_bytes": torch.cuda.mem_get_info()[1],
    }


def provenance(command):
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    chosen = {name: value for name, value in sorted(os.environ.items()) if name.startswith(ENVIRONMENT)}
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit or None,
        "versions": versions(),
        "device": device_facts(),
        "environment": chosen,
    }


class Device:
    """Counters of the GPU; on a CPU, none."""

    def __init__(self, dry_run):
        import torch

        self.dry = dry_run
        self.torch = torch
        self.device = torch.device("cpu") if dry_run else torch.device("cuda", 0)

    def start_history(self):
        if not self.dry:
            self.torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS, stacks="python", context="alloc")

    def snapshot(self):
        if self.dry:
            return {"segments": [], "device_traces": [[]]}
        return self.torch.cuda.memory._snapshot()

    def taken(self):
        """Bytes of the device that are not free, whoever has them."""
        if self.dry:
            return None
        self.torch.cuda.synchronize()
        free, total = self.torch.cuda.mem_get_info()
        return total - free

    def counters(self):
        """Now, and the peaks since the last call."""
        names = [f"{what}_bytes.all" for what in ("allocated", "active", "reserved", "requested")]
        stats = {} if self.dry else self.torch.cuda.memory_stats()
        found = {}
        for name in names:
            short = name.split("_")[0]
            found[short] = stats.get(f"{name}.current")
            found[f"{short}_peak"] = stats.get(f"{name}.peak")
        for name in ("num_alloc_retries", "num_ooms"):
            found[name] = stats.get(name)
        found["device_taken"] = self.taken()
        if not self.dry:
            self.torch.cuda.reset_peak_memory_stats()
        return found


def compact(snapshot):
    """A snapshot without what replay does not need: one frame of each stack, no times."""

    def frames(entry):
        kept = [f for f in entry.get("frames", []) if "torch/" not in f["filename"]][:1]
        return [{"filename": Path(f["filename"]).name, "line": f["line"], "name": f["name"]} for f in kept]

    def event(e):
        kept = {key: e[key] for key in ("action", "addr", "size", "stream", "device_free", "segment_pool_id", "pool_id") if key in e}
        return {**kept, "frames": frames(e)}

    def segment(s):
        blocks = [
            {**{key: b[key] for key in ("address", "size", "requested_size", "state") if key in b}, "frames": []}
            for b in s["blocks"]
        ]
        return {**{key: value for key, value in s.items() if key not in ("blocks", "frames")}, "blocks": blocks}

    return {
        "segments": [segment(s) for s in snapshot["segments"]],
        "device_traces": [[event(e) for e in trace] for trace in snapshot["device_traces"]],
        "allocator_settings": snapshot.get("allocator_settings", {}),
    }


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_snapshot(path, snapshot):
    """Protocol 4, and the same bytes for the same snapshot."""
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        pickle.dump(compact(snapshot), packed, protocol=4)


def record_model(name, steps, dry_run, out):
    import torch

    import gpu_models

    job = gpu_models.job_named(name, "tiny" if dry_run else None)
    if dry_run:
        job["sequence"] = 32
    device = Device(dry_run)
    torch.manual_seed(0)
    gc.disable()
    before = device.taken()
    device.start_history()
    training = gpu_models.Training(job, device.device)
    phases = [{"phase": "construction", **device.counters()}]
    for step in range(1, steps + 1):
        gc.collect()
        loss = float(training.step())
        phases.append({"phase": f"step {step}", "loss_is_finite": loss == loss, **device.counters()})
    write_snapshot(out / f"{name}.pickle.gz", device.snapshot())
    parameters = sum(p.numel() for p in training.model.parameters())
    write_json(
        out / f"{name}.json",
        {
            "schema": "tidemark.gpu_recording/1",
            "name": name,
            "provenance": provenance(f"python tests/ground_truth/record_gpu.py models {name} --steps {steps}"),
            "dry_run": dry_run,
            "job": {**job, **gpu_models.SHAPES[job["shape"]]},
            "local_parameters": parameters,
            "device_taken_before": before,
            "phases": phases,
            "snapshot": f"{name}.pickle.gz",
        },
    )
    gpu_models.leave_fake_job()


def models(arguments):
    """Each in a process of its own: history and peaks begin with it."""
    import gpu_models

    names = arguments.names or list(gpu_models.JOBS)
    unknown = [name for name in names if name not in gpu_models.JOBS]
    if unknown:
        sys.exit(f"no such model: {', '.join(unknown)}; 'list' names them")
    if arguments.here:
        for name in names:
            record_model(name, arguments.steps, arguments.dry_run, arguments.out)
        return
    failed = []
    for name in names:
        command = [sys.executable, __file__, "models", name, "--here", "--steps", str(arguments.steps)]
        command += ["--out", str(arguments.out)] + (["--dry-run"] if arguments.dry_run else [])
        code = subprocess.run(command).returncode
        print(name, "recorded" if code == 0 else f"failed ({code})", flush=True)
        failed += [name] if code else []
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


def ladder(arguments):
    import gpu_ladder

    dry_run = arguments.dry_run
    rungs = gpu_ladder.climb(Device(dry_run))
    recording = {
        "schema": "tidemark.device_ladder/1",
        "provenance": provenance("python tests/ground_truth/record_gpu.py ladder"),
        "dry_run": dry_run,
        "rungs": rungs,
        "cluster": None if dry_run else gpu_ladder.cluster_tables(rungs, versions(), device_facts()),
    }
    write_json(arguments.out / "ladder.json", recording)
    if recording["cluster"]:
        (arguments.out / "ladder.toml").write_text(gpu_ladder.as_toml(recording["cluster"]))
    for rung in rungs:
        print(f"{rung['rung']:28} {rung['overhead_added']}")


def plain_runs(arguments):
    """Trainings of record_fake.py, which there run on a device that does nothing, on this one: what the allocator counts
    step by step. Several at once: each process has an allocator of its own, and what it counts does not depend on the
    others as long as the device has room for all."""
    import transformers
    from record_fake import STEPS
    from recordings import DRAWN, RECORDINGS, settings_of

    names = arguments.names or [*RECORDINGS, *DRAWN]
    unknown = [name for name in names if name not in RECORDINGS and name not in DRAWN]
    if unknown:
        sys.exit(f"no such training: {', '.join(unknown)}; record_fake.py --list names them")
    facts = device_facts()
    capability = facts["compute_capability"].replace(".", "")

    def run(name):
        config, settings = settings_of(name)
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTORCH_ALLOC_CONF": settings.get("allocator") or ""}
        command = [sys.executable, str(HERE / "plain_run.py"), name, str(STEPS), ""]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            return None
        steps = json.loads(done.stdout.splitlines()[-1])
        settings["capability"] = capability
        return {"name": name, "config": config, "settings": settings, "steps": [{"peak": s["peak"]} for s in steps]}

    with ThreadPoolExecutor(arguments.at_once) as pool:
        recorded = [its for its in pool.map(run, names) if its is not None]
    about = provenance(" ".join(["python tests/ground_truth/record_gpu.py plain_runs", *arguments.names]))
    about["versions"]["transformers"] = transformers.__version__
    runs = ",\n".join(json.dumps(its) for its in recorded)
    schema = '"schema": "tidemark.gpu_plain_runs/1"'
    text = f'{{{schema},\n"provenance": {json.dumps(about)},\n"runs": [\n{runs}\n]}}\n'
    (arguments.out / "plain_runs.json").write_text(text)
    print(f"{len(recorded)} of {len(names)} recorded")
    if len(recorded) < len(names):
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("models", "ladder", "plain_runs", "list"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU: measures nothing")
    parser.add_argument("--at-once", type=int, default=8, help="of plain_runs: so many processes")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if arguments.what == "list":
        import gpu_models

        return print("\n".join(gpu_models.JOBS))
    arguments.out.mkdir(parents=True, exist_ok=True)
    import torch

    if not arguments.dry_run and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --dry-run goes through the motions on the CPU")
    {"models": models, "ladder": ladder, "plain_runs": plain_runs}[arguments.what](arguments)


if __name__ == "__main__":
    main()
