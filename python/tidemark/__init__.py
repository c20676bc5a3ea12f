"""Will this training job fit, on every rank, at every moment of the step?

One function for each question of the command line. Scenarios are files, or dicts of the same shape, or files that
``tidemark convert`` takes (Megatron-LM scripts, torchtitan's TOML, ds_config.json, ...)::

    import tidemark

    job = {"model": "models/llama-3.1-8b.json", "cluster": "clusters/h100-sxm-80g.toml", "gpus": 8,
           "layout": {"tensor": 2, "sequence_parallel": True, "sharding": "zero1"},
           "train": {"sequence_length": 8192, "micro_batch": 1, "global_batch": 32,
                     "hidden_dropout": 0.0, "attention_dropout": 0.0}}
    prediction = tidemark.predict(job)
    print(prediction.fits, prediction.peak_device_bytes / 2**30)

Answers are dataclasses: ``json`` holds all that the program's ``--json`` writes, ``text`` the one screen that it prints,
and ``to_pandas()`` a table. Bytes are whole numbers, times seconds. What is wrong with the input is an ``InputError``
with every problem that was found; Ctrl-C ends the program too. ``progress`` is called with how much is done, of how much.
"""

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
from ._program import InputError, InternalError, Problem
from ._questions import advise, capacity, compare, convert, plan, predict, replay, report

__all__ = [
    "Advice", "Candidate", "Capacity", "Comparison", "Conversion", "Group", "InputError", "InternalError", "Limit", "Plan",
    "Prediction", "Problem", "Remedy", "Replay", "Report", "advise", "capacity", "compare", "convert", "plan", "predict",
    "replay", "report",
]
