"""What `accelerate launch` would start: printed as JSON, as accelerate itself works it out of its flags and its
configuration. Run as a script, in the user's own environment."""

import json
import os
import sys


def launched(arguments):
    from accelerate.commands import launch

    parser = launch.launch_command_parser()
    args = parser.parse_args(arguments)
    before = dict(os.environ)
    args, _, _ = launch._validate_launch_command(args)
    several = (args.num_processes or 1) > 1 or (args.num_machines or 1) > 1
    if args.use_deepspeed and not args.cpu:
        _, environment = launch.prepare_deepspeed_cmd_env(args)
    elif several and not args.cpu:
        environment = launch.prepare_multi_gpu_env(args)
    else:
        _, environment = launch.prepare_simple_launcher_cmd_env(args)
    nodes = int(args.num_machines or 1)
    return {
        "environment": {k: str(v) for k, v in environment.items() if before.get(k) != str(v)},
        "module": bool(args.module), "script": args.training_script, "arguments": list(args.training_script_args),
        "tells_ranks": several or bool(args.use_deepspeed), "nodes": nodes, "ranks": int(args.num_processes or 1),
    }  # fmt: skip


if __name__ == "__main__":
    del sys.path[0]  # of this file's folder: its names are others' names too
    said = launched(sys.argv[2:])
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(said, file)
