"""Holds `tidemark replay --alloc-conf` to PyTorch's own allocator: random requests are recorded under some settings,
what they would be under others is asked, and the same requests are made under those for real.

    /tmp/venv/bin/python tests/ground_truth/what_if.py build/release/bin/tidemark [--seeds 8] [--addresses fall]
        [--empty 0.02] [--fraction 0.0375]

Needs a CUDA build of torch, a C compiler and no GPU: see kernels/null_device."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
DEFAULT = "max_non_split_rounding_mb:20"  # says what holds anyway
SETTINGS = [
    DEFAULT,
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[64:8,256:4,>:2]",
    "max_split_size_mb:64",
    "max_split_size_mb:128,max_non_split_rounding_mb:40",
    "max_split_size_mb:20,roundup_power2_divisions:8",
    "garbage_collection_threshold:0.5",
]


def requests(seed, empty, most):
    """("a", number, bytes), ("f", number) and ("e",) for empty_cache(), 400 and some."""
    r = random.Random(seed)
    kind = r.choice(["mixed", "large", "small", "few sizes"])

    def size():
        where = r.random()
        if kind == "small":
            return r.randint(1, 3 * MIB) if where < 0.8 else r.randint(1, 30 * MIB)
        if kind == "large":
            return r.randint(MIB, 300 * MIB) if where < 0.8 else r.randint(1, 2 * MIB)
        return r.randint(1, MIB) if where < 0.3 else r.randint(MIB, 12 * MIB) if where < 0.6 else r.randint(10 * MIB, 250 * MIB)

    palette = [size() for _ in range(12)]
    made, live, held = [], [], 0
    for number in range(400):
        if live and (r.random() < 0.47 or held > most):
            freed, its_size = live.pop(r.randrange(len(live)))
            held -= its_size
            made.append(("f", freed))
        else:
            asked = r.choice(palette) if kind == "few sizes" else size()
            made.append(("a", number, asked))
            live.append((number, asked))
            held += asked
        if r.random() < empty:
            made.append(("e",))
    return made


def run(made, settings, fraction, file):
    import torch
    from torch.cuda import memory

    torch._C._accelerator_setAllocatorSettings(settings)
    torch.cuda.init()
    if fraction:
        torch.cuda.set_per_process_memory_fraction(fraction)
    memory._record_memory_history(max_entries=1_000_000, context=None)
    address, ran_out = {}, 0
    for what, *of in made:
        if what == "a":
            try:
                address[of[0]] = memory.caching_allocator_alloc(of[1])
            except torch.OutOfMemoryError:
                ran_out += 1
        elif what == "e":
            torch.cuda.empty_cache()
        elif of[0] in address:
            memory.caching_allocator_delete(address.pop(of[0]))
    memory._dump_snapshot(file)
    return {"reserved": torch.cuda.memory_stats()["reserved_bytes.all.peak"], "ran_out": ran_out}


def in_a_child(*arguments):
    """An allocator starts empty only in a new process; forking spares the import of torch."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(run(*arguments)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return json.loads(said)


def asked(tidemark, file, settings, fraction):
    limits = ["--capacity", "80 GiB", "--memory-fraction", str(fraction)] if fraction else []
    command = [tidemark, "replay", file, "--alloc-conf", settings, "--json", "-", *limits]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


def main(o):
    import torch  # noqa: F401, so that children have it

    totals = dict.fromkeys(["asked", "recordings replayed exactly", "where memory runs out", "equal", "within the range"], 0)
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(o.seeds):
            made = requests(seed, o.empty, (2.7 if o.fraction else 3) * GIB)
            files = [f"{folder}/{i}.pickle" for i in range(len(SETTINGS))]
            real = [in_a_child(made, settings, o.fraction, file) for settings, file in zip(SETTINGS, files)]
            for recorded, file in zip(real, files):
                for settings, wanted in zip(SETTINGS, real):
                    answer = asked(o.tidemark, file, settings, o.fraction)
                    totals["asked"] += 1
                    totals["recordings replayed exactly"] += answer["exact"]
                    what = answer["what_if"]["asked"]
                    if what["ran_out"] or wanted["ran_out"] or recorded["ran_out"]:
                        totals["where memory runs out"] += 1
                        continue
                    low, high = what["peak_reserved_range_bytes"]
                    error = abs(what["peak_reserved_bytes"] / wanted["reserved"] - 1)
                    worst = max(worst, error)
                    totals["equal"] += error == 0
                    totals["within the range"] += low <= wanted["reserved"] <= high
    print("; ".join(f"{name}: {number}" for name, number in totals.items()) + f"; worst {100 * worst:.2f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemark")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--addresses", choices=["rise", "fall"], default="rise")
    parser.add_argument("--empty", type=float, default=0, help="how often the cache is emptied, a request")
    parser.add_argument("--fraction", type=float, default=0, help="of 80 GiB that the allocator may take")
    options = parser.parse_args()
    if "ADDRESSES" in os.environ:
        main(options)
    else:
        from record_fake import under_null_cuda

        with tempfile.TemporaryDirectory() as folder:
            environment = under_null_cuda(folder, "80")
            ordered = f"{folder}/ordered_malloc.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(HERE / "ordered_malloc.c"), "-o", ordered], check=True)
            environment |= {"LD_PRELOAD": f"{ordered} {environment['LD_PRELOAD']}", "ADDRESSES": options.addresses}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
