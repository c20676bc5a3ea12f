"""Writes what PyTorch's schedules of several stages make each rank do, in order: no device, no process group.

python tests/ground_truth/record_pipeline_actions.py > tests/golden/pipeline_actions.txt
"""

from types import SimpleNamespace

import torch
from torch.distributed.pipelining.schedules import get_schedule_class

# Ranks, stages of each and micro-batches.
INTERLEAVED = [
    (2, 2, 2), (2, 2, 4), (2, 2, 5), (2, 3, 4), (2, 4, 2), (3, 2, 6), (4, 2, 4), (4, 2, 8), (4, 2, 10), (4, 5, 8),
]  # fmt: skip
JOBS = {
    "Interleaved1F1B": INTERLEAVED,
    "LoopedBFS": [(2, 2, 1), (2, 2, 4), (2, 4, 3), (3, 3, 2), (4, 2, 5)],
    "InterleavedZeroBubble": INTERLEAVED,
    "ZBVZeroBubble": [(2, 2, 1), (2, 2, 4), (3, 2, 5), (3, 2, 7), (4, 2, 3), (4, 2, 12)],
    "DualPipeV": [(2, 2, 4), (2, 2, 7), (3, 2, 6), (3, 2, 8), (4, 2, 8), (4, 2, 13)],
}


def stages(ranks, chunks):
    count = ranks * chunks
    return [
        SimpleNamespace(
            stage_index=index, num_stages=count, group_rank=0, group_size=ranks, is_first=index == 0, is_last=index == count - 1,
            has_backward=True, submod=None, stage_index_to_group_rank={s: s % ranks for s in range(count)},
        )
        for index in range(0, count, ranks)
    ]  # fmt: skip


def main():
    print(f"# By tests/ground_truth/record_pipeline_actions.py, of PyTorch {torch.__version__.split('+')[0]}:")
    print("# schedule, ranks, stages of each, micro-batches, rank: its actions as PyTorch writes them.")
    for name, jobs in JOBS.items():
        for ranks, chunks, micro_batches in jobs:
            if jobs is INTERLEAVED and micro_batches % max(1, micro_batches // ranks) != 0:
                continue
            made = get_schedule_class(name)(stages(ranks, chunks), micro_batches, loss_fn=lambda output, target: output)
            for rank, actions in made.pipeline_order_with_comms.items():
                print(name, ranks, chunks, micro_batches, f"{rank}:", *actions)


if __name__ == "__main__":
    main()
