"""Answers as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from ._curves import candidates, limits, memory_over_step
from ._program import InputError

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped,import-not-found,unused-ignore]


def _frame(rows: List[Dict[str, Any]]) -> DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() takes pandas: pip install pandas") from error
    return pandas.DataFrame(rows)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.2f} GiB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Answer:
    """What a notebook shows of an answer: its first line, and a table."""

    def _title(self) -> str:
        return str(getattr(self, "text", "")).partition("\n")[0]

    def rows(self) -> List[Dict[str, Any]]:
        """The table of the answer, a dict for each row."""
        return []

    def to_pandas(self) -> DataFrame:
        """``rows()`` as a table of pandas."""
        return _frame(self.rows())

    def _repr_html_(self) -> str:
        rows = self.rows()[:50]
        names = list(dict.fromkeys(name for row in rows for name in row))
        head = "".join(f"<th>{escape(name[:-6] if name.endswith('_bytes') else name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{escape(_shown(name, row.get(name)))}</td>" for name in names) + "</tr>" for row in rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        return f"<div><p><b>{escape(self._title())}</b></p>{table}</div>"


@dataclass(frozen=True)
class Group:
    """Ranks with identical timelines. ``at_peak`` says what the peak of device memory is made of."""

    ranks: List[int]
    coordinates: Dict[str, int]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    peak_device_upper_bytes: int
    required_device_bytes: int  # the least with which the job completes
    required_device_upper_bytes: int
    peak_allocated_range_bytes: Tuple[int, int]
    peak_reserved_range_bytes: Tuple[int, int]
    static_allocated_bytes: int
    at_peak: Dict[str, int]
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Prediction(Answer):
    """Does it fit, and how long does a step take? Peaks are of the fullest rank."""

    fits: bool
    verdict: str  # "fits", "does_not_fit" or "cannot_say": at the upper ends it does not, and at the lower ones it does
    outcome: str  # "completed", "out_of_memory" or "deadlock"
    world_size: int
    capacity_bytes: int
    headroom_bytes: int
    peak_allocated_bytes: int
    peak_allocated_range_bytes: Tuple[int, int]
    peak_reserved_bytes: int
    peak_reserved_range_bytes: Tuple[int, int]
    peak_device_bytes: int
    peak_device_upper_bytes: int
    required_device_bytes: int  # the least with which the job completes
    required_device_upper_bytes: int
    step_time_s: Optional[float]
    step_time_range_s: Optional[Tuple[float, float]]
    tokens_per_s_per_device: Optional[float]
    mfu: Optional[float]
    hfu: Optional[float]  # recomputation included
    step_causes_s: Optional[Dict[str, float]]  # where the mean rank's step goes; adds up to it
    groups: List[Group] = field(repr=False)
    assumptions: List[str] = field(repr=False)
    not_modelled: List[str] = field(repr=False)
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each group of ranks, with its coordinates, its peaks, and what the peak is made of."""
        return [{"ranks": len(g.ranks), "first_rank": g.ranks[0] if g.ranks else None, **g.coordinates,
                 "peak_allocated_bytes": g.peak_allocated_bytes, "peak_reserved_bytes": g.peak_reserved_bytes,
                 "peak_device_bytes": g.peak_device_bytes,
                 "peak_device_upper_bytes": g.peak_device_upper_bytes, **g.at_peak} for g in self.groups]


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
class Plan(Answer):
    """Which layouts fit, and which is best? ``front``: those that no other beats in memory and throughput both."""

    fits: bool
    best: List[Candidate]
    front: List[Candidate]
    candidates: int
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each of the best."""
        return [{"candidate": c.number, **c.layout, "tokens_per_s_per_device": c.tokens_per_s_per_device,
                 "step_time_s": c.step_time_s, "peak_device_upper_bytes": c.peak_device_upper_bytes,
                 "peak_allocated_bytes": c.peak_allocated_bytes} for c in self.best]


@dataclass(frozen=True)
class Remedy:
    """A smallest set of changes that makes a job fit."""

    changes: List[str]
    changes_training: bool
    step_time_s: float
    tokens_per_s_per_device: float
    peak_device_upper_bytes: int


@dataclass(frozen=True)
class Advice(Answer):
    """It does not fit: what would make it? ``lacks_bytes`` is negative where there is room to spare."""

    fits: bool
    lacks_bytes: int
    remedies: List[Remedy]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each remedy."""
        return [{"changes": "; ".join(r.changes), "changes_training": r.changes_training,
                 "step_time_s": r.step_time_s, "tokens_per_s_per_device": r.tokens_per_s_per_device,
                 "peak_device_upper_bytes": r.peak_device_upper_bytes} for r in self.remedies]


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
class Capacity(Answer):
    """How far does it go?"""

    any: bool
    largest: str  # the axis that grows
    by: Optional[str]  # for each value of this one
    limits: List[Limit]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each point of the frontier."""
        return [{"by": p.by, "largest": p.largest, "tokens_per_s_per_device": p.tokens_per_s_per_device,
                 "peak_device_upper_bytes": p.peak_device_upper_bytes, "next_lacks_bytes": p.next_lacks_bytes}
                for p in self.limits]


@dataclass(frozen=True)
class Comparison(Answer):
    """Does a real run agree?"""

    agrees: bool
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Replay(Answer):
    """A memory snapshot through the emulated allocator: exact, and enough memory under what was asked."""

    yes: bool
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Conversion(Answer):
    """A training in another dialect, and what could not be expressed."""

    text: str
    launch: Optional[str]
    expressed: bool
    not_expressed: List[Dict[str, Any]]
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Report(Answer):
    """A page that was written, and what it draws."""

    kind: str  # "prediction", "beside", "plan", "capacity", "comparison" or "validation"
    yes: bool
    page: str
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """What its first figure draws: of predictions a row for each moment of the fullest rank of each stage, of a plan one for
        each layout, of a capacity study one for each limit."""
        if self.kind == "prediction":
            return memory_over_step(self.json)
        if self.kind == "beside":
            return [{"title": of["title"], **row} for of in self.json["reports"] for row in memory_over_step(of)]
        if self.kind == "plan":
            return candidates(self.json["record"])
        if self.kind == "capacity":
            return limits(self.json["record"])
        raise ValueError(f"a page of a {self.kind} has no table of moments or layouts; json has what it draws")

    def _repr_html_(self) -> str:
        return f"<div><p><b>{escape(self._title())}</b></p></div>"


@dataclass(frozen=True)
class Explanation(Answer):
    """The tensors that are live at a moment of a rank, the largest first."""

    rank: Optional[int]
    allocated_bytes: Optional[int]
    tensors: List[Dict[str, Any]]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each tensor."""
        return self.tensors


