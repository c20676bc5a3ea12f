"""Writes what PyTorch's ScheduleInterleaved1F1B makes each rank do, in order: no device, no process group.

python tests/ground_truth/record_pipeline_actions.py > tests/golden/pipeline_actions.txt
"""

from types import SimpleNamespace

import torch
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

JOBS = [(2, 2, 2), (2, 2, 4), (2, 2, 5), (2, 3, 4), (2, 4, 2), (3, 2, 6), (4, 2, 4), (4, 2, 8), (4, 2, 10), (4, 5, 8)]


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
    print("# ranks, stages of each, micro-batches, rank: its actions as PyTorch writes them.")
    for ranks, chunks, micro_batches in JOBS:
        if micro_batches % max(1, micro_batches // ranks) != 0:
            continue
        schedule = ScheduleInterleaved1F1B(stages(ranks, chunks), micro_batches, loss_fn=lambda output, target: output)
        for rank, actions in schedule.pipeline_order_with_comms.items():
            print(ranks, chunks, micro_batches, f"{rank}:", *actions)


if __name__ == "__main__":
    main()
