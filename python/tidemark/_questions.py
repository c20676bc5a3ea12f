"""The questions: each runs the program and gives its answer as a value."""

from __future__ import annotations

import json as _json
import os
import re
import tempfile
from contextlib import ExitStack
from itertools import product
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._answers import (
    Advice,
    Candidate,
    Capacity,
    Comparison,
    Conversion,
    Estimate,
    Explanation,
    Group,
    Limit,
    Plan,
    Prediction,
    Remedy,
    Replay,
    Report,
    Sweep,
    Validation,
)
from ._curves import limits as _limits
from ._job import Job, Scenario, full_key
from ._program import InputError, Progress, ask

Path = Union[str, "os.PathLike[str]"]


def _option(name: str, value: Any) -> List[str]:
    return [] if value is None else [name, str(value)]


def _prediction(text: str, json: Dict[str, Any]) -> Prediction:
    groups = [Group(**{key: g[key] for key in
                       ("ranks", "coordinates", "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes",
                        "peak_device_upper_bytes", "required_device_bytes", "required_device_upper_bytes",
                        "static_allocated_bytes", "at_peak")},
                    peak_allocated_range_bytes=(g["peak_allocated_range_bytes"][0], g["peak_allocated_range_bytes"][1]),
                    peak_reserved_range_bytes=(g["peak_reserved_range_bytes"][0], g["peak_reserved_range_bytes"][1]), json=g)
              for g in json["groups"]]
    most: Dict[str, Any] = {key: max((getattr(g, key) for g in groups), default=0)
                            for key in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes",
                                        "peak_device_upper_bytes", "required_device_bytes", "required_device_upper_bytes")}
    for key in ("peak_allocated_range_bytes", "peak_reserved_range_bytes"):
        most[key] = (max((getattr(g, key)[0] for g in groups), default=0), max((getattr(g, key)[1] for g in groups), default=0))
    low, high = json["step_time_low_s"], json["step_time_high_s"]
    return Prediction(**{key: json[key] for key in ("fits", "verdict", "outcome", "world_size", "capacity_bytes", "headroom_bytes",
                                                    "step_time_s", "tokens_per_s_per_device", "mfu", "hfu",
                                                    "step_causes_s", "assumptions", "not_modelled")},
                      step_time_range_s=None if low is None else (low, high), **most, groups=groups, text=text, json=json)


def predict(scenario: Optional[Scenario] = None, *, largest: Optional[str] = None, variables: Optional[Dict[str, str]] = None,
            ignore: Sequence[str] = (), progress: Optional[Progress] = None, **keys: Any) -> Prediction:
    """Does it fit, where is the peak on each rank, how long is a step? ``keys`` are keys of a scenario by their short names:
    ``predict(model="llama-3.1-8b", cluster="h100-sxm-80g", gpus=8, sequence=8192, tensor=2)``, or beside a scenario what
    differs in it: ``predict("job.toml", micro_batch=2)``. ``variables`` and ``ignore`` are for launch files. ``largest`` names a
    key: the answer is then of its largest value that fits, which ``json["largest"]`` tells."""
    with Job(scenario, keys, variables, ignore) as job:
        text, json, _ = job.ask(["predict", *job.arguments, *_option("--largest", largest and full_key(largest))], progress)
    return _prediction(text, json)


def explain(scenario: Optional[Scenario] = None, *, at: Optional[str] = None, rank: Optional[int] = None,
            show: Optional[str] = None, variables: Optional[Dict[str, str]] = None, ignore: Sequence[str] = (),
            progress: Optional[Progress] = None, **keys: Any) -> Explanation:
    """The tensors that are live at a moment: ``at`` the "peak", "allocated", "host", "end" or the number of an op. ``show`` asks
    for a stage of the simulation instead ("schedule", "model", ...), whose ``text`` is the answer."""
    with Job(scenario, keys, variables, ignore) as job:
        text, json, _ = job.ask(["explain", *job.arguments, *_option("--at", at), *_option("--rank", rank),
                                 *_option("--show", show)], progress, json_file=show in (None, "memory"))
    return Explanation(json.get("rank"), json.get("allocated_bytes"), json.get("tensors", []), text, json)


def estimate(scenario: Optional[Scenario] = None, *, variables: Optional[Dict[str, str]] = None, ignore: Sequence[str] = (),
             progress: Optional[Progress] = None, **keys: Any) -> Estimate:
    """Rules of thumb beside what is simulated, and why they differ."""
    with Job(scenario, keys, variables, ignore) as job:
        text, json, _ = job.ask(["estimate", *job.arguments], progress)
    return Estimate(json["fits"], json["verdict"], json["rules"], text, json)


def validate(scenario: Optional[Scenario] = None, *, ranks: Optional[int] = None, scale: Optional[int] = None,
             math: Optional[bool] = None, time_limit: Optional[int] = None, mpirun: Sequence[str] = ("mpirun", "--oversubscribe"),
             variables: Optional[Dict[str, str]] = None, ignore: Sequence[str] = (), **keys: Any) -> Validation:
    """Runs the job's programs for real, each rank a process on host memory, and compares. ``ranks``: the job's GPUs, where they
    are not told. ``scale=256`` holds one page in 256."""
    with Job(scenario, keys, variables, ignore) as job:
        if ranks is None:
            written, _, _ = job.ask(["predict", *job.arguments, "--print-scenario"], json_file=False)
            found = re.search(r"^gpus = (\d+)", written, re.M)
            ranks = int(found.group(1)) if found else 1
        text, json, yes = job.ask(["validate", *job.arguments, *_option("--scale", scale), *_option("--time-limit", time_limit),
                                   *([] if math is None else ["--math" if math else "--no-math"])],
                                  under=[*mpirun, "-np", str(ranks)])
    return Validation(yes, ranks, text, json)


