"""A job as it is written in Python, as a file and arguments that the program takes."""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, NoReturn, Optional, Sequence, Tuple, Union

from ._program import InputError, Problem, Progress, _value, ask, problems_of, program, toml

Scenario = Union[str, "os.PathLike[str]", Dict[str, Any]]

# Options of `tidemark predict` for a job without a file.
FLAGS = {name: "--" + name.replace("_", "-") for name in
         ("model", "cluster", "gpus", "sequence", "micro_batch", "global_batch", "runtime", "tensor", "sequence_parallel", "context",
          "expert", "pipeline", "chunks", "sharding", "precision", "recompute", "headroom")}
# Of these, those that go beside launch files, which have no keys of ours.
BESIDE_LAUNCH_FILES = ("model", "cluster", "gpus", "sequence", "micro_batch", "global_batch")
# Where a name is a table's, or not that of the key.
ALIASES = {"sequence": "train.sequence_length", "runtime": "runtime.name"}
# Names that several tables have (rollout.tensor) are these tables' when they stand alone.
FIRST_TABLES = ("layout", "train")


@lru_cache(maxsize=None)
def _known(_program: str, _root: Optional[str]) -> Tuple[FrozenSet[str], FrozenSet[str], FrozenSet[str]]:
    keys = frozenset(row["key"] for row in ask(["list", "keys"])[1]["keys"])
    models, clusters = (frozenset(row["name"] for row in ask(["list", what])[1][what]) for what in ("models", "clusters"))
    return keys, models, clusters


def _lists() -> Tuple[FrozenSet[str], FrozenSet[str], FrozenSet[str]]:
    return _known(program(), os.environ.get("TIDEMARK_DATA_ROOT"))


def _refuse(name: str, message: str, hint: str) -> NoReturn:
    raise InputError(f"{name}: error: {message}\n  hint: {hint}", [Problem(name, 0, 0, message, hint)])


def full_key(name: str) -> str:
    """``tensor`` is ``layout.tensor``."""
    keys = _lists()[0]
    if name in ALIASES:
        return ALIASES[name]
    if name in keys or any(name.startswith(table + ".") for table in ("model_override", "runtime.switches", "runtime.environment")):
        return name
    ends = sorted(key for key in keys if key.rpartition(".")[2] == name)
    first = [key for table in FIRST_TABLES for key in ends if key == f"{table}.{name}"]
    if len(first or ends) == 1:
        return (first or ends)[0]
    if ends:
        _refuse(name, f'"{name}" is a key of several tables', " or ".join(ends))
    names = {key.rpartition(".")[2] for key in keys} | set(ALIASES) | set(keys)
    near = difflib.get_close_matches(name, sorted(names), 3)
    _refuse(name, f'there is no key "{name}"', f"did you mean {' or '.join(near)}?" if near else "`tidemark list keys` lists all")


def _tables() -> FrozenSet[str]:
    return frozenset(key.partition(".")[0] for key in _lists()[0] if "." in key) | {"model_override", "space", "capacity", "load"}


def _flat(settings: Dict[str, Any]) -> List[Tuple[str, Any, str]]:
    """(key, value, as it was written) of names and of tables."""
    found: List[Tuple[str, Any, str]] = []
    for name, value in settings.items():
        if isinstance(value, dict) and name in _tables():
            found += [(f"{name}.{inner}", of, f"{name}.{inner}") for inner, of in value.items()]
        elif value is not None:
            found.append((full_key(name), value, name))
    return found


def _named(kind: str, name: Any) -> Any:
    """A model or a cluster: a file from here, a shipped one by its name, or what else it is."""
    if not isinstance(name, (str, os.PathLike)):
        return name
    text = os.fspath(name)
    if os.path.exists(text):
        return os.path.abspath(text)
    if kind == "model" and text in _lists()[1]:
        return f"models/{text}.json"
    if kind == "cluster" and text in _lists()[2]:
        return f"clusters/{text}.toml"
    return text


def _is_scenario(path: str) -> bool:
    if not os.path.isfile(path):
        return True  # the name of an example
    try:
        return path.endswith(".toml") and re.search(r"^\s*cluster\s*=", Path(path).read_text(encoding="utf-8"), re.M) is not None
    except UnicodeDecodeError:
        return False


def _places(text: str) -> List[str]:
    """Of each line that `toml` wrote the key that it sets."""
    table, places = "", []
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]") + "."
            places.append(table[:-1])
        else:
            places.append(table + line.partition(" = ")[0])
    return places


