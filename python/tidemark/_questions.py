"""The questions: each runs the program and gives its answer as a value."""

from __future__ import annotations

import json as _json
import os
import tempfile
from contextlib import ExitStack
from typing import Any, Dict, List, Optional, Sequence, Union

from ._answers import (
    Advice,
    Candidate,
    Capacity,
    Comparison,
    Conversion,
    Group,
    Limit,
    Plan,
    Prediction,
    Remedy,
    Replay,
    Report,
)
from ._curves import limits as _limits
from ._program import Asked, Progress, ask

Scenario = Union[str, "os.PathLike[str]", Dict[str, Any]]
Path = Union[str, "os.PathLike[str]"]


def _option(name: str, value: Any) -> List[str]:
    return [] if value is None else [name, str(value)]


def _launch(model: Optional[str], cluster: Optional[str], gpus: Optional[int], sequence: Optional[int],
            micro_batch: Optional[int], global_batch: Optional[int], variables: Optional[Dict[str, str]]) -> List[str]:
    arguments = [*_option("--model", model), *_option("--cluster", cluster), *_option("--gpus", gpus),
                 *_option("--sequence", sequence), *_option("--micro-batch", micro_batch),
                 *_option("--global-batch", global_batch)]
    for name, value in (variables or {}).items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


def predict(scenario: Scenario, *, model: Optional[str] = None, cluster: Optional[str] = None, gpus: Optional[int] = None,
            sequence: Optional[int] = None, micro_batch: Optional[int] = None, global_batch: Optional[int] = None,
            variables: Optional[Dict[str, str]] = None, progress: Optional[Progress] = None) -> Prediction:
    """Does it fit, where is the peak on each rank, how long is a step? The options go beside launch files of frameworks."""
    with Asked(scenario) as path:
        text, json, _ = ask(["predict", path,
                             *_launch(model, cluster, gpus, sequence, micro_batch, global_batch, variables)], progress)
    groups = [Group(**{key: g[key] for key in
                       ("ranks", "coordinates", "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes",
                        "peak_device_upper_bytes", "static_allocated_bytes", "at_peak")}, json=g)
              for g in json["groups"]]
    most: Dict[str, Any] = {key: max((getattr(g, key) for g in groups), default=0)
                            for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes",
                                        "peak_device_upper_bytes")}
    return Prediction(**{key: json[key] for key in ("fits", "verdict", "outcome", "world_size", "capacity_bytes",
                                                    "step_time_s", "tokens_per_s_per_device", "mfu", "hfu",
                                                    "step_causes_s", "assumptions", "not_modelled")},
                      **most, groups=groups, text=text, json=json)


def plan(space: Optional[Scenario] = None, *, model: Optional[str] = None, cluster: Optional[str] = None,
         gpus: Optional[int] = None, sequence: Optional[int] = None, global_batch: Optional[int] = None,
         headroom: Optional[str] = None, top: int = 10, with_axes: Sequence[str] = (),
         progress: Optional[Progress] = None) -> Plan:
    """Which layouts fit and which is best: of a scenario with a table "space", or of all that make sense for a model,
    a cluster, a number of GPUs, a length and a batch."""
    with Asked(space if space is not None else "") as path:
        text, json, yes = ask(["plan", *([path] if space is not None else []), *_option("--model", model),
                               *_option("--cluster", cluster), *_option("--gpus", gpus), *_option("--sequence", sequence),
                               *_option("--global-batch", global_batch), *_option("--headroom", headroom), "--top", str(top),
                               *[word for axis in with_axes for word in ("--with", axis)]], progress)

    def candidates(found: List[Dict[str, Any]]) -> List[Candidate]:
        return [Candidate(c["candidate"], c["layout"], c["tokens_per_s_per_device"], c["step_time_s"],
                          c["peak_device_upper_bytes"], c["peak_allocated_bytes"]) for c in found]

    return Plan(yes, candidates(json["best"]), candidates(json["front"]), json["candidates"], text, json)


