"""A user's training on a device that does nothing: what `tidemark dry-run` puts into its process. It needs nothing but
Python 3.9 and the PyTorch that the training itself imports."""

import importlib.abc
import sys

_after_import = {}


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls what waits for a module as soon as that has been imported."""

    def find_spec(self, name, path, target=None):
        if name not in _after_import:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is None:
                continue
            execute = spec.loader.exec_module

            def exec_module(module, execute=execute):  # who only looks whether it is there imports nothing
                execute(module)
                call = _after_import.pop(name, None)
                if call:
                    call(module)

            spec.loader.exec_module = exec_module
            return spec
        return None


def after_import(name, call):
    if name in sys.modules:
        call(sys.modules[name])
    else:
        _after_import[name] = call


def begin(folder):
    from . import absent, ending, launchers

    run = ending.Run(folder)
    ending.catch(run)
    sys.meta_path.insert(0, _AfterImport())
    absent.prepare(run)
    launchers.prepare(run)

    def after_torch(torch):
        from . import answers, compiled, device, groups, routing, spawned, steps, unanswered

        device.prepare(torch, run)
        groups.prepare(torch, run)
        answers.prepare(torch, run)
        routing.prepare(torch, run)
        unanswered.prepare(torch, run)
        compiled.prepare(torch, run)
        spawned.prepare(torch, run)
        steps.prepare(torch, run)

    after_import("torch", after_torch)
