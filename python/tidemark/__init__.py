"""Will this training job fit, on every rank, at every moment of the step?

One function for each question of the command line. Scenarios are files, or dicts of the same shape, or files that
``tidemark convert`` takes (Megatron-LM scripts, torchtitan's TOML, ds_config.json, ...)::

    import tidemark

    prediction = tidemark.predict(model="llama-3.1-8b", cluster="h100-sxm-80g", gpus=8, sequence=8192, tensor=2)
    print(prediction.fits, prediction.required_device_bytes / 2**30, prediction.step_time_range_s)
    tidemark.predict("job.toml", micro_batch=2)
    tidemark.sweep("job.toml", {"tensor": [1, 2, 4], "micro_batch": [1, 2]}).to_pandas()

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
from ._program import InputError, InternalError, Problem
from ._questions import (
    advise,
    capacity,
    compare,
    convert,
    estimate,
    explain,
    plan,
    predict,
    replay,
    report,
    sweep,
    validate,
)

__version__ = "0.1.0"

__all__ = [
    "Advice", "Candidate", "Capacity", "Comparison", "Conversion", "Estimate", "Explanation", "Group", "InputError",
    "InternalError", "Limit", "Plan", "Prediction", "Problem", "Remedy", "Replay", "Report", "Sweep", "Validation", "advise",
    "capacity", "compare", "convert", "estimate", "explain", "plan", "predict", "replay", "report", "sweep", "validate",
]
