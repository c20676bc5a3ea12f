"""What a training asks for and is not on this machine: checkpoints, tokenizers, data sets, their files. Nothing is fetched
over a network. Each is stood in for where its shape is known, and that is said."""

import functools
import inspect
import os

from . import absent_checkpoints, absent_data, after_import


def prepare(run):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("WANDB_MODE", "disabled")
    if os.environ["HF_HUB_OFFLINE"].upper() not in ("1", "ON", "YES", "TRUE"):
        return  # the user wants the real ones
    hub = absent_checkpoints.Hub(run)
    for module, names in (
        ("huggingface_hub.file_download", ("hf_hub_download", "try_to_load_from_cache")),
        ("huggingface_hub._snapshot_download", ("snapshot_download",)),
    ):
        after_import(module, lambda module, names=names: [redirect(module, name, hub) for name in names])
    after_import("torchtitan.components.tokenizer", lambda module: local_tokenizer(module, hub))
    absent_data.prepare(run)


def redirect(module, name, hub):
    """A function that looks for files of a repository looks into the one that stands in."""
    function = getattr(module, name, None)
    if function is None:
        return
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            asked = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)
        if asked.get("repo_type") not in (None, "model") or asked.get("local_dir") or "repo_id" not in asked:
            return function(*args, **kwargs)
        file = asked.get("filename")
        if file and asked.get("subfolder"):
            file = f"{asked['subfolder']}/{file}"
        found = hub.cache_of(str(asked["repo_id"]), asked.get("cache_dir"), file)
        if found is None:
            return function(*args, **kwargs)
        asked.update(repo_id=found[1], cache_dir=found[0], revision=None)
        asked.update(asked.pop("kwargs", {}))
        return function(**asked)

    setattr(module, name, call)


def local_tokenizer(module, hub):
    """torchtitan's, of a folder that its script for downloads would have made."""
    kind = getattr(module, "HuggingFaceTokenizer", None)
    if kind is None:
        return
    begin = kind.__init__

    @functools.wraps(begin)
    def __init__(self, tokenizer_path, *args, **kwargs):
        if not os.path.exists(tokenizer_path):
            found = hub.folder_of(tokenizer_path) or hub.bytes_of(tokenizer_path)
            tokenizer_path = found or tokenizer_path
        begin(self, tokenizer_path, *args, **kwargs)

    kind.__init__ = __init__
