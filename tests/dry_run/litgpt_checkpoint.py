"""A small checkpoint of LitGPT's, with a tokenizer that takes each byte for one, and rows to fine-tune it on."""

import json
import os
from pathlib import Path

import torch
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import save_config
from tokenizers import Tokenizer, models, pre_tokenizers

folder = Path("checkpoint")
folder.mkdir()
config = Config.from_name("pythia-14m")
torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
save_config(config, folder)
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({letter: place for place, letter in enumerate(["<|end|>", *letters])}, []))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}))
row = {"instruction": "a" * 400, "input": "", "output": "b" * 400}
Path("rows.json").write_text(json.dumps([row] * 64))
os._exit(0)  # threads of what LitGPT imports may never end
