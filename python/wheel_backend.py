"""Makes wheels of what is built, and builds it where it is not. pip calls it for `pip install .` (PEP 517), `scripts/wheel` for a wheel
that runs elsewhere. It takes nothing but Python and what a build takes anyhow."""

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
# Of files in wheels, so that the same tree gives the same bytes: the first day that a zip can name.
FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def _project(key):
    # tomllib is there from Python 3.11 on.
    found = re.search(rf'^{key} = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    if not found:
        sys.exit(f"pyproject.toml has no {key}")
    return found.group(1)


def _run(*words, **more):
    environment = dict(os.environ, **more)
    # Of pip's own environment: Debian's CMake takes no other.
    for name in ("PYTHONPATH", "PYTHONHOME"):
        environment.pop(name, None)
    ended = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, env=environment)
    if ended.returncode != 0:
        sys.stderr.buffer.write(ended.stdout)
        sys.exit(f"tidemark: `{' '.join(map(str, words))}` failed; "
                 "`scripts/setup --packages-only` installs the Debian packages that a build takes")


def _metadata():
    lines = ["Metadata-Version: 2.1", "Name: tidemark", f"Version: {_project('version')}", f"Summary: {_project('description')}",
             "License: Apache-2.0", f"Requires-Python: {_project('requires-python')}", "Provides-Extra: pandas",
             "Requires-Dist: pandas; extra == 'pandas'", "Description-Content-Type: text/markdown"]
    return "\n".join(lines) + "\n\n" + (ROOT / "README.md").read_text(encoding="utf-8")


def _info_files(tag):
    wheel = f"Wheel-Version: 1.0\nGenerator: tidemark\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return {"METADATA": _metadata(), "WHEEL": wheel, "entry_points.txt": "[console_scripts]\ntidemark = tidemark._program:main\n",
            "LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8")}


def _write(folder, tag, files):
    """files: names in the wheel to their content or their path."""
    info = f"tidemark-{_project('version')}.dist-info"
    files = dict(files, **{f"{info}/{name}": text.encode() for name, text in _info_files(tag).items()})
    name = f"tidemark-{_project('version')}-{tag}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(inside, content, mode=0o644):
            entry = zipfile.ZipInfo(inside, FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, content)

        for inside, source in sorted(files.items()):
            runs = isinstance(source, Path) and os.access(source, os.X_OK)
            content = source.read_bytes() if isinstance(source, Path) else source
            add(inside, content, 0o755 if runs else 0o644)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([inside, f"sha256={digest}", len(content)])
        rows.writerow([f"{info}/RECORD", "", ""])
        add(f"{info}/RECORD", record.getvalue())
    return name


def _package():
    package = ROOT / "python" / "tidemark"
    return {f"tidemark/{file.name}": file for file in package.iterdir() if file.suffix == ".py" or file.name == "py.typed"}


def _make(folder, portable):
    # What is built is taken; Ninja sees to what has changed since.
    _run(ROOT / "scripts" / "setup", "--no-packages", "--target", "tidemark_portable" if portable else "tidemark")
    with tempfile.TemporaryDirectory() as scratch:
        installed = Path(scratch)
        _run("cmake", "--install", BUILD, "--component", "program", "--prefix", installed, "--strip",
             TIDEMARK_PORTABLE="1" if portable else "")
        files = _package()
        for file in installed.rglob("*"):
            if file.is_file():
                files[f"tidemark/_installed/{file.relative_to(installed)}"] = file
        machine = os.uname().machine
        return _write(folder, f"py3-none-{'manylinux_2_28' if portable else 'linux'}_{machine}", files)


# ---- what pip calls

def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_editable(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """For this machine: with MPI, and with the shared libraries that are here."""
    return _make(wheel_directory, portable=False)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """This clone, and the program that it has built."""
    _run(ROOT / "scripts" / "setup", "--no-packages", "--target", "tidemark")
    tag = f"py3-none-linux_{os.uname().machine}"
    return _write(wheel_directory, tag, {"tidemark.pth": f"{ROOT / 'python'}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    name = f"tidemark-{_project('version')}"
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for file in sorted(filter(None, listed.decode().split("\0"))):
            archive.add(ROOT / file, f"{name}/{file}", recursive=False)
        information = tarfile.TarInfo(f"{name}/PKG-INFO")
        content = _metadata().encode()
        information.size = len(content)
        archive.addfile(information, io.BytesIO(content))
    return f"{name}.tar.gz"


# ---- what scripts/wheel calls

if __name__ == "__main__":
    to = Path(sys.argv[1] if len(sys.argv) > 1 else BUILD / "packages")
    print(to / _make(to, portable=True))
