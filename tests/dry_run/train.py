"""A small training: plain, or with the word ddp under DistributedDataParallel; waves, compile."""

import os
import sys

import torch

batch = next((int(word[6:]) for word in sys.argv if word.startswith("batch=")), 256)
layers = [torch.nn.Linear(1024, 1024, bias=False) for _ in range(4)]
if "waves" in sys.argv:

    class Waves(torch.nn.Module):
        def forward(self, x):
            return x.sin().sin().sin().sin()

    layers = [part for layer in layers for part in (layer, Waves())]
model = torch.nn.Sequential(*layers).cuda()
if "ddp" in sys.argv:
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    model = model.to(f"cuda:{local}")
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local])
if "compile" in sys.argv:
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(1000):
    loss = model(torch.zeros(batch, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
    del loss
