"""A checkpoint that is not here, as a repository in a cache of this run's own: config.json as Tidemark or transformers knows
it, a tokenizer of as many tokens, and weights of zeros in a sparse file, so that the script's own code loads them."""

import json
import os
import struct

from . import known_models

REVISION = "0" * 40
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
SAVED_IN_16_BITS = ("llama", "mistral", "mixtral", "qwen", "gemma", "phi", "olmo", "deepseek", "glm", "kimi", "gpt_oss",
                    "nemotron", "granite", "smollm")  # fmt: skip


class Hub:
    def __init__(self, run):
        self.run = run
        self.folder = os.path.join(run.folder, "hub")
        self.made = {}  # repository -> Checkpoint, or None where nothing stands in for it

    def cache_of(self, name, cache, file):
        """(cache, repository) that stand in for one that is not on this machine."""
        if name not in self.made:
            self.made[name] = self.make(name, cache)
        its = self.made[name]
        if its is None:
            return None
        its.has(file)
        return self.folder, its.repository

    def folder_of(self, name):
        """The same for a folder that is not here, but for its weights."""
        found = self.cache_of(os.path.basename(str(name).rstrip("/")), None, "tokenizer.json")
        return self.made[os.path.basename(str(name).rstrip("/"))].folder if found else None

    def bytes_of(self, name):
        """A folder with a tokenizer alone, of a model that nobody here knows."""
        from . import stand_in_tokenizer

        folder = os.path.join(self.folder, "tokenizers", os.path.basename(str(name).rstrip("/")))
        os.makedirs(folder, exist_ok=True)
        tokens = stand_in_tokenizer.write(folder, {"vocab_size": 1})
        if not tokens:
            return None
        self.run.stand_in(f"the tokenizer of {name}: one of {tokens} tokens that takes each byte for one")
        return folder

    def make(self, name, cache):
        there = snapshot_of(name, cache)
        names = os.listdir(there) if there else []
        if any(file.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf")) for file in names):
            return None
        config = None
        if "config.json" in names:
            with open(os.path.join(there, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
        config = config or known_models.config_of(name)
        if config is None:
            return None
        return Checkpoint(self.run, self.folder, name, config, there)


def snapshot_of(name, cache):
    """The folder of a repository in the user's own cache."""
    from huggingface_hub import constants

    its = os.path.join(str(cache or constants.HF_HUB_CACHE), "models--" + name.replace("/", "--"))
    try:
        with open(os.path.join(its, "refs", "main"), encoding="ascii") as file:
            its = os.path.join(its, "snapshots", file.read().strip())
    except OSError:
        return None
    return its if os.path.isdir(its) else None


class Checkpoint:
    def __init__(self, run, cache, name, config, there):
        self.run, self.name, self.config = run, name, config
        self.repository = name if name.count("/") <= 1 and not name.startswith((".", "/", "~")) else os.path.basename(name.rstrip("/"))
        root = os.path.join(cache, "models--" + self.repository.replace("/", "--"))
        self.folder = os.path.join(root, "snapshots", REVISION)
        os.makedirs(self.folder, exist_ok=True)
        os.makedirs(os.path.join(root, "refs"), exist_ok=True)
        with open(os.path.join(root, "refs", "main"), "w", encoding="ascii") as file:
            file.write(REVISION)
        for file in os.listdir(there) if there else ():
            os.symlink(os.path.realpath(os.path.join(there, file)), os.path.join(self.folder, file))
        if not self.is_there("config.json"):
            self.config = config = completed(config)
            self.write("config.json", config)
            run.stand_in(f"the configuration of {name}: {known_models.source_of(name)}")
        self.tokenizer_is_made = self.is_there("tokenizer.json") or self.is_there("tokenizer.model") or self.is_there("vocab.json")
        self.weights_are_made = False

    def is_there(self, file):
        return os.path.exists(os.path.join(self.folder, file))

    def write(self, file, value):
        with open(os.path.join(self.folder, file), "w", encoding="utf-8") as out:
            json.dump(value, out)

    def has(self, file):
        """Makes what a file is of; none: all files."""
        if not self.tokenizer_is_made and (file is None or "token" in file or "vocab" in file or "chat_template" in file):
            self.tokenizer_is_made = True
            from . import stand_in_tokenizer

            tokens = stand_in_tokenizer.write(self.folder, self.config)
            if tokens:
                self.run.stand_in(f"the tokenizer of {self.name}: one of {tokens} tokens that takes each byte for one")
        if not self.weights_are_made and (file is None or os.path.basename(file) in WEIGHTS):
            self.weights_are_made = True
            said = write_weights(self.folder, self.config)
            if said:
                self.run.stand_in(f"the weights of {self.name}: zeros, in {said}")


def completed(config):
    """With what the files of real checkpoints say besides: the class that was saved, and in which words."""
    try:
        import torch
        import transformers

        kind = model_class(transformers, transformers.AutoConfig.for_model(**config)).__name__
        return {"architectures": [kind], "dtype": str(stored_as(config, torch)).removeprefix("torch."), **config}
    except Exception:  # an environment without them, or that does not know this kind of model
        return config


def write_weights(folder, config):
    """Names and shapes are those that the model itself would save."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    its = transformers.AutoConfig.from_pretrained(folder)
    dtype = stored_as(config, torch)
    with torch.device("meta"):
        model = model_class(transformers, its)(its)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    seen = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen or not tensor.is_floating_point():
            continue
        seen.add(id(tensor))
        size = tensor.numel() * torch.empty((), dtype=dtype).element_size()
        header[name] = {"dtype": names[dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)  # a hole: it takes no room
    return str(dtype).removeprefix("torch.")


def stored_as(config, torch):
    told = config.get("torch_dtype") or config.get("dtype")
    if told in ("float32", "float16", "bfloat16"):
        return getattr(torch, told)
    return torch.bfloat16 if str(config.get("model_type", "")).startswith(SAVED_IN_16_BITS) else torch.float32


def model_class(transformers, config):
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    for kind in ("CausalLM", "MaskedLM", "Seq2SeqLM", "SpeechSeq2Seq", "ImageClassification"):
        mapping = getattr(getattr(transformers, f"AutoModelFor{kind}", None), "_model_mapping", {})
        if type(config) in mapping:
            return mapping[type(config)]
    return transformers.AutoModel._model_mapping[type(config)]
