"""What against.toml says, as a user of transformers writes it."""

import json

import torch
from transformers import AutoConfig, LlamaForCausalLM

with open("against.json") as file:
    config = AutoConfig.for_model(**{k: v for k, v in json.load(file).items() if k != "architectures"})
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
torch.set_default_dtype(torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
ids = torch.randint(0, config.vocab_size, (2, 1024), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()


for _ in range(100):
    step()