@dataclass(frozen=True)
class Estimate(Answer):
    """Rules of thumb beside what is simulated."""

    fits: bool
    verdict: str
    rules: List[Dict[str, Any]]
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each rule."""
        return self.rules


@dataclass(frozen=True)
class Validation(Answer):
    """Ranks that ran, beside what was predicted of them."""

    agrees: bool
    ranks: int
    text: str = field(repr=False)
    json: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Sweep(Answer):
    """A prediction for each combination of values, in their order."""

    over: List[str]
    values: List[Dict[str, Any]]
    found: List[Union[Prediction, InputError]] = field(repr=False)

    def _title(self) -> str:
        fit = sum(isinstance(p, Prediction) and p.fits for p in self.found)
        return f"{fit} of {len(self.found)} fit"

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each combination: its values, whether it fits, memory and time; why not, of what cannot be."""
        table: List[Dict[str, Any]] = []
        for values, p in zip(self.values, self.found):
            if isinstance(p, Prediction):
                low, high = p.step_time_range_s or (None, None)
                table.append({**values, "verdict": p.verdict, "required_device_upper_bytes": p.required_device_upper_bytes,
                              "peak_device_upper_bytes": p.peak_device_upper_bytes, "step_time_s": p.step_time_s,
                              "step_time_low_s": low, "step_time_high_s": high,
                              "tokens_per_s_per_device": p.tokens_per_s_per_device, "mfu": p.mfu, "why": ""})
            else:
                table.append({**values, "verdict": "not possible", "why": p.problems[0].message if p.problems else str(p)})
        return table
