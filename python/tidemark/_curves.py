"""What a report draws, as rows."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Dict, List, Optional, Union


def memory_over_step(report: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Of the fullest rank of each stage, from moment to moment: bytes on its device by category, and on its host."""
    categories = report["categories"]
    rows: List[Dict[str, Any]] = []
    for stage in report.get("stages", []):
        memory = stage["memory"]
        held = [0] * len(categories)
        columns = {name: list(accumulate(memory[name]))
                   for name in ("time_ns", "reserved_kib", "driver_kib", "pinned_kib", "pageable_kib")}
        for point, changes in enumerate(memory["changes"]):
            for kind, kib in zip(changes[::3], changes[1::3]):
                held[memory["kinds"][kind][1]] += kib
            device = columns["reserved_kib"][point] + columns["driver_kib"][point]
            micro_batch = memory["micro_batch"][point]
            row = {"stage": stage["stage"], "rank": memory["rank"], "time_s": columns["time_ns"][point] / 1e9,
                   "phase": report["phases"][memory["phase"][point]],
                   "micro_batch": micro_batch if micro_batch >= 0 else None,
                   "operator": memory["places"][memory["place"][point]], "device_bytes": 1024 * device}
            of_category = {name: 1024 * kib for name, kib in zip(categories, held)}
            # What is reserved and belongs to no tensor.
            of_category["fragmentation"] = 1024 * max(0, device - sum(held))
            rows.append({**row, **of_category, "pinned_bytes": 1024 * columns["pinned_kib"][point],
                         "pageable_bytes": 1024 * columns["pageable_kib"][point]})
    return rows


def candidates(plan: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A row for each layout that a plan tells of, once; those that do not fit stand at what they would take."""
    front = {found["candidate"] for found in plan["front"]}
    rows: Dict[int, Dict[str, Any]] = {}
    for kind in ("best", "front", "near_misses"):
        for found in plan[kind]:
            fits = kind != "near_misses"
            upper = found["peak_device_upper_bytes"] if fits else plan["capacity_bytes"] + found["lacks_bytes"]
            rows.setdefault(found["candidate"], {
                "candidate": found["candidate"], "fits": fits, "on_front": found["candidate"] in front,
                "tokens_per_s_per_device": found["tokens_per_s_per_device"], "peak_device_upper_bytes": upper, **found["layout"]})
    return list(rows.values())


def limits(study: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A row for each point of a capacity study."""
    return [{"by": value(limit[study["by"]]) if study["by"] else None, "largest": value(limit["largest"]),
             **{name: limit[name] for name in ("tokens_per_s_per_device", "peak_device_upper_bytes", "next_lacks_bytes")}}
            for limit in study["limits"]]


def value(text: Optional[str]) -> Union[int, float, str, None]:
    """Of an axis, as a number where it is one."""
    for number in (int, float):
        try:
            return number(text) if text is not None else None
        except ValueError:
            pass
    return text
