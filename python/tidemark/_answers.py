"""Answers as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from ._curves import candidates, limits, memory_over_step

if TYPE_CHECKING:
    from pandas import DataFrame


def _frame(rows: List[Dict[str, Any]]) -> DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() takes pandas: pip install tidemark[pandas]") from error
    return pandas.DataFrame(rows)


@dataclass(frozen=True)
class Group:
    """Ranks with identical timelines. ``at_peak`` says what the peak of device memory is made of."""

    ranks: List[int]
    coordinates: Dict[str, int]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    peak_device_upper_bytes: int
    static_allocated_bytes: int
    at_peak: Dict[str, int]
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Prediction:
    """Does it fit, and how long does a step take? Peaks are of the fullest rank."""

    fits: bool
    verdict: str  # "fits", "does_not_fit" or "cannot_say": at the upper ends it does not, and at the lower ones it does
    outcome: str  # "completed", "out_of_memory" or "deadlock"
    world_size: int
    capacity_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    peak_device_upper_bytes: int
    step_time_s: Optional[float]
    tokens_per_s_per_device: Optional[float]
    mfu: Optional[float]
    hfu: Optional[float]  # with what is computed twice
    step_causes_s: Optional[Dict[str, float]]  # where the mean rank's step goes; adds up to it
    groups: List[Group]
    assumptions: List[str]
    not_modelled: List[str]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """A row for each group of ranks, with its coordinates, its peaks, and what the peak is made of."""
        return _frame([{"ranks": len(g.ranks), "first_rank": g.ranks[0] if g.ranks else None, **g.coordinates,
                        "peak_allocated_bytes": g.peak_allocated_bytes, "peak_reserved_bytes": g.peak_reserved_bytes,
                        "peak_device_bytes": g.peak_device_bytes,
                        "peak_device_upper_bytes": g.peak_device_upper_bytes, **g.at_peak} for g in self.groups])


@dataclass(frozen=True)
class Candidate:
    """One layout of a plan."""

    number: int
    layout: Dict[str, Any]
    tokens_per_s_per_device: float
    step_time_s: float
    peak_device_upper_bytes: int
    peak_allocated_bytes: int


@dataclass(frozen=True)
class Plan:
    """Which layouts fit, and which is best? ``front``: those that no other beats in memory and throughput both."""

    fits: bool
    best: List[Candidate]
    front: List[Candidate]
    candidates: int
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """A row for each of the best."""
        return _frame([{"candidate": c.number, **c.layout, "tokens_per_s_per_device": c.tokens_per_s_per_device,
                        "step_time_s": c.step_time_s, "peak_device_upper_bytes": c.peak_device_upper_bytes,
                        "peak_allocated_bytes": c.peak_allocated_bytes} for c in self.best])


@dataclass(frozen=True)
class Remedy:
    """A smallest set of changes that makes a job fit."""

    changes: List[str]
    changes_training: bool
    step_time_s: float
    tokens_per_s_per_device: float
    peak_device_upper_bytes: int


@dataclass(frozen=True)
class Advice:
    """It does not fit: what would make it? ``lacks_bytes`` is negative where there is room to spare."""

    fits: bool
    lacks_bytes: int
    remedies: List[Remedy]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """A row for each remedy."""
        return _frame([{"changes": "; ".join(r.changes), "changes_training": r.changes_training,
                        "step_time_s": r.step_time_s, "tokens_per_s_per_device": r.tokens_per_s_per_device,
                        "peak_device_upper_bytes": r.peak_device_upper_bytes} for r in self.remedies])


@dataclass(frozen=True)
class Limit:
    """A point of a frontier: the largest value that fits, None where not even the smallest does."""

    by: Union[int, float, str, None]
    largest: Union[int, float, str, None]
    tokens_per_s_per_device: Optional[float]
    peak_device_upper_bytes: Optional[int]
    next_lacks_bytes: Optional[int]  # of the next larger value, on the fullest device
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Capacity:
    """How far does it go?"""

    any: bool
    largest: str  # the axis that grows
    by: Optional[str]  # for each value of this one
    limits: List[Limit]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """A row for each point of the frontier."""
        return _frame([{"by": p.by, "largest": p.largest, "tokens_per_s_per_device": p.tokens_per_s_per_device,
                        "peak_device_upper_bytes": p.peak_device_upper_bytes, "next_lacks_bytes": p.next_lacks_bytes}
                       for p in self.limits])


@dataclass(frozen=True)
class Comparison:
    """Does a real run agree?"""

    agrees: bool
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Replay:
    """A memory snapshot through the emulated allocator: exact, and enough memory under what was asked."""

    yes: bool
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Conversion:
    """A training in another dialect, and what could not be expressed."""

    text: str
    launch: Optional[str]
    expressed: bool
    not_expressed: List[Dict[str, Any]]
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Report:
    """A page that was written, and what it draws."""

    kind: str  # "prediction", "beside", "plan", "capacity", "comparison" or "validation"
    yes: bool
    page: str
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """What its first figure draws: of predictions a row for each moment of the fullest rank of each stage, of a plan one for
        each layout, of a capacity study one for each limit."""
        if self.kind == "prediction":
            return _frame(memory_over_step(self.json))
        if self.kind == "beside":
            return _frame([{"title": of["title"], **row} for of in self.json["reports"] for row in memory_over_step(of)])
        if self.kind == "plan":
            return _frame(candidates(self.json["record"]))
        if self.kind == "capacity":
            return _frame(limits(self.json["record"]))
        raise ValueError(f"a page of a {self.kind} has no table of moments or layouts; json has what it draws")