def sweep(scenario: Optional[Scenario] = None, over: Optional[Mapping[str, Sequence[Any]]] = None, *,
          progress: Optional[Progress] = None, **keys: Any) -> Sweep:
    """A prediction for each combination of values: ``sweep("job.toml", {"tensor": [1, 2, 4], "micro_batch": [1, 2]})``. What cannot
    be is a row as well, with its reason."""
    over = over or {}
    all_of = [dict(zip(over, values)) for values in product(*over.values())]
    found: List[Union[Prediction, InputError]] = []
    for number, values in enumerate(all_of):
        try:
            found.append(predict(scenario, **{**keys, **values}))
        except InputError as error:
            found.append(error)
        if progress:
            progress(number + 1, len(all_of))
    return Sweep(list(over), all_of, found)


def plan(space: Optional[Scenario] = None, *, model: Optional[str] = None, cluster: Optional[str] = None,
         gpus: Optional[int] = None, sequence: Optional[int] = None, global_batch: Optional[int] = None,
         headroom: Optional[str] = None, top: int = 10, with_axes: Sequence[str] = (),
         progress: Optional[Progress] = None) -> Plan:
    """Which layouts fit and which is best: of a scenario with a table "space", or of all that make sense for a model,
    a cluster, a number of GPUs, a length and a batch."""
    with ExitStack() as stack:
        # Without a space, its options are the question.
        job = stack.enter_context(Job(space)) if space is not None else None
        asks = job.ask if job else ask
        text, json, yes = asks(["plan", *(job.arguments if job else []), *_option("--model", model),
                               *_option("--cluster", cluster), *_option("--gpus", gpus), *_option("--sequence", sequence),
                               *_option("--global-batch", global_batch), *_option("--headroom", headroom), "--top", str(top),
                               *[word for axis in with_axes for word in ("--with", axis)]], progress)

    def candidates(found: List[Dict[str, Any]]) -> List[Candidate]:
        return [Candidate(c["candidate"], c["layout"], c["tokens_per_s_per_device"], c["step_time_s"],
                          c["peak_device_upper_bytes"], c["peak_allocated_bytes"]) for c in found]

    return Plan(yes, candidates(json["best"]), candidates(json["front"]), json["candidates"], text, json)


def advise(scenario: Optional[Scenario] = None, *, changes: Optional[int] = None, free: Optional[str] = None,
           progress: Optional[Progress] = None, **keys: Any) -> Advice:
    """The smallest sets of at most ``changes`` changes that make it fit, or that free so much ("4 GiB"). Without a number, as
    few as are enough without changing what is trained, and three at most."""
    with Job(scenario, keys) as job:
        text, json, _ = job.ask(["advise", *job.arguments, *_option("--changes", changes), *_option("--free", free)], progress)
    remedies = [Remedy(r["changes"], r["changes_training"], r["step_time_s"], r["tokens_per_s_per_device"],
                       r["peak_device_upper_bytes"]) for r in json["remedies"]]
    return Advice(json["fits"], json["lacks_bytes"], remedies, text, json)


def capacity(study: Scenario, *, progress: Optional[Progress] = None) -> Capacity:
    """The largest value of an axis that fits: of a scenario with tables "space" and "capacity"."""
    with Job(study) as job:
        text, json, yes = job.ask(["capacity", *job.arguments], progress)
    found = [Limit(**row, json=limit) for row, limit in zip(_limits(json), json["limits"])]
    return Capacity(yes, json["largest"], json["by"], found, text, json)


def compare(scenario: Scenario, measured: Path, *, ranks: Optional[Sequence[int]] = None, device: Optional[int] = None,
            tolerance: Optional[float] = None, progress: Optional[Progress] = None, **keys: Any) -> Comparison:
    """A prediction beside a real run's memory snapshot, or the log of Megatron-LM or torchtitan."""
    with Job(scenario, keys) as job:
        text, json, yes = job.ask(["compare", job.arguments[0], os.fspath(measured), *job.arguments[1:],
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
                files += stack.enter_context(Job(each)).arguments
        text, json, yes = ask(["report", *files, "--output", os.fspath(output),
                               *_option("--figures", figures), *_option("--measured", measured)], progress)
    return Report(json["kind"], yes, os.fspath(output), text, json)


def convert(*files: Path, to: str = "scenario", launcher: str = "torchrun", model: Optional[str] = None,
            cluster: Optional[str] = None, gpus: Optional[int] = None, sequence: Optional[int] = None,
            micro_batch: Optional[int] = None, global_batch: Optional[int] = None,
            variables: Optional[Dict[str, str]] = None) -> Conversion:
    """Launch arguments and configurations to a scenario, or to another dialect (``to``)."""
    _, json, yes = ask(["convert", *[os.fspath(file) for file in files], "--to", to, "--launcher", launcher,
                        *_option("--model", model), *_option("--cluster", cluster), *_option("--gpus", gpus),
                        *_option("--sequence", sequence), *_option("--micro-batch", micro_batch),
                        *_option("--global-batch", global_batch),
                        *[word for name, value in (variables or {}).items() for word in ("--set", f"{name}={value}")]])
    return Conversion(json["text"], json["launch"], yes, json["not_expressed"], json)
