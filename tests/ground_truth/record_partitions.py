"""Records what torch.compile's partitioner is given and what it saves: the joint graph of forward and backward pass of
each region that torchtitan compiles, without a GPU (README.md).

python tests/ground_truth/record_partitions.py --releases FOLDER     # as record_titan.py takes it; a minute each
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import record_fake
import titan

OUT = record_fake.HERE.parent / "golden" / "partitions" / "recordings"
# By the recording of torchtitan that is compiled.
SUBJECTS = [
    "compiled_8", "compiled_8_op", "compiled_8_full", "compiled_0.1.0_8_op", "compiled_tensor_2_8", "compiled_tensor_2_8_op",
    "qwen3_compiled_8_full", "qwen3_compiled_8_op", "compiled_8_budget_20", "compiled_8_budget_50", "compiled_8_budget_80",
    "qwen3_compiled_8_budget_40", "qwen3_compiled_8_budget_70",
]  # fmt: skip
# What PyTorch's own tables say of an operation.
CLASSES = ("view", "fusible", "recomputable", "random", "compute_intensive")


def described(node, partitioners, types, inputs, costs):
    import operator

    from torch.utils.checkpoint import CheckpointPolicy

    classes = [name for name in CLASSES if node.op == "call_function" and getattr(types, f"is_{name}")(node)]
    # A group of processes: it takes nothing, and is there all the time.
    opaque = partitioners.is_opaque_node(node) or isinstance(node.meta["val"], partitioners.FakeScriptObject)
    made = {
        "name": node.name,
        "operation": str(partitioners.get_aten_target(node)) if node.op == "call_function" else node.op,
        "inputs": [other.name for other in node.all_input_nodes],
        "bytes": 0 if opaque else partitioners._size_of(node),
        "classes": classes,
    }
    policy = node.meta.get("recompute")
    if policy is not None and node.op == "call_function":
        made["policy"] = {CheckpointPolicy.MUST_SAVE: "save"}.get(policy, "recompute")
    if costs and "compute_intensive" in classes:
        made["flops"] = int(partitioners.estimate_runtime(node))
    if made["operation"] == "aten.cat":
        classes.append("joins")
    if node.target is operator.getitem:
        made["classes"].append("part")
    if isinstance(node.meta["val"], (tuple, list)):
        made["classes"].append("several")
    if partitioners._is_primal(node):
        made["classes"].append("input")
    if partitioners._is_tangent(node):
        made["classes"].append("tangent")
    if opaque or node in inputs.static_lifetime_input_nodes:
        made["classes"].append("static")
    return made


def hook(graphs):
    from torch._functorch import partitioners

    choose, partition = partitioners.choose_saved_values_set, partitioners.min_cut_rematerialization_partition
    outputs = []
    classify = partitioners.classify_nodes

    def noted(joint_module, static_lifetime_input_indices, num_fwd_outputs):
        outputs[:] = [num_fwd_outputs]
        return classify(joint_module, static_lifetime_input_indices, num_fwd_outputs)

    def chosen(joint_graph, node_info, memory_budget=1):
        saved = choose(joint_graph, node_info, memory_budget)
        types = partitioners.get_default_op_list()
        nodes = [described(n, partitioners, types, node_info, memory_budget != 1) for n in joint_graph.nodes if n.op != "output"]
        (end,) = joint_graph.find_nodes(op="output")
        import torch.utils._pytree as pytree

        ends = pytree.arg_tree_leaves(*end.args)
        forward, backward = ends[: outputs[0]], ends[outputs[0] :]
        graphs.append({
            "outputs": [n.name for n in forward if n is not None],
            "gradients": [n.name for n in backward if n is not None],
            "saved": [n.name for n in saved],
            "budget": memory_budget,
            "nodes": nodes,
        })  # fmt: skip
        return saved

    partitioners.classify_nodes, partitioners.choose_saved_values_set = noted, chosen


def write(name, graphs, out):
    """A node a line."""
    for number, graph in enumerate(graphs):
        what = "loss" if number + 1 == len(graphs) else f"layer_{number}" if number else "layer"
        keys = ("outputs", "gradients", "saved") + (("budget",) if graph["budget"] != 1 else ())
        lines = [f" {json.dumps(key)}: {json.dumps(graph[key])}," for key in keys]
        nodes = ",\n".join(f"  {json.dumps(node)}" for node in graph["nodes"])
        text = "{\n" + "\n".join(lines) + '\n "nodes": [\n' + nodes + "\n ]\n}\n"
        (out / f"{name}_{what}.json").write_text(text)


def record(name, out):
    import gc

    import record_titan

    gc.disable()
    config, settings = titan.settings_of(name)
    graphs = []
    hook(graphs)
    trainer, iterator = record_titan.prepare(config, settings)
    record_titan.train_step(trainer, iterator, settings)
    write(name, graphs, out)
    print(name, *(len(graph["nodes"]) for graph in graphs), flush=True)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=SUBJECTS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--releases", type=Path, required=True)
    arguments = parser.parse_args()
    if "NULL_CUDA_CAPABILITY" in os.environ:
        record(*arguments.names, arguments.out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            settings = titan.settings_of(name)[1]
            environment = record_fake.under_null_cuda(Path(tempfile.mkdtemp(dir=folder)), settings)
            release = arguments.releases.resolve() / settings["torchtitan"]
            environment["PYTHONPATH"] = f"{release}:{environment.get('PYTHONPATH', '')}"
            command = [sys.executable, __file__, name, "--out", str(arguments.out)]
            subprocess.run([*command, "--releases", str(arguments.releases)], env=environment, check=True)


if __name__ == "__main__":
    main()
