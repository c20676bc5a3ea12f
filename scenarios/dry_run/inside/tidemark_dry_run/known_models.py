"""The config.json of checkpoints by name: of Tidemark's own table, or where a name is what transformers' documentation says
that a configuration's defaults are."""

import glob
import json
import os
import re

DATA = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3))
# Checkpoints that differ from one of those by their tokens alone.
OTHER_VOCABULARIES = {
    "bert-base-cased": ("bert", 28996), "bert-base-multilingual-cased": ("bert", 119547), "bert-base-chinese": ("bert", 21128),
    "distilbert-base-cased": ("distilbert", 28996),
}  # fmt: skip

_index = {}


def config_of(name):
    named = index()
    whole = name.lower().rstrip("/")
    its = named.get(whole) or named.get(os.path.basename(whole))
    if its is not None:
        return dict(its)
    kind, vocabulary = OTHER_VOCABULARIES.get(os.path.basename(whole), (None, None))
    if kind:
        return {"model_type": kind, "vocab_size": vocabulary}
    kind = documented(name)
    return {"model_type": kind} if kind else None


def source_of(name):
    whole = name.lower().rstrip("/")
    named = index()
    return "Tidemark's" if whole in named or os.path.basename(whole) in named else "transformers' defaults for it"


def index():
    """By whole names, and by what is behind their slash where all that end in it have one shape."""
    if _index:
        return _index
    try:
        with open(os.path.join(DATA, "model_names.json"), encoding="utf-8") as file:
            shapes = json.load(file)["shapes"]
    except (OSError, ValueError, KeyError):
        return _index
    ends = {}
    for path in glob.glob(os.path.join(DATA, "models", "*.json")):
        shapes.setdefault(os.path.basename(path)[: -len(".json")], {})
    for shape, entry in shapes.items():
        config = entry.get("config") or file_of(shape)
        if config is None:
            continue
        for name in [shape, *(name for names in entry.get("names", {}).values() for name in names)]:
            _index[name.lower()] = config
            ends.setdefault(os.path.basename(name.lower()), {})[shape] = config
    for end, configs in ends.items():
        if len(configs) == 1:
            _index.setdefault(end, next(iter(configs.values())))
    return _index


def file_of(shape):
    try:
        with open(os.path.join(DATA, "models", f"{shape}.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def documented(name):
    """The kind of model whose configuration's defaults are this checkpoint's, as its source says."""
    try:
        import transformers
    except ImportError:
        return None
    if not name.strip() or name.startswith((".", "/")):
        return None
    said = re.compile(r'(?:checkpoint\s*=\s*"|\[)(?:[\w.-]+/)?' + re.escape(name.split("/")[-1]) + r'["\]]')
    for path in sorted(glob.glob(os.path.join(os.path.dirname(transformers.__file__), "models", "*", "configuration_*.py"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if said.search(text):
            kind = re.search(r'^    model_type\s*(?::[^=]*)?=\s*"([^"]+)"', text, re.MULTILINE)
            return kind.group(1) if kind else None
    return None
