"""A seed stands for the training that was recorded under its name, on any Python; needs no PyTorch."""

import json
import unittest
from pathlib import Path

import drawn_wrapped

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "wrapped" / "recordings"


class DrawnWrapped(unittest.TestCase):
    def test_recordings_are_what_their_seeds_draw(self):
        for seed in drawn_wrapped.SEEDS:
            file = RECORDED / f"{drawn_wrapped.name_of(seed)}.json"
            if not file.exists():  # refused
                continue
            recording = json.loads(file.read_text())
            with self.subTest(file.stem):
                found = (recording["by"], recording["config"], recording["settings"])
                self.assertEqual(found, drawn_wrapped.job(seed))

    def test_every_wrapper_and_family_comes(self):
        self.assertEqual({drawn_wrapped.wrapper_of(seed) for seed in drawn_wrapped.SEEDS}, set(drawn_wrapped.WRAPPERS))
        families = {drawn_wrapped.family_of(seed) for seed in drawn_wrapped.SEEDS}
        self.assertEqual(families, set(drawn_wrapped.drawn.FAMILIES))


if __name__ == "__main__":
    unittest.main()