def advise(scenario: Scenario, *, changes: int = 3, free: Optional[str] = None,
           progress: Optional[Progress] = None) -> Advice:
    """The smallest sets of at most ``changes`` changes that make it fit, or that free so much ("4 GiB")."""
    with Asked(scenario) as path:
        text, json, _ = ask(["advise", path, "--changes", str(changes), *_option("--free", free)], progress)
    remedies = [Remedy(r["changes"], r["changes_training"], r["step_time_s"], r["tokens_per_s_per_device"],
                       r["peak_device_upper_bytes"]) for r in json["remedies"]]
    return Advice(json["fits"], json["lacks_bytes"], remedies, text, json)


def capacity(study: Scenario, *, progress: Optional[Progress] = None) -> Capacity:
    """The largest value of an axis that fits: of a scenario with tables "space" and "capacity"."""
    with Asked(study) as path:
        text, json, yes = ask(["capacity", path], progress)
    found = [Limit(**row, json=limit) for row, limit in zip(_limits(json), json["limits"])]
    return Capacity(yes, json["largest"], json["by"], found, text, json)


def compare(scenario: Scenario, measured: Path, *, ranks: Optional[Sequence[int]] = None, device: Optional[int] = None,
            tolerance: Optional[float] = None, progress: Optional[Progress] = None) -> Comparison:
    """A prediction beside a real run's memory snapshot, or the log of Megatron-LM or torchtitan."""
    with Asked(scenario) as path:
        text, json, yes = ask(["compare", path, os.fspath(measured),
                               *(["--rank", ",".join(map(str, ranks))] if ranks else []), *_option("--device", device),
                               *_option("--tolerance", tolerance)], progress)
    return Comparison(yes, text, json)


def replay(snapshot: Path, *, alloc_conf: Optional[str] = None, capacity: Optional[str] = None,
           memory_fraction: Optional[float] = None, device: Optional[int] = None) -> Replay:
    """A memory snapshot through the emulated allocator, and what the same requests would reserve otherwise."""
    text, json, yes = ask(["replay", os.fspath(snapshot), *_option("--alloc-conf", alloc_conf),
                           *_option("--capacity", capacity), *_option("--memory-fraction", memory_fraction),
                           *_option("--device", device)])
    return Replay(yes, text, json)


def report(*of: Union[Scenario, Plan, Capacity, Comparison], output: Path = "report.html", figures: Optional[Path] = None,
           measured: Optional[Path] = None, progress: Optional[Progress] = None) -> Report:
    """One HTML file that needs nothing else: of a scenario, of several beside each other, of an answer of ``plan``, ``capacity``
    or ``compare``. ``figures``: a folder for each figure as SVG, PNG and CSV, each table as CSV and Markdown."""
    with ExitStack() as stack:
        files = []
        for each in of:
            if isinstance(each, (Plan, Capacity, Comparison)):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-"))
                files.append(os.path.join(folder, "answer.json"))
                with open(files[-1], "w", encoding="utf-8") as file:
                    _json.dump(each.json, file)
            else:
                files.append(stack.enter_context(Asked(each)))
        text, json, yes = ask(["report", *files, "--output", os.fspath(output),
                               *_option("--figures", figures), *_option("--measured", measured)], progress)
    return Report(json["kind"], yes, os.fspath(output), text, json)


def convert(*files: Path, to: str = "scenario", launcher: str = "torchrun", model: Optional[str] = None,
            cluster: Optional[str] = None, gpus: Optional[int] = None, sequence: Optional[int] = None,
            micro_batch: Optional[int] = None, global_batch: Optional[int] = None,
            variables: Optional[Dict[str, str]] = None) -> Conversion:
    """Launch arguments and configurations to a scenario, or to another dialect (``to``)."""
    _, json, yes = ask(["convert", *[os.fspath(file) for file in files], "--to", to, "--launcher", launcher,
                        *_launch(model, cluster, gpus, sequence, micro_batch, global_batch, variables)])
    return Conversion(json["text"], json["launch"], yes, json["not_expressed"], json)
