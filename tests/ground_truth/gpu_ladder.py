"""What a process takes of a device besides tensors, rung by rung, and the tables of a cluster file that follow.

Each rung does one more thing and reads how much of the device is taken: cudaMemGetInfo, less what PyTorch's allocator
has reserved. What others take does not change meanwhile on a machine of one's own; readings that do not settle are
marked.
"""

import os
import tempfile

MIB = 1 << 20
KERNELS = ("first_kernel", "cublas", "attention", "optimizer", "more_shapes")


def settled(device, readings=3):
    """What is taken, and whether readings agree."""
    values = [device.taken() for _ in range(readings)]
    return values[-1], len(set(values)) == 1


def climb(device):
    """The rungs, in order: name, device taken, reserved, overhead (the difference) and what the rung added to it."""
    torch = device.torch
    rungs = []

    def rung(name, action, note=""):
        kept = action()
        if device.dry:
            taken, stable, reserved = None, True, None
        else:
            taken, stable = settled(device)
            reserved = torch.cuda.memory_reserved()
        overhead = None if taken is None else taken - reserved
        before = rungs[-1]["overhead"] if rungs else None
        added = None if overhead is None or before is None else overhead - before
        rungs.append({"rung": name, "device_taken": taken, "reserved": reserved, "overhead": overhead,
                      "overhead_added": added, "stable": stable, "note": note})  # fmt: skip
        return kept

    def before_any_context():
        # Read by NVML: this process must not have a context yet.
        used = None if device.dry else nvml_used()
        rungs.append({"rung": "before", "device_taken": used, "reserved": 0, "overhead": used, "overhead_added": None,
                      "stable": True, "note": "NVML, without a context"})  # fmt: skip

    before_any_context()
    where = device.device
    rung("context", lambda: None if device.dry else torch.cuda.init() or torch.cuda.synchronize())
    rung("first_kernel", lambda: torch.ones(1024, device=where).add_(1), "one element-wise kernel: its module")
    half = {"dtype": torch.bfloat16, "device": where}
    a = torch.randn(1024, 1024, **half)
    rung("cublas", lambda: a @ a, "a handle, and the kernels of one GEMM")
    q = torch.randn(1, 8, 256, 64, **half, requires_grad=True)

    def attention():
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    rung("attention", attention, "forward and backward; the autograd thread's handle comes with the next rung")

    def optimizer():
        layer = torch.nn.Linear(512, 512, **half)
        step = torch.optim.AdamW(layer.parameters())
        layer(torch.randn(64, 512, **half)).float().pow(2).mean().backward()
        step.step()

    rung("optimizer", optimizer, "a linear layer's step: multi-tensor kernels, GEMMs on the autograd thread")

    def more_shapes():
        for n in (256, 2048, 4096):
            x = torch.randn(n, n, **half, requires_grad=True)
            torch.nn.functional.silu(torch.nn.functional.rms_norm(x @ x, (n,))).float().logsumexp(-1).mean().backward()

    rung("more_shapes", more_shapes, "GEMMs of other shapes, and the usual kernels of a layer")
    with_nccl(device, rung)
    return rungs


def with_nccl(device, rung):
    """A communicator of this process alone: structures and kernels; it connects to nobody."""
    import torch.distributed as dist

    torch = device.torch
    backend = "gloo" if device.dry else "nccl"
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        make_group = lambda: dist.init_process_group(backend, rank=0, world_size=1, store=store)
        rung("process_group", make_group, "no communicator yet")
        value = torch.ones(1024, device=device.device)

        def first():
            dist.all_reduce(value)
            if not device.dry:
                torch.cuda.synchronize()

        rung("first_communicator", first, "NCCL's kernels, and the structures of a communicator of one rank")
        again = dist.new_group([0])
        rung("second_communicator", lambda: dist.all_reduce(value, group=again), "structures only")
        out = torch.empty(1024, device=device.device)
        rung("all_gather", lambda: dist.all_gather_into_tensor(out, value), "nothing to connect to")
        dist.destroy_process_group()


def nvml_used():
    import subprocess

    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * MIB
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def cluster_tables(rungs, versions, device):
    """The tables of a cluster file. One process, one run: bounds leave room for another driver (5 %, 10 % for NCCL's
    kernels) and, twice as much, for kernels that other models load."""
    by_name = {r["rung"]: r for r in rungs}
    source = (f"measured on {device['name']}: driver {versions['driver']}, CUDA {versions['cuda']}, "
              f"torch {versions['torch']}, NCCL {versions['nccl']} (tests/ground_truth/record_gpu.py ladder)")  # fmt: skip

    def estimate(low, bytes_, high):
        return {"bytes": bytes_, "low": low, "high": high, "source": source}

    before = by_name["before"]["overhead"] or 0
    context = by_name["context"]["overhead"] - before
    modules = sum(by_name[k]["overhead_added"] for k in KERNELS)
    structures = by_name["second_communicator"]["overhead_added"]
    kernels = by_name["first_communicator"]["overhead_added"] - structures
    return {
        "device.context": estimate(context * 95 // 100, context, context * 105 // 100),
        "device.modules": estimate(modules * 8 // 10, modules, modules * 2),
        "nccl.kernels": estimate(max(0, kernels) * 9 // 10, max(0, kernels), max(0, kernels) * 11 // 10),
        "nccl.communicators.alone": {"ranks": 1, **estimate(structures, structures, structures)},
    }


def as_toml(tables):
    out = "# Tables for a cluster file of this machine: they take the place of those of the same names.\n"
    for name, table in tables.items():
        out += f"\n[{name}]\n"
        for key, value in table.items():
            if key in ("bytes", "low", "high"):
                value = f'"{value} B"'
            elif isinstance(value, str):
                value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
            out += f"{key} = {value}\n"
    return out
