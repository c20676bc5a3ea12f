"""Columns of data sets that examples train on, by name. Of others a column of text is there."""

import os

LETTERS = 2304
SENTENCE = "What a model learns from is of no consequence to the memory that it takes. "
CHAT = {"messages": "chat"}
TEXT = {"text": "text"}
ALPACA = {"instruction": "sentence", "input": "sentence", "output": "text", "text": "text"}
PAIR = {"sentence1": "passage", "sentence2": "passage", "label": "2 classes", "idx": "index"}
ONE = {"sentence": "passage", "label": "2 classes", "idx": "index"}
PREFERENCE = {"chosen": "chat", "rejected": "chat", "score_chosen": "number", "score_rejected": "number"}
PICTURES = {"image": "picture"}
COLUMNS = {
    "Capybara": {"source": "sentence", **CHAT, "num_turns": "index"}, "ultrachat_200k": {"prompt": "sentence", **CHAT},
    "no_robots": {"prompt": "sentence", **CHAT, "category": "sentence"}, "OpenThoughts-114k": {"system": "sentence", "conversations": "chat"},
    "alpaca": ALPACA, "alpaca-cleaned": ALPACA, "alpaca_2k_test": ALPACA, "GPT4-LLM-Cleaned": ALPACA, "alpaca-gpt4": ALPACA,
    "databricks-dolly-15k": {"instruction": "sentence", "context": "text", "response": "text", "category": "sentence"},
    "openassistant-guanaco": TEXT, "timdettmers-openassistant-guanaco": TEXT, "wikitext": TEXT, "TinyStories": TEXT, "openwebtext": TEXT,
    "c4": {"text": "text", "timestamp": "sentence", "url": "sentence"}, "fineweb": TEXT, "fineweb-edu": TEXT, "SlimPajama-627B": TEXT,
    "imdb": {"text": "text", "label": "2 classes"}, "gsm8k": {"question": "text", "answer": "text"},
    "tldr": {"prompt": "text", "completion": "text"}, "ultrafeedback_binarized": PREFERENCE,
    "flowers-102-categories": PICTURES, "pokemon": PICTURES, "imagenet-1k": {"image": "picture", "label": "1000 classes"},
    "cifar10": {"img": "picture", "label": "10 classes"}, "mnist": {"image": "picture", "label": "10 classes"},
    "beans": {"image": "picture", "labels": "3 classes"},
}  # fmt: skip
GLUE = {"mrpc": PAIR, "rte": PAIR, "wnli": PAIR, "stsb": PAIR, "sst2": ONE, "cola": ONE}


def columns_of(path, name):
    end = os.path.basename(str(path).rstrip("/"))
    if end == "glue":
        return GLUE.get(name, PAIR)
    return COLUMNS.get(end, TEXT)


def value_of(kind, i):
    if kind == "text":
        return SENTENCE * (LETTERS // len(SENTENCE))
    if kind == "passage":
        return SENTENCE * 8
    if kind == "sentence":
        return SENTENCE
    if kind == "chat":
        return [{"role": "user", "content": SENTENCE}, {"role": "assistant", "content": value_of("text", i)}]
    if kind == "index":
        return i
    if kind == "number":
        return float(i % 7)
    if kind.endswith(" classes"):
        return i % int(kind.split()[0])
    from PIL import Image

    return Image.new("RGB", (512, 512))


def features_of(columns, datasets):
    text, whole = datasets.Value("string"), datasets.Value("int64")
    found = {}
    for column, kind in columns.items():
        if kind == "picture":
            found[column] = datasets.Image()
        elif kind == "chat":
            found[column] = [{"role": text, "content": text}]
        elif kind.endswith(" classes"):
            found[column] = datasets.ClassLabel(num_classes=int(kind.split()[0]))
        else:
            found[column] = {"index": whole, "number": datasets.Value("float64")}.get(kind, text)
    return datasets.Features(found)
