"""The program that answers: where it is, how it is asked, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input. Lines and columns count from 1; 0 where the place is not known."""

    file: str
    line: int
    column: int
    message: str
    hint: str


class InputError(ValueError):
    """The input is wrong: ``problems`` are all that were found."""

    def __init__(self, text: str, problems: Optional[List[Problem]] = None) -> None:
        super().__init__(text)
        self.problems: List[Problem] = problems_of(text) if problems is None else problems


class InternalError(RuntimeError):
    """Tidemark or its machine failed."""


def problems_of(text: str) -> List[Problem]:
    found: List[Problem] = []
    for line in text.splitlines():
        start = re.match(r"(.*?)(?::(\d+):(\d+))?: error: (.*)", line)
        if start:
            file, row, column, message = start.groups()
            found.append(Problem(file, int(row or 0), int(column or 0), message, ""))
        elif line.startswith("  hint: ") and found:
            last = found.pop()
            found.append(Problem(last.file, last.line, last.column, last.message, line[len("  hint: "):]))
    return found


def program() -> str:
    """TIDEMARK_PROGRAM, the one in this package, the one that this clone has built, or the one on the PATH."""
    asked = os.environ.get("TIDEMARK_PROGRAM")
    if asked:
        return asked
    package = Path(__file__).resolve().parent
    for there in (package / "_installed/bin/tidemark", package.parent.parent / "build/release/bin/tidemark"):
        if there.exists():
            return str(there)
    return "tidemark"


def toml(table: Dict[str, Any], path: Tuple[str, ...] = ()) -> str:
    """A dict as TOML: keys before the tables that would swallow them."""
    lines = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if not isinstance(v, dict) and v is not None]
    text = "".join(line + "\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, dict):
            inner = path + (key,)
            text += "[" + ".".join(_key(k) for k in inner) + "]\n" + toml(value, inner)
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    raise TypeError(f"a scenario holds numbers, texts, lists and tables, not {type(value).__name__}")


_SHOWN = re.compile(r"(\d+) of (\d+)")


def _listen(descriptor: int, told: List[str], progress: Optional[Progress]) -> None:
    # What is shown on a terminal: a line that is written over and over, and complaints.
    rest = ""
    while True:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:  # the other end is gone
            chunk = b""
        rest += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
        *lines, rest = re.split(r"(?<=\n)|\r", rest)
        for line in lines + ([rest] if not chunk else []):
            if line.startswith("\x1b[K"):
                shown = _SHOWN.search(line)
                if shown and progress:
                    progress(int(shown.group(1)), int(shown.group(2)))
            elif line:
                told.append(line)
        if not chunk:
            return


def ask(arguments: Sequence[str], progress: Optional[Progress] = None, *, under: Sequence[str] = (),
        json_file: bool = True) -> Tuple[str, Dict[str, Any], bool]:
    """What the program answers: its text, its JSON, and whether it says yes. ``under``: what starts it."""
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        answer = os.path.join(folder, "answer.json")
        reading, writing = os.openpty() if progress else os.pipe()
        told: List[str] = []
        listener = threading.Thread(target=_listen, args=(reading, told, progress), daemon=True)
        try:
            child = subprocess.Popen([*under, program(), *arguments, *(["--json", answer] if json_file else [])],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writing)
        except OSError as error:
            os.close(reading)
            os.close(writing)
            missing = [*under, program()][0]
            raise InternalError(f"{missing}: {error.strerror}" + ("" if under else "; TIDEMARK_PROGRAM names another")) from error
        os.close(writing)
        listener.start()
        try:
            text = child.communicate()[0].decode("utf-8", "replace")
        except BaseException:  # Ctrl-C, above all
            child.kill()
            child.wait()
            raise
        finally:
            listener.join()
            os.close(reading)
        if child.returncode == 2:
            raise InputError("".join(told).strip())
        if child.returncode not in (0, 1, 4):  # 4: it cannot say
            raise InternalError("".join(told).strip() or f"the program ended with {child.returncode}")
        content = Path(answer).read_text(encoding="utf-8") if os.path.exists(answer) else ""
        return text, json.loads(content) if content else {}, child.returncode == 0


def main() -> None:
    """The command ``tidemark``."""
    os.execvp(program(), [program(), *sys.argv[1:]])
