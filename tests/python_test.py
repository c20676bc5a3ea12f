#!/usr/bin/env python3
"""The Python package says what the program says.   python_test.py PROGRAM SOURCE_FOLDER"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

program, source = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, str(source / "python"))
os.environ["TIDEMARK_PROGRAM"] = program
os.environ["TIDEMARK_DATA_ROOT"] = str(source / "scenarios")

import tidemark  # noqa: E402

SMALL = {"model": "models/gpt2.json", "cluster": "clusters/h100-sxm-80g.toml", "gpus": 2,
         "train": {"sequence_length": 512, "micro_batch": 1, "global_batch": 2}, "runtime": {"name": "pytorch"}}

OF_MEGATRON = {key: value for key, value in SMALL.items() if key != "runtime"}


class Questions(unittest.TestCase):
    def test_predict_of_a_file_is_what_the_program_writes(self):
        file = source / "scenarios/examples/llama-3.1-8b-8xh100.toml"
        by_program = json.loads(subprocess.run([program, "predict", file, "--json", "-"], capture_output=True, check=True).stdout)
        found = tidemark.predict(file)
        self.assertEqual(found.json, by_program)
        self.assertTrue(found.fits)
        self.assertEqual(found.world_size, 8)
        self.assertEqual(found.peak_device_bytes, max(g["peak_device_bytes"] for g in by_program["groups"]))
        self.assertTrue(found.text.startswith("yes, it fits"))
        self.assertEqual(sum(found.groups[0].at_peak.values()), found.groups[0].peak_device_bytes)

    def test_a_dict_is_a_scenario(self):
        found = tidemark.predict(SMALL)
        more = tidemark.predict({**SMALL, "train": {**SMALL["train"], "micro_batch": 2, "global_batch": 4}})
        self.assertGreater(more.peak_allocated_bytes, found.peak_allocated_bytes)

    def test_what_is_wrong_has_places_and_hints(self):
        with self.assertRaises(tidemark.InputError) as caught:
            tidemark.predict({**SMALL, "gpus": "two", "layuot": {}})
        messages = [(p.line > 0, p.message) for p in caught.exception.problems]
        self.assertIn((True, 'gpus takes a whole number, not "two"'), messages)
        self.assertIn((True, 'unknown key "layuot"'), messages)
        self.assertIn("did you mean layout?", [p.hint for p in caught.exception.problems])

    def test_problems_are_told_by_the_names_that_were_written(self):
        with self.assertRaises(tidemark.InputError) as caught:
            tidemark.predict({**OF_MEGATRON, "tensor": 5})
        self.assertEqual([p.file for p in caught.exception.problems], ["tensor"])
        self.assertRegex(str(caught.exception), r"^tensor: error: tensor = 5 does not divide 12 attention heads")
        with self.assertRaises(tidemark.InputError) as caught:
            tidemark.predict({**SMALL, "layout": {"tensor": "two"}})
        self.assertTrue(str(caught.exception).startswith("layout.tensor: error: "), caught.exception)
        with self.assertRaisesRegex(tidemark.InputError, r'^tensro: error: there is no key "tensro"\n  hint: did you mean .*tensor'):
            tidemark.predict(SMALL, tensro=2)
        with self.assertRaisesRegex(tidemark.InputError, r'^block_size: error: "block_size" is a key of several tables\n  hint: quantization.block_size or'):
            tidemark.predict(SMALL, block_size=64)
        with self.assertRaisesRegex(tidemark.InputError, r'^model: error: "lama-9" is neither a file nor a model'):
            tidemark.predict(model="lama-9", cluster="h100-sxm-80g", gpus=2, sequence=512)
        with self.assertRaisesRegex(tidemark.InputError, r"^predict: error: neither a scenario file nor sequence\n  hint: .*model cluster"):
            tidemark.predict(model="gpt2", cluster="h100-sxm-80g", gpus=2)
        self.assertNotIn("/tmp", str(caught.exception))

    def test_short_names_are_the_keys_of_tables(self):
        by_file = tidemark.predict(source / "scenarios/examples/llama-3.1-8b-8xh100.toml", micro_batch=2)
        by_program = subprocess.run([program, "predict", "llama-3.1-8b-8xh100", "train.micro_batch=2", "--json", "-"],
                                    capture_output=True, check=False).stdout
        self.assertEqual(by_file.json["groups"], json.loads(by_program)["groups"])
        self.assertEqual(tidemark.predict("llama-3.1-8b-8xh100", micro_batch=2).json["groups"], by_file.json["groups"])
        of_flags = subprocess.run([program, "predict", "--model", "gpt2", "--cluster", "h100-sxm-80g", "--gpus", "2", "--sequence",
                                   "512", "--tensor", "2", "--json", "-"], capture_output=True, check=True).stdout
        by_names = tidemark.predict(model="gpt2", cluster="h100-sxm-80g", gpus=2, sequence=512, tensor=2)
        self.assertEqual(by_names.json["groups"], json.loads(of_flags)["groups"])
        self.assertEqual(by_names.json["groups"], tidemark.predict(model="gpt2", cluster="h100-sxm-80g", gpus=2, sequence=512,
                                                                   layout={"tensor": 2}).json["groups"])
        fused = tidemark.predict(model="gpt2", cluster="h100-sxm-80g", gpus=2, sequence=512, tensor=2, cross_entropy="unfused")
        self.assertNotEqual(by_names.json["groups"], fused.json["groups"])
        flat = {"model": "gpt2", "cluster": "h100-sxm-80g", "gpus": 2, "sequence": 512, "micro_batch": 1, "global_batch": 2,
                "runtime": "pytorch"}
        self.assertEqual(tidemark.predict(flat).json["groups"], tidemark.predict(SMALL).json["groups"])

    def test_the_largest_value_and_the_cost_of_a_run(self):
        found = tidemark.predict(SMALL, largest="gpus", **{"run.tokens": 10**9, "run.price_per_gpu_hour": 2.0})
        self.assertEqual(found.json["largest"]["key"], "gpus")
        self.assertEqual(found.json["scenario"]["gpus"], found.json["largest"]["value"])
        run = found.json["run"]
        self.assertAlmostEqual(run["dollars"]["value"], run["gpu_days"]["value"] * 24 * 2)
        self.assertTrue(run["dollars"]["low"] < run["dollars"]["value"] < run["dollars"]["high"])

    def test_keys_go_beside_launch_files(self):
        script = source / "tests/convert/recipes/llama3-8b-fragment.sh"
        found = tidemark.predict(script, cluster="h100-sxm-80g", recompute="full")
        self.assertLess(found.peak_allocated_bytes, tidemark.predict(script, cluster="h100-sxm-80g").peak_allocated_bytes)

    def test_ranges_are_fields(self):
        found = tidemark.predict(SMALL)
        low, high = found.step_time_range_s
        self.assertTrue(low <= found.step_time_s <= high)
        low, high = found.peak_allocated_range_bytes
        self.assertTrue(low <= found.peak_allocated_bytes <= high)
        self.assertEqual(found.required_device_upper_bytes, max(g["required_device_upper_bytes"] for g in found.json["groups"]))
        self.assertLessEqual(found.required_device_bytes, found.required_device_upper_bytes)

    def test_explain_and_estimate(self):
        found = tidemark.explain(SMALL, at="end")
        by_program = found.json
        self.assertEqual(by_program["schema"], "tidemark.live/1")
        self.assertEqual(sum(t["block_bytes"] for t in found.tensors), found.allocated_bytes)
        self.assertIn("F0", tidemark.explain("llama-3.1-70b-64xh100", show="schedule").text)
        rules = tidemark.estimate("llama-3.1-8b-8xh100")
        self.assertTrue(rules.fits)
        self.assertIn("parameters", {row["bucket"] for row in rules.rows()})

    def test_a_sweep_has_a_row_for_each_combination(self):
        told = []
        found = tidemark.sweep(OF_MEGATRON, {"tensor": [1, 2, 5], "micro_batch": [1, 2]}, global_batch=4,
                               progress=lambda done, all: told.append((done, all)))
        rows = found.rows()
        self.assertEqual([(r["tensor"], r["micro_batch"]) for r in rows], [(1, 1), (1, 2), (2, 1), (2, 2), (5, 1), (5, 2)])
        self.assertEqual([r["verdict"] for r in rows[4:]], ["not possible"] * 2)
        self.assertIn("5", rows[4]["why"])
        self.assertGreater(rows[1]["required_device_upper_bytes"], rows[0]["required_device_upper_bytes"])
        self.assertEqual(told[-1], (6, 6))

    def test_notebooks_show_answers(self):
        for answer in (tidemark.predict(SMALL), tidemark.sweep(SMALL, {"micro_batch": [1, "<two>"]}), tidemark.estimate(SMALL)):
            shown = answer._repr_html_()
            self.assertEqual(shown.count("<tr>"), len(answer.rows()) + 1)
            self.assertNotIn("<two>", shown)
        self.assertIn("yes, it fits", tidemark.predict(SMALL)._repr_html_())

    def test_validate_starts_the_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            starter = Path(folder) / "starter"
            starter.write_text('#!/bin/sh\nprintf "%s " "$@" > "$0.words"\nprintf "they agree\\n"\n')
            starter.chmod(0o755)
            found = tidemark.validate(SMALL, scale=16, mpirun=[str(starter)])
            words = Path(f"{starter}.words").read_text().split()
        self.assertTrue(found.agrees)
        self.assertEqual((found.ranks, found.text), (2, "they agree\n"))
        self.assertEqual(words[:4], ["-np", "2", program, "validate"])
        self.assertEqual(words[words.index("--scale") + 1], "16")

    def test_the_version_is_the_program_s(self):
        self.assertEqual(tidemark.__version__, subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip())

    def test_a_program_that_is_not_there(self):
        os.environ["TIDEMARK_PROGRAM"] = "/nowhere/tidemark"
        try:
            with self.assertRaises(tidemark.InternalError):
                tidemark.predict(SMALL)
        finally:
            os.environ["TIDEMARK_PROGRAM"] = program

    def test_launch_files_go_in_and_out(self):
        script = source / "tests/convert/recipes/llama3-8b-fragment.sh"
        made = tidemark.convert(script, cluster="h100-sxm-80g")
        self.assertTrue(made.expressed)
        self.assertIn('model = "models/llama-3.1-8b.json"', made.text)
        back = tidemark.convert(script, cluster="h100-sxm-80g", to="megatron", launcher="sbatch")
        self.assertIn("#SBATCH --nodes=1", back.text)
        lossy = tidemark.convert(source / "tests/convert/recipes/fp8-is-bounded.sh", cluster="h100-sxm-80g")
        self.assertFalse(lossy.expressed)
        self.assertTrue(any("sequence_parallel" in r["why"] for r in lossy.not_expressed))

    def test_advise_and_plan(self):
        advice = tidemark.advise(SMALL, changes=1)
        self.assertTrue(advice.fits)
        self.assertLess(advice.lacks_bytes, 0)
        space = {**SMALL, "space": {"train": {"micro_batch": [1, 2]}}}
        space["train"] = {"sequence_length": 512, "micro_batch": 1, "global_batch": 4}
        found = tidemark.plan(space, top=2)
        self.assertTrue(found.fits)
        self.assertEqual(found.candidates, 2)
        self.assertEqual(len(found.best), 2)

    def test_capacity_and_the_pages_of_answers(self):
        study = {**SMALL, "gpus": 1, "capacity": {"largest": "train.sequence_length", "by": "train.micro_batch"},
                 "space": {"train": {"sequence_length": [256, 512, 1024], "micro_batch": [1, 2]}}}
        found = tidemark.capacity(study)
        self.assertTrue(found.any)
        self.assertEqual((found.largest, found.by), ("train.sequence_length", "train.micro_batch"))
        self.assertEqual([(limit.by, limit.largest) for limit in found.limits], [(1, 1024), (2, 1024)])
        self.assertTrue(all(limit.peak_device_upper_bytes > 0 for limit in found.limits))
        with tempfile.TemporaryDirectory() as folder:
            page = tidemark.report(found, output=Path(folder) / "study.html", figures=Path(folder) / "figures")
            self.assertEqual((page.kind, page.yes), ("capacity", True))
            self.assertIn("</html>", (Path(folder) / "study.html").read_text())
            self.assertTrue((Path(folder) / "figures/frontier.svg").exists())

    def test_a_report_draws_what_a_prediction_says(self):
        from tidemark import _curves
        prediction = tidemark.predict(SMALL)
        with tempfile.TemporaryDirectory() as folder:
            page = tidemark.report(SMALL, output=Path(folder) / "report.html")
            both = tidemark.report(SMALL, {**SMALL, "gpus": 1, "train": {"sequence_length": 512, "micro_batch": 2}}, output=Path(folder) / "both.html")
        self.assertEqual([page.kind, both.kind, len(both.json["reports"])], ["prediction", "beside", 2])
        rows = _curves.memory_over_step(page.json)
        # Moments are told in KiB.
        self.assertAlmostEqual(max(row["device_bytes"] for row in rows) / prediction.peak_device_bytes, 1, places=4)
        for row in rows:
            held = sum(row[name] for name in page.json["categories"])
            self.assertLess(abs(held - row["device_bytes"]), 64 * 1024)
        self.assertEqual([row["time_s"] for row in rows], sorted(row["time_s"] for row in rows))

    def test_replay(self):
        found = tidemark.replay(source / "tests/fuzz/corpus/pickle/snapshot-protocol4.pickle")
        self.assertTrue(found.yes)
        less = tidemark.replay(source / "tests/fuzz/corpus/pickle/snapshot-protocol4.pickle", capacity="1 MiB")
        self.assertFalse(less.yes)

    def test_progress_is_told_and_complaints_are_kept(self):
        told = []
        tidemark.predict(SMALL, progress=lambda done, all: told.append((done, all)))  # too quick to tell much
        from tidemark import _program
        reading, writing = os.pipe()
        os.write(writing, b"\r\x1b[Ksimulating ranks: 3 of 8, about 2 s left\rjob.toml:1:2: error: x\n")
        os.close(writing)
        lines = []
        _program._listen(reading, lines, lambda done, all: told.append((done, all)))
        os.close(reading)
        self.assertIn((3, 8), told)
        self.assertEqual(lines, ["job.toml:1:2: error: x\n"])

    def test_ctrl_c_ends_the_program_too(self):
        script = ("import os, signal, sys, threading; sys.path.insert(0, sys.argv[1]); import tidemark;"
                  "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start();"
                  "tidemark.predict('x')")
        with tempfile.TemporaryDirectory() as folder:
            slow = Path(folder) / "slow"
            slow.write_text("#!/bin/sh\necho $$ > \"$0.pid\"\nexec sleep 60\n")
            slow.chmod(0o755)
            ended = subprocess.run([sys.executable, "-c", script, str(source / "python")], capture_output=True, timeout=30,
                                   env={**os.environ, "TIDEMARK_PROGRAM": str(slow)})
            self.assertIn(b"KeyboardInterrupt", ended.stderr)
            with self.assertRaises(ProcessLookupError):
                os.kill(int((Path(folder) / "slow.pid").read_text()), 0)

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not there")
    def test_tables(self):
        frame = tidemark.predict(SMALL).to_pandas()
        self.assertEqual(int(frame["ranks"].sum()), 2)
        with tempfile.TemporaryDirectory() as folder:
            moments = tidemark.report(SMALL, output=Path(folder) / "report.html").to_pandas()
        self.assertGreater(len(moments), 100)
        self.assertTrue((moments["device_bytes"] > 0).all())

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not there")
    def test_types_are_whole(self):
        checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(source / "python/tidemark")],
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_the_example_of_the_page_runs(self):
        page = (source / "docs/library.md").read_text()
        example = re.search(r"```python\n(.*?)```", page, re.S).group(1)
        exec(compile(example, "docs/library.md", "exec"), {})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
