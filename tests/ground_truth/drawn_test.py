"""A seed stands for the training that was recorded under its name, on any Python; needs no PyTorch."""

import json
import unittest
from pathlib import Path

import drawn
from recordings import settings_of

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "fake_tensor" / "drawn"


class Drawn(unittest.TestCase):
    def test_recordings_are_what_their_seeds_draw(self):
        for seed in drawn.SEEDS:
            name = drawn.name_of(seed)
            recording = json.loads((RECORDED / f"{name}.json").read_text())
            with self.subTest(name):
                self.assertEqual((recording["config"], recording["settings"]), settings_of(name))

    def test_every_family_comes(self):
        families = {drawn.job(seed)[0]["model_type"] for seed in drawn.SEEDS}
        self.assertEqual(families, set(drawn.FAMILIES))


if __name__ == "__main__":
    unittest.main()
