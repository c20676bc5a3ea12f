"""Python imports this before the user's script. It prepares the process, then makes way for the user's own sitecustomize."""

import os
import sys


def _begin():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.environ.pop("TIDEMARK_DRY_RUN", None)  # processes that this one starts are none of ours
    before = os.environ.pop("TIDEMARK_DRY_RUN_PYTHONPATH", None)
    if folder:
        if before:
            os.environ["PYTHONPATH"] = before
        else:
            os.environ.pop("PYTHONPATH", None)
        import tidemark_dry_run

        tidemark_dry_run.begin(folder)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        sys.modules["sitecustomize"] = mine
        if error.name != "sitecustomize":
            raise


_begin()
