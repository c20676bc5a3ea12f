"""torch.multiprocessing.spawn: of the processes that it would start, the one of this rank runs here."""

import sys


def prepare(torch, run):
    def start(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn", **more):
        place = run.rank % nprocs
        run.stand_in(f"torch.multiprocessing.spawn's processes: number {place} of {nprocs} alone, in the script's own")
        fn(place, *args)

    for module in (torch.multiprocessing, sys.modules.get("torch.multiprocessing.spawn")):
        for name in ("spawn", "start_processes"):
            if hasattr(module, name):
                setattr(module, name, start)
