"""A command that itself starts the training as another process (trl, axolotl, accelerate and torchrun called from Python):
that process takes the place of this one."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STARTED = "TIDEMARK_DRY_RUN_STARTED_BY"
LAUNCHES = ("launch", "elastic", ".cli", "runner")  # in the names of modules whose task it is
PROGRAMS = ("torchrun", "accelerate", "deepspeed", "axolotl", "trl", "llamafactory-cli", "tune", "litgpt", "fabric")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def prepare(run):
    before = os.environ.pop(STARTED, None)
    if before:
        run.stand_in(f"the process that {before} starts: instead of it")
    follow_processes(run)
    follow_replacements(run)


def follow_processes(run):
    begin, replace = subprocess.Popen.__init__, os.execve

    def __init__(self, args, *rest, **kwargs):
        if is_training(args, run):
            if kwargs.get("cwd"):
                os.chdir(kwargs["cwd"])
            become(list(args), kwargs.get("env"), run, replace)
        begin(self, args, *rest, **kwargs)

    subprocess.Popen.__init__ = __init__


def follow_replacements(run):
    replace, before = os.execve, os.execvpe

    def execvpe(file, args, env):
        if is_training([file, *args[1:]], run):
            become([file, *args[1:]], env, run, replace)
        before(file, args, env)

    os.execvpe = execvpe
    os.execvp = lambda file, args: execvpe(file, args, os.environ)


def is_training(words, run):
    """Python with a script or a module, started by code that launches, before anything has been trained here."""
    if os.getpid() != run.pid or run.over or not isinstance(words, (list, tuple)) or not words:
        return False
    if run.steps and (run.steps.count() or run.steps.set_up) or not starts_python([str(word) for word in words]):
        return False
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if any(part in module for part in LAUNCHES):
            return True
        frame = frame.f_back
    return False


def starts_python(words):
    program = shutil.which(words[0])
    if program is None:
        return False
    if os.path.basename(program).startswith("python") or os.path.realpath(program) == os.path.realpath(sys.executable):
        words = [word for word in words[1:] if word not in ("-u", "-B", "-O")]
        if words[:1] == ["-m"]:
            return words[1:2] not in (["pip"], ["venv"], ["ensurepip"])
        # Helpers of libraries are scripts too, of their own packages.
        return bool(words) and words[0].endswith(".py") and not any(part in words[0] for part in ("/torch/", "/triton/"))
    return os.path.basename(program) in PROGRAMS


def become(words, environment, run, execute):
    environment = {**(os.environ if environment is None else environment)}
    environment["TIDEMARK_DRY_RUN"] = run.folder
    environment["TIDEMARK_DRY_RUN_PYTHONPATH"] = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = HERE + (os.pathsep + environment["PYTHONPATH"] if environment.get("PYTHONPATH") else "")
    for name in ("LD_PRELOAD", *RANKS):  # whichever rank is run, not the first that a launcher starts
        if name in run.told:
            environment[name] = run.told[name]
    environment[STARTED] = os.path.basename(sys.argv[0]) or "the script"
    sys.stdout.flush()
    sys.stderr.flush()
    execute(shutil.which(str(words[0])), [str(word) for word in words], environment)
