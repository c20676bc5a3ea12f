"""The device: its allocator's history and counters, and what happens where it is asked for what it does not have."""

import ctypes
import faulthandler
import os
import sys
import threading

from . import composition, ending

COUNTERS = ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes")
EVENTS = 10_000_000


class Device:
    def __init__(self, torch):
        self.torch = torch
        self.ran_out = None  # where the allocator found no memory, first
        self.labels = composition.Labels(torch)

    def ready(self):
        return self.torch.cuda.is_initialized()

    def counters(self, which):
        """Of the device that holds most."""
        if not self.ready():
            return {name: 0 for name in COUNTERS}
        stats = self.torch.cuda.memory_stats(self.index())
        return {name: stats.get(f"{name}.all.{which}", 0) for name in COUNTERS}

    def index(self):
        cuda = self.torch.cuda
        return max(range(cuda.device_count()), key=lambda device: (cuda.memory_stats(device).get("reserved_bytes.all.peak", 0), -device))

    def told(self, run):
        said = {"ran_out": self.ran_out}
        if not self.ready():
            return said
        index = self.index()
        stats = self.torch.cuda.memory_stats(index)
        free, total = self.torch.cuda.mem_get_info(index)
        said["device"] = {
            "index": index, "name": self.torch.cuda.get_device_name(index), "total_bytes": total,
            "retries": stats.get("num_alloc_retries", 0), "allocator": self.torch.cuda.get_allocator_backend(),
        }  # fmt: skip
        snapshot = self.torch.cuda.memory._snapshot()
        said["at_peak"] = composition.at_peak(snapshot["device_traces"][index], self.labels)
        if run.want_snapshot:
            import pickle

            with open(os.path.join(run.folder, f"rank-{run.rank}.pickle"), "wb") as file:
                pickle.dump(composition.without_own_frames(snapshot), file)
        return said


def prepare(torch, run):
    run.torch, run.device = torch, Device(torch)

    def begin():
        record(torch)
        watch_memory(torch, run)
        watch_functions(run)

    torch.cuda._lazy_call(begin)
    faulthandler.enable()


def record(torch):
    """The allocator's history, with the marks of optimizers' steps where the release can have them."""
    history = torch.cuda.memory._record_memory_history
    how = {"enabled": "all", "context": "alloc", "stacks": "python", "max_entries": EVENTS}
    for more in ({"global_record_annotations": True}, {}):
        try:
            return history(**how, **more)
        except TypeError:
            continue
    return history(True, trace_alloc_max_entries=EVENTS)


def watch_memory(torch, run):
    """Where it runs out first, whether or not the script goes on from there."""

    def ran_out(device, asked, total, free):
        if run.device.ran_out is None:
            step = run.steps.count() if run.steps else 0
            run.device.ran_out = {
                "asked_bytes": asked, "device_free_bytes": free, "after_steps": step,
                "stack": ending.stack_of(sys._getframe()), **run.device.counters("current"),
            }  # fmt: skip

    try:
        torch._C._cuda_attach_out_of_memory_observer(ran_out)
    except AttributeError:
        pass


_kept = []  # what C calls must live


def watch_functions(run):
    """A function of CUDA that the null device lacks ends the run, with the place that called it."""
    library = ctypes.CDLL(None)

    def told(name):
        name = name.decode()
        threads, mine = sys._current_frames(), threading.get_ident()
        main = threads.get(threading.main_thread().ident)
        # Autograd's threads call without Python's frames: then the place is where the main thread waits for them.
        stack = ending.stack_of(threads.get(mine)) or ending.stack_of(main)
        print(f"tidemark dry-run: the script asks for {name}, which a device without hardware does not have", file=sys.stderr)
        for line in stack:
            print(f"  {line}", file=sys.stderr)
        run.end("refused", {"type": "function", "message": name, "stack": stack})

    try:
        callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(told)
        library.null_cuda_tell(callback)
        _kept.append(callback)
    except AttributeError:
        pass
