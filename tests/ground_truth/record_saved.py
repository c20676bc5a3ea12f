"""Trains plain models whose saved tensors lie on the host (torch.autograd.graph.save_on_cpu), for record_offload.py."""

import record_sharded

MADE_BY = record_sharded.MADE_BY
HOST_MADE_BY = {"pack_to_cpu": "saved_tensors", "unpack_from_cpu": "saved_tensors"}


def prepare(config, settings):
    import training

    model, optimizer, _, batches = training.prepare(config, settings)
    return model, optimizer, batches


def train_step(model, optimizer, batches, settings):
    """As in training.py; the model runs under the hooks, and its loss with it."""
    import torch
    import training

    optimizer.zero_grad(set_to_none=True)
    for _ in range(settings["micro_batches"]):
        batch = batches()
        with torch.autograd.graph.save_on_cpu(pin_memory=settings["offload"] == "pinned"), training.autocast(settings):
            loss = model(**batch).loss
        loss.backward()
    optimizer.step()
