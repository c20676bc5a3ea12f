"""Records PyTorch's own caching host allocator under random requests, without a GPU, and holds it to a few lines that
say what it does (Pool).

python tests/ground_truth/host_allocator.py

Writes tests/golden/host_allocator/NAME.txt, one file per setting of the allocator, line by line:

    = SEED                          the allocator is empty
    a ID BYTES BLOCK SIZE HELD      a pinned tensor of BYTES: it gets the BLOCK-th block that was ever made, of SIZE;
                                    the allocator then holds HELD bytes
    u ID STREAM                     a copy to the device on STREAM reads it
    d STREAM                        STREAM has done all of its work
    f ID HELD                       the tensor dies
    e HELD                          empty_cache
"""

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path


HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "host_allocator"
SETTINGS = {
    "default": "",
    "rounded_to_1_mib": "pinned_max_round_threshold_mb:1",
    "cached_to_4_mib": "pinned_max_cached_size_mb:4",
}
SEEDS = range(6)
STEPS = 150
STREAMS = 3
MIB = 1 << 20


class Pool:
    """What the allocator does, as far as recorded: blocks of powers of two, the last freed is the first used again; one
    that copies have used is free once they are over, which is looked at when memory is asked for, oldest first, up to
    the first copy that is not over."""

    def __init__(self, settings):
        limits = dict(setting.split(":") for setting in settings.split(",") if setting)
        self.rounded = int(limits.get("pinned_max_round_threshold_mb", 1 << 40)) * MIB
        self.cached = int(limits.get("pinned_max_cached_size_mb", 1 << 40)) * MIB
        self.count = self.held = 0
        self.free = {}  # by the power of two that is not less
        self.waiting = []  # (block, stream, number of the stream's record), oldest first
        self.waits_of, self.records, self.done = {}, {}, {}

    def allocate(self, bytes):
        self.process()
        size = 1 << (bytes - 1).bit_length() if bytes <= min(self.rounded, self.cached) else bytes
        blocks = self.free.setdefault((size - 1).bit_length(), [])
        for at in reversed(range(len(blocks))):
            if blocks[at][1] >= size:
                return blocks.pop(at)
        self.count += 1
        self.held += size
        return self.count, size

    def let_go(self, block, streams):
        for stream in streams:
            self.records[stream] = self.records.get(stream, 0) + 1
            self.waiting.append((block, stream, self.records[stream]))
        self.waits_of[block] = len(streams)
        if not streams:
            self.cache(block)

    def process(self):
        while self.waiting and self.waiting[0][2] <= self.done.get(self.waiting[0][1], 0):
            block = self.waiting.pop(0)[0]
            self.waits_of[block] -= 1
            if not self.waits_of[block]:
                self.cache(block)

    def cache(self, block):
        if block[1] > self.cached:
            self.held -= block[1]
        else:
            self.free.setdefault((block[1] - 1).bit_length(), []).append(block)

    def finish(self, stream):
        self.done[stream] = self.records.get(stream, 0)

    def empty(self):
        self.process()
        self.held -= sum(size for blocks in self.free.values() for _, size in blocks)
        self.free.clear()


def drawn_bytes(random):
    kind = random.random()
    if kind < 0.4:
        return random.choice([3000, 4096, 4097, 70_000, 1 << 20, (1 << 20) + 1, 3 << 20])  # sizes that come again
    if kind < 0.5:
        return (1 << random.randrange(1, 24)) + random.choice([-1, 0, 1])
    return int(2 ** random.uniform(0, 23))


def run(settings):
    import torch

    torch.cuda.init()
    device = torch.zeros(1, dtype=torch.uint8, device="cuda")
    library = ctypes.CDLL(None)
    library.host_memory_done.argtypes = [ctypes.c_size_t]
    library.host_memory_hold_events()
    streams = [torch.cuda.Stream() for _ in range(STREAMS)]
    lines = []
    held = lambda: torch.cuda.host_memory_stats()["allocated_bytes.current"]  # noqa: E731
    for seed in SEEDS:
        draw = random.Random(seed)
        for stream in streams:
            library.host_memory_done(stream.cuda_stream)
        torch._C._host_emptyCache()
        assert held() == 0
        pool, blocks, live = Pool(settings), {}, {}
        lines.append(f"= {seed}")
        for id in range(STEPS):
            bytes = drawn_bytes(draw)
            tensor = torch.empty(bytes, dtype=torch.uint8, pin_memory=True)
            block = pool.allocate(bytes)
            if block not in blocks.values():
                blocks[tensor.data_ptr()] = block
            lines.append(f"a {id} {bytes} {block[0]} {block[1]} {held()}")
            assert (blocks[tensor.data_ptr()], pool.held) == (block, held()), lines[-1]
            live[id] = (tensor, block, set())
            del tensor
            for used in draw.sample(sorted(live), min(len(live), draw.randrange(3))):
                stream = draw.randrange(STREAMS)
                with torch.cuda.stream(streams[stream]):
                    device.copy_(live[used][0][:1], non_blocking=True)
                live[used][2].add(stream)
                lines.append(f"u {used} {stream}")
            if draw.random() < 0.4:
                stream = draw.randrange(STREAMS)
                library.host_memory_done(streams[stream].cuda_stream)
                pool.finish(stream)
                lines.append(f"d {stream}")
            for dead in draw.sample(sorted(live), min(len(live), draw.choice([0, 1, 1, 2]))):
                pool.let_go(live[dead][1], live[dead][2])
                del live[dead]
                lines.append(f"f {dead} {held()}")
                assert pool.held == held(), lines[-1]
            if draw.random() < 0.02:
                torch._C._host_emptyCache()
                pool.empty()
                lines.append(f"e {held()}")
                assert pool.held == held(), lines[-1]
        live.clear()
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if arguments.name:
        lines = run(SETTINGS[arguments.name])
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"{arguments.name}.txt").write_text("\n".join(lines) + "\n")
        os._exit(0)
    import record_offload

    with tempfile.TemporaryDirectory() as folder:
        for name, said in SETTINGS.items():
            environment = record_offload.under_host_memory(folder, {"capability": "80"}, False, None)
            if said:
                environment["PYTORCH_ALLOC_CONF"] = said
            command = [sys.executable, str(HERE / "host_allocator.py"), name, "--out", str(arguments.out)]
            subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
