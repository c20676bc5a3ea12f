"""A seed stands for the training that was recorded under its name, on any Python; needs no PyTorch."""

import json
import unittest
from pathlib import Path

import drawn_megatron
import megatron_jobs

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "megatron_core" / "recordings"


class Megatron(unittest.TestCase):
    def test_recordings_are_what_their_names_stand_for(self):
        jobs = {**megatron_jobs.RECORDINGS, **drawn_megatron.JOBS}
        for file in sorted(RECORDED.glob("*.json")):
            recording = json.loads(file.read_text())
            with self.subTest(file.stem):
                job = jobs[file.stem]
                self.assertEqual(recording["flags"], " ".join(megatron_jobs.flags_of(job)))
                self.assertEqual(recording["settings"], megatron_jobs.settings_of(job))

    def test_every_release_and_family_comes(self):
        seeds = drawn_megatron.SEEDS
        self.assertEqual({drawn_megatron.release_of(seed) for seed in seeds}, set(drawn_megatron.RELEASES))
        self.assertEqual({drawn_megatron.family_of(seed) for seed in seeds}, set(drawn_megatron.FAMILIES))
        experts = drawn_megatron.EXPERT_SEEDS
        self.assertEqual({drawn_megatron.release_of(seed) for seed in experts}, set(drawn_megatron.RELEASES))
        self.assertEqual({drawn_megatron.family_of(seed) for seed in experts}, set(drawn_megatron.EXPERT_FAMILIES))

    def test_experts_have_as_many_tokens(self):
        for name, (flags, settings) in {**megatron_jobs.RECORDINGS, **drawn_megatron.JOBS}.items():
            if "num-experts" not in flags:
                continue
            with self.subTest(name):
                cut = flags.get("tensor-model-parallel-size", 1) if flags.get("sequence-parallel") else 1
                tokens = flags["seq-length"] * flags["micro-batch-size"] // cut
                self.assertEqual(tokens * flags["moe-router-topk"] % flags["num-experts"], 0)
                self.assertEqual(flags["num-experts"] % flags.get("expert-model-parallel-size", 1), 0)


if __name__ == "__main__":
    unittest.main()
