"""How a run ends, and what it leaves: one JSON file in the folder that it was given."""

import atexit
import json
import os
import sys
import time
import traceback
from collections import OrderedDict

STACK = 40  # frames of a stack that are kept


class Run:
    """What is known of this process so far."""

    def __init__(self, folder):
        self.folder = folder
        self.began = time.monotonic()
        self.steps_wanted = int(os.environ.get("TIDEMARK_DRY_RUN_STEPS", "3"))
        self.want_snapshot = bool(os.environ.get("TIDEMARK_DRY_RUN_SNAPSHOT"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.told = dict(os.environ)  # by tidemark, before anybody's code has run
        self.pid = os.getpid()
        self.torch = None
        self.device = None  # device.Device
        self.steps = None  # steps.Steps
        self.groups = []  # groups.Group
        self.stood_in = OrderedDict()  # what -> [count, where first]
        self.failure = None
        self.exit_status = None
        self.over = False

    def stand_in(self, what):
        """Something that a device or other ranks would have said is said in their place."""
        entry = self.stood_in.get(what)
        if entry:
            entry[0] += 1
        else:
            self.stood_in[what] = [1, place_of(sys._getframe(1))]

    def end(self, outcome, failure=None):
        """Leaves what there is, and ends the process: nothing of the user's runs any more."""
        if self.over or os.getpid() != self.pid:
            return
        self.over = True
        self.failure = failure or self.failure
        try:
            self.write(outcome)
        except BaseException:
            traceback.print_exc()
        if outcome == "ended" and not (self.device and self.device.ready()):
            return  # it ends by itself, with its own status
        end_children()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        # Autograd's device threads do not end in an orderly way without a device.
        os._exit(0)

    def write(self, outcome):
        said = {
            "schema": "tidemark.dry_run.rank/1", "rank": self.rank, "world_size": self.world_size, "outcome": outcome,
            "python": sys.version.split()[0], "failure": self.failure, "exit_status": self.exit_status,
        }  # fmt: skip
        if self.torch is not None:
            said["torch"], said["cuda"] = str(self.torch.__version__), self.torch.version.cuda
            said["nccl"] = nccl(self.torch)
            said["packages"] = packages()
        if self.steps:
            self.steps.finish()
            said.update(self.steps.told())
        if self.device:
            said.update(self.device.told(self))
        said["groups"] = [group.told() for group in self.groups]
        said["stood_in"] = [
            {"what": what, "count": count, "where": where} for what, (count, where) in self.stood_in.items()
        ]
        said["host"] = {"peak_resident_bytes": peak_resident()}
        said["seconds"] = round(time.monotonic() - self.began, 3)
        path = os.path.join(self.folder, f"rank-{self.rank}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(said, file)
        os.replace(path + ".part", path)


def nccl(torch):
    """Its release: major x 100 + minor."""
    try:
        version = torch.cuda.nccl.version()
        return version[0] * 100 + version[1]
    except Exception:
        return None


# As runtime.versions of a scenario calls them -> the module that has its release, and the distribution.
FRAMEWORKS = {
    "torch": ("torch", "torch"), "transformers": ("transformers", "transformers"), "deepspeed": ("deepspeed", "deepspeed"),
    "megatron": ("megatron.core", "megatron-core"), "torchtitan": ("torchtitan", "torchtitan"), "litgpt": ("litgpt", "litgpt"),
    "liger_kernel": ("liger_kernel", "liger-kernel"), "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "transformer_engine": ("transformer_engine", "transformer-engine"),
}  # fmt: skip


def packages():
    """Releases of the frameworks that have been imported."""
    import importlib.metadata

    found = {}
    for name, (module, distribution) in FRAMEWORKS.items():
        its = sys.modules.get(module)
        if its is None:
            continue
        version = getattr(its, "__version__", None)
        if version is None:
            try:
                version = importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        found[name] = str(version).split("+")[0]
    return found


def end_children():
    """Loaders of data wait for this process, and would outlive it."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return
    try:
        for child in multiprocessing.active_children():
            child.terminate()
    except Exception:
        pass


def peak_resident():
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


OWN = os.path.dirname(os.path.abspath(__file__))


def place_of(frame):
    """The innermost place that is neither of this folder nor of PyTorch."""
    first = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(OWN):
            place = f"{file}:{frame.f_lineno} {frame.f_code.co_name}"
            first = first or place
            if "/torch/" not in file and not file.startswith("<"):
                return place
        frame = frame.f_back
    return first


def frame_of_caller():
    """Of the innermost function that is none of ours: several of ours may stand around one of PyTorch's."""
    frame = sys._getframe(1)
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == OWN:
        frame = frame.f_back
    return frame


def stack_of(frame):
    lines = []
    while frame is not None and len(lines) < STACK:
        if not frame.f_code.co_filename.startswith(OWN):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return lines


def failure_of(kind, value, trace):
    lines = []
    for frame, line in traceback.walk_tb(trace):
        if not frame.f_code.co_filename.startswith(OWN):
            lines.append(f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}")
    return {"type": kind.__name__, "message": str(value)[:4000], "stack": lines[::-1][:STACK]}


def catch(run):
    """Whatever ends the script leaves what was found."""
    before, leave = sys.excepthook, sys.exit

    def excepthook(kind, value, trace):
        before(kind, value, trace)
        out_of_memory = kind.__name__ == "OutOfMemoryError"
        run.end("out_of_memory" if out_of_memory else "error", failure_of(kind, value, trace))

    def exit(status=None):
        run.exit_status = status if isinstance(status, int) or status is None else 1
        leave(status)

    sys.excepthook, sys.exit = excepthook, exit
    atexit.register(lambda: run.end("ended"))
