"""Follows the host memory of a run under host_memory.c: every tensor on the host, pinned or pageable, who asked for it,
when it dies; every copy between host and device; every place where the host waits for the device."""

import ctypes
import linecache
import sys
from collections import Counter

MADE = {0: "pageable", 2: "pinned", 4: "registered"}
GONE = {1, 3, 5}
TO_DEVICE, TO_HOST, WAIT = 6, 7, 8
NEAR = 12  # calls, whose lines of code are looked at


def stack():
    """The functions that run, innermost first, each (name, file, line). None of them is of this file."""
    frame, found = sys._getframe(1).f_back, []
    while frame is not None:
        found.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


class Sums:
    """Bytes on the host: now, and the most there were."""

    def __init__(self):
        self.now = Counter()
        self.reset()

    def reset(self):
        self.most = Counter(self.now)
        self.most["both"] = self.both()

    def both(self):
        return self.now["pinned"] + self.now["registered"] + self.now["pageable"]

    def add(self, kind, bytes):
        """Whether there was never more."""
        self.now[kind] += bytes
        self.most[kind] = max(self.most[kind], self.now[kind])
        more = self.both() > self.most["both"]
        self.most["both"] = max(self.most["both"], self.both())
        return more


def told(sums):
    kinds = ("pinned", "registered", "pageable", "both")
    return {kind: sums[kind] for kind in kinds if kind != "registered" or sums[kind]}


class HostLog:
    def __init__(self, makers, lines, names):
        """`makers`: by the function that asks for a tensor what it is; the first that is found, of the list, counts.
        `lines`: the same by a part of a line of code that asks, where one function makes several things.
        `names`: what streams are called."""
        self.makers, self.lines, self.names = makers, lines, names
        self.live = {}  # address -> (id, kind, bytes, maker)
        self.sums = Sums()
        self.count = 0
        self.start()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int, *[ctypes.c_size_t] * 3, ctypes.c_int)
        self.callback = kind(self.hear)
        ctypes.CDLL(None).host_memory_tell(self.callback)

    def start(self):
        """A new part of the run begins."""
        self.sums.reset()
        self.live_at_most, self.most_at = self.by_maker(), "before"
        self.events, self.copies, self.waits = [], Counter(), Counter()

    def by_maker(self):
        sums = Counter()
        for _, kind, bytes, maker in self.live.values():
            sums[kind, maker] += bytes
        return sums

    def maker(self, frames):
        asking = [linecache.getline(file, line) for _, file, line in frames[:NEAR]] if self.lines else []
        for text, made in self.lines.items():
            if any(text in line for line in asking):
                return made
        names = {name for name, _, _ in frames}
        for function, made in self.makers.items():
            if function in names:
                return made
        if any(name == "step" and "optim" in file for name, file, _ in frames):
            return "optimizer"
        return "other" if frames else "autograd"

    def hear(self, what, address, bytes, stream, pinned):
        if what in GONE:
            if address in self.live:
                id, kind, bytes, _ = self.live.pop(address)
                self.sums.add(kind, -bytes)
                self.events.append(f"- {id} {bytes} {kind}")
            return
        frames = stack()
        maker, place = self.maker(frames), frames[0][0] if frames else "-"
        if what in MADE:
            kind = MADE[what]
            self.count += 1
            self.live[address] = (self.count, kind, bytes, maker)
            if self.sums.add(kind, bytes):
                self.live_at_most, self.most_at = self.by_maker(), f"{maker} @ {place}"
            self.events.append(f"+ {self.count} {bytes} {kind} {maker} @ {place}")
        elif what in (TO_DEVICE, TO_HOST):
            to = "device" if what == TO_DEVICE else "host"
            memory, stream = "pinned" if pinned else "pageable", stream or 0
            self.copies[to, memory, stream, maker] += 1
            self.copies["bytes", to, memory, stream, maker] += bytes
            self.events.append(f"{'>' if to == 'device' else '<'} {bytes} {memory} on {stream} {maker} @ {place}")
        elif what == WAIT:
            self.waits[maker, place] += 1
            self.events.append(f"w {maker} @ {place}")

    def part(self):
        """What this part of the run took."""
        return {"peak": told(self.sums.most), "after": told(Counter(self.sums.now, both=self.sums.both()))}

    def at_peak(self):
        return {"reached_by": self.most_at, **self.made_of(self.live_at_most)}

    def made_of(self, sums):
        out = {}
        for (kind, maker), bytes in sorted(sums.items()):
            out.setdefault(kind, {})[maker] = bytes
        return out

    def crossings(self):
        names = {0: "compute", **self.names()}
        out = []
        for key in sorted((key for key in self.copies if key[0] != "bytes"), key=str):
            to, memory, stream, maker = key
            where = names.get(stream, "other")
            line = {"to": to, "memory": memory, "stream": where, "by": maker, "count": self.copies[key]}
            out.append({**line, "bytes": self.copies["bytes", *key]})
        return out

    def waited(self):
        return [{"by": maker, "in": place, "count": n} for (maker, place), n in sorted(self.waits.items())]

    def text(self, events):
        """Events with streams by their names."""
        names = {0: "compute", **self.names()}
        lines = []
        for line in events:
            head, on, rest = line.partition(" on ")
            if on:
                stream, _, rest = rest.partition(" ")
                line = f"{head} on {names.get(int(stream), 'other')} {rest}"
            lines.append(line)
        return lines
