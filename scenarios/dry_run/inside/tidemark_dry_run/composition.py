"""What the allocator's blocks are at its peak: what the framework can say of tensors that it still has, and of the rest the
place in the code that asked for them."""

import gc
import time
from collections import Counter

ROWS = 40
ROUNDING = 512  # of the allocator


def storages(tensor):
    """Addresses of the storages behind a tensor, whatever wraps it."""
    for inner in ("_local_tensor", "ds_tensor", "_local_shard", "_data"):
        part = getattr(tensor, inner, None)
        if part is not None and part is not tensor and hasattr(part, "untyped_storage"):
            yield from storages(part)
    if hasattr(type(tensor), "__tensor_flatten__"):
        try:
            names, _ = tensor.__tensor_flatten__()
            for name in names:
                yield from storages(getattr(tensor, name))
            return
        except Exception:
            return
    try:
        if tensor.is_cuda:
            yield tensor.untyped_storage().data_ptr()
    except Exception:
        return


class Labels:
    """(address, moment, what it is then)"""

    def __init__(self, torch):
        self.torch = torch
        self.seen = []

    def add(self, tensors, what):
        now = time.time_ns() // 1000
        addresses = {address for tensor in tensors for address in storages(tensor)}
        addresses.discard(0)
        self.seen.append((now, what, addresses))

    def look_at(self, optimizer, what):
        parameters = [p for group in optimizer.param_groups for p in group.get("params", ()) if hasattr(p, "grad")]
        if what == "gradients":
            self.add([p.grad for p in parameters if p.grad is not None], what)
            self.add(parameters, "parameters")
        else:
            self.add(tensors_in(optimizer.state, self.torch.Tensor), what)

    def look_around(self):
        """All parameters and buffers of all modules."""
        parameters, buffers = [], []
        module = self.torch.nn.Module
        for thing in gc.get_objects():
            if not issubclass(type(thing), module):  # isinstance would ask proxies what they stand for
                continue
            try:
                parameters += [p for p in thing._parameters.values() if p is not None]
                buffers += [b for b in thing._buffers.values() if b is not None]
            except Exception:
                continue
        self.add(buffers, "buffers")
        self.add(parameters, "parameters")


def tensors_in(state, kind):
    found, ahead = [], [state]
    while ahead:
        thing = ahead.pop()
        if isinstance(thing, kind):
            found.append(thing)
        elif isinstance(thing, dict):
            ahead += list(thing.values())
        elif isinstance(thing, (list, tuple)):
            ahead += list(thing)
    return found


def at_peak(events, labels):
    """The blocks that are live when the allocator has given out most, by what they are, and by place in the code."""
    live, now, most, moment = {}, 0, 0, -1
    rounded = [(e.get("size", 0) + ROUNDING - 1) // ROUNDING * ROUNDING for e in events]
    for i, event in enumerate(events):
        action = event["action"]
        if action == "alloc":
            live[event["addr"]] = i
            now += rounded[i]
            if now > most:
                most, moment = now, i
        elif action == "free_requested" and event["addr"] in live:
            now -= rounded[live.pop(event["addr"])]
    lives, open_at = [], {}
    for i, event in enumerate(events):
        if event["action"] == "alloc":
            open_at[event["addr"]] = len(lives)
            lives.append([i, event.get("time_us", i), None, None])
        elif event["action"] == "free_requested" and event["addr"] in open_at:
            its = lives[open_at.pop(event["addr"])]
            its[2], its[3] = i, event.get("time_us", i)
    kept = [its for its in lives if its[0] <= moment and (its[2] is None or its[2] > moment)]
    by_address = {}
    for its in kept:
        by_address[events[its[0]]["addr"]] = its
    names = {}
    for when, what, addresses in labels.seen:
        for address in addresses & by_address.keys():
            its = by_address[address]
            if its[1] <= when and (its[3] is None or when <= its[3]):
                names[its[0]] = what
    by_name, by_place = Counter(), Counter()
    for its in kept:
        event = events[its[0]]
        what = names.get(its[0])
        by_name[what or "other"] += rounded[its[0]]
        if what is None:
            by_place[place(event.get("frames") or ())] += rounded[its[0]]
    rows = [{"where": where, "bytes": bytes} for where, bytes in by_place.most_common(ROWS)]
    stack = [f for f in (events[moment].get("frames") or ()) if not is_own(f)] if moment >= 0 else []
    return {
        "bytes": most, "by_what": dict(by_name), "others": rows,
        "moment": [f"{f['filename']}:{f['line']} {f['name']}" for f in stack[:ROWS]],
    }  # fmt: skip


def without_own_frames(snapshot):
    """The script's stacks, without this folder's functions in them."""
    whole = list(snapshot.get("segments", ()))
    whole += [block for segment in whole for block in segment.get("blocks", ())]
    whole += [event for trace in snapshot.get("device_traces", ()) for event in trace]
    for its in whole:
        frames = its.get("frames")
        if frames and any(is_own(frame) for frame in frames):
            its["frames"] = [frame for frame in frames if not is_own(frame)]
    return snapshot


def is_own(frame):
    return "tidemark_dry_run" in frame["filename"]


def place(frames):
    """Where the model's or the framework's own code asked, and through which of PyTorch's functions."""
    frames = [f for f in frames if not is_own(f) and not f["filename"].startswith("<")]
    if not frames:
        return "autograd"
    inner = frames[0]
    for frame in frames:
        if "/torch/" not in frame["filename"]:
            through = "" if frame is inner else f", {inner['name']}"
            return f"{short(frame['filename'])}:{frame['line']} {frame['name']}{through}"
    return f"{short(inner['filename'])}:{inner['line']} {inner['name']}"


def short(file):
    return file.rsplit("site-packages/", 1)[-1]
