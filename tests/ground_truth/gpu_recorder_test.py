"""The parts of the GPU recorder that need neither a GPU nor PyTorch: python tests/ground_truth/gpu_recorder_test.py"""

import gzip
import pickle
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import gpu_ladder
import record_gpu

MIB = 1 << 20


def rungs(**overheads):
    made, before = [], None
    for name, overhead in overheads.items():
        added = None if before is None else (overhead - before) * MIB
        made.append({"rung": name, "overhead": overhead * MIB, "overhead_added": added})
        before = overhead
    return made


class Ladder(unittest.TestCase):
    climbed = rungs(before=3, context=503, first_kernel=505, cublas=545, attention=560, optimizer=600, more_shapes=610,
                    process_group=610, first_communicator=1100, second_communicator=1488, all_gather=1488)  # fmt: skip
    tables = gpu_ladder.cluster_tables(
        climbed,
        {"driver": "580.1", "cuda": "13.0", "torch": "2.11", "nccl": "2.28.9"},
        {"name": "NVIDIA H200"},
    )

    def test_what_others_had_taken_is_not_the_context(self):
        self.assertEqual(self.tables["device.context"]["bytes"], 500 * MIB)

    def test_rungs_of_kernels_are_the_loaded_code(self):
        self.assertEqual(self.tables["device.modules"]["bytes"], 107 * MIB)

    def test_the_first_communicator_is_kernels_and_structures(self):
        self.assertEqual(self.tables["nccl.communicators.alone"]["bytes"], 388 * MIB)
        self.assertEqual(self.tables["nccl.kernels"]["bytes"], 102 * MIB)

    def test_every_estimate_lies_within_its_bounds(self):
        for table in self.tables.values():
            self.assertLessEqual(table["low"], table["bytes"])
            self.assertLessEqual(table["bytes"], table["high"])

    def test_toml_is_what_a_cluster_file_takes(self):
        text = gpu_ladder.as_toml(self.tables)
        self.assertIn('[nccl.communicators.alone]\nranks = 1\nbytes = "406847488 B"\n', text)
        self.assertIn("driver 580.1", text)


class Snapshot(unittest.TestCase):
    frame = {"filename": "/home/someone/job.py", "line": 3, "name": "step"}
    of_torch = {"filename": "/lib/torch/nn/modules/module.py", "line": 9, "name": "_call_impl"}
    snapshot = {
        "segments": [
            {"address": 2 * MIB, "total_size": 2 * MIB, "stream": 0, "segment_type": "small", "frames": [of_torch],
             "blocks": [{"address": 2 * MIB, "size": 512, "requested_size": 4, "state": "active_allocated",
                         "frames": [of_torch, frame]}]}
        ],
        "device_traces": [[
            {"action": "segment_alloc", "addr": 2 * MIB, "size": 2 * MIB, "stream": 0, "time_us": 17, "frames": []},
            {"action": "alloc", "addr": 2 * MIB, "size": 4, "stream": 0, "time_us": 18, "frames": [of_torch, frame]},
        ]],
        "allocator_settings": {"expandable_segments": False},
    }  # fmt: skip

    def test_what_replay_needs_stays_and_paths_go(self):
        kept = record_gpu.compact(self.snapshot)
        self.assertEqual(kept["device_traces"][0][0]["size"], 2 * MIB)
        self.assertEqual(kept["device_traces"][0][1]["frames"], [{"filename": "job.py", "line": 3, "name": "step"}])
        self.assertEqual(kept["segments"][0]["blocks"][0]["requested_size"], 4)
        self.assertNotIn("someone", repr(kept))
        self.assertNotIn("time_us", repr(kept))

    def test_the_same_snapshot_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = Path(folder) / "one.gz", Path(folder) / "two.gz"
            record_gpu.write_snapshot(one, self.snapshot)
            record_gpu.write_snapshot(two, self.snapshot)
            self.assertEqual(one.read_bytes(), two.read_bytes())
            self.assertEqual(pickle.loads(gzip.decompress(one.read_bytes())), record_gpu.compact(self.snapshot))


if __name__ == "__main__":
    unittest.main()