class Job:
    """A scenario (a dict, a file, a launch file, or nothing but names) as ``arguments`` of the program."""

    def __init__(self, scenario: Optional[Scenario] = None, settings: Optional[Dict[str, Any]] = None,
                 variables: Optional[Dict[str, str]] = None, ignore: Sequence[str] = ()) -> None:
        settings = {name: value for name, value in (settings or {}).items() if value is not None}
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None
        self._places: List[str] = []
        self._written: Dict[str, str] = {}
        self._file = ""
        beside = [word for name, value in (variables or {}).items() for word in ("--set", f"{name}={value}")]
        beside += [word for name in ignore for word in ("--ignore", name)]
        if isinstance(scenario, dict):
            self._write(self._whole(scenario, settings))
            self.arguments = [self._file, *beside]
        elif scenario is None:
            flags = {name: settings.pop(name) for name in FLAGS if name in settings}
            keys = self._keys(settings)
            self._print(flags)
            self.arguments = [self._file, *keys]
        else:
            path = str(os.fspath(scenario))
            if not _is_scenario(path):
                for name in BESIDE_LAUNCH_FILES:
                    if name in settings:
                        beside += [FLAGS[name], str(settings.pop(name))]
            self.arguments = [path, *beside, *self._keys(settings)]

    def _keys(self, settings: Dict[str, Any]) -> List[str]:
        words = []
        for key, value, written in _flat(settings):
            self._written[key] = written
            words.append(f"{key}={_value(_named(key, value))}")
        return words

    def _whole(self, scenario: Dict[str, Any], settings: Dict[str, Any]) -> Dict[str, Any]:
        whole: Dict[str, Any] = {}
        tables = _tables()
        for name, value in scenario.items():
            if name in tables and isinstance(value, dict):
                whole[name] = {**whole.get(name, {}), **value}
            elif name in ("model", "cluster"):
                whole[name] = _named(name, value)
            elif name in _lists()[0] or isinstance(value, dict):
                whole[name] = value
            else:
                try:
                    self._set(whole, full_key(name), value, name)
                except InputError:
                    whole[name] = value  # the program tells of it beside what else is wrong
        for key, value, written in _flat(settings):
            self._set(whole, key, _named(key, value), written)
        config = whole.get("runtime", {}).get("config") if isinstance(whole.get("runtime"), dict) else None
        if config is not None and os.path.exists(str(config)):
            whole["runtime"] = {**whole["runtime"], "config": os.path.abspath(str(config))}
        return whole

    def _set(self, whole: Dict[str, Any], key: str, value: Any, written: str) -> None:
        *tables, last = key.split(".")
        for table in tables:
            inner = whole.get(table)
            whole[table] = dict(inner) if isinstance(inner, dict) else {}
            whole = whole[table]
        whole[last] = value
        self._written[key] = written

    def _write(self, content: Union[str, Dict[str, Any]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidemark-")
        self._file = os.path.join(self._folder.name, "scenario.toml")
        text = toml(content) if isinstance(content, dict) else content
        self._places = _places(text)
        Path(self._file).write_text(text, encoding="utf-8")

    def _print(self, flags: Dict[str, Any]) -> None:
        words: List[str] = []
        for name, value in flags.items():
            if name in ("model", "cluster") and os.path.exists(str(value)):
                value = os.path.abspath(value)
            if name == "sequence_parallel":
                words += [FLAGS[name]] if value else []
            else:
                words += [FLAGS[name], str(value)]
        self._written = {flag: name for name, flag in FLAGS.items()}
        text, _, _ = self.ask(["predict", *words, "--print-scenario"], json_file=False)
        self._write(text)

    def ask(self, arguments: Sequence[str], progress: Optional[Progress] = None, *, under: Sequence[str] = (),
            json_file: bool = True) -> Tuple[str, Dict[str, Any], bool]:
        """As `ask`; problems are told by the names that were written here."""
        try:
            return ask(arguments, progress, under=under, json_file=json_file)
        except InputError as error:
            raise self._told(str(error)) from None

    def _told(self, text: str) -> InputError:
        problems, told = [], []
        for p in problems_of(text):
            at, message, hint = p.file, p.message, p.hint
            if self._file and p.file == self._file:
                key = self._places[p.line - 1] if 0 < p.line <= len(self._places) else ""
                at = self._written.get(key, key) or "scenario"
            for flag, name in self._written.items():
                if flag.startswith("--"):
                    at, message, hint = (re.sub(rf"{flag}(?![a-z-])", name, t) for t in (at, message, hint))
            if at == "tidemark predict":
                at = "predict"
            problems.append(Problem(at, p.line, p.column, message, hint))
            place = at if at != p.file or not p.line else f"{at}:{p.line}:{p.column}"
            told.append(f"{place}: error: {message}" + (f"\n  hint: {hint}" if hint else ""))
        return InputError("\n".join(told) if problems else text, problems)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder:
            self._folder.cleanup()
