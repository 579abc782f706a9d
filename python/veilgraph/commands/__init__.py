"""The verbs of the command line: a module or a folder each, with its `command`.

It is `commands/<verb>`, or lies in a folder of verbs with one subject, which FOLDERS names.

A module is loaded when its verb is called, and imports MLIR, ONNX or PyTorch only where it calls
what needs them: a party's host has none of the three.
"""

from __future__ import annotations

from importlib.util import find_spec

_ALL: dict[str, str] = {
    "compile": "Turn a model into a plan, and its weights into a file beside it.",
    "inspect": "Show what a plan costs, layer by layer, and who learns what.",
    "verify": "Hold a plan to its program and its suite, before taking part.",
    "sign": "Sign a plan as its author.",
    "check": "Compare a plan's exact integers with ONNX Runtime, layer by layer.",
    "rehearse": "Train by a plan's exact integers in the clear, beside float32.",
    "prepare": "Run offline phases ahead of time, into a party's store.",
    "run": "Take part in a session as one of the parties.",
    "serve": "Serve plans to clients as one of the parties.",
    "infer": "Ask the parties of a service, as a client.",
    "share": "Write files for parties that are asked later, as a client.",
    "answer": "Run on files of clients that are offline, as one of the parties.",
    "reveal": "Put the parties' files of an answer together, as a client.",
    "gateway": "Speak KServe's protocol on loopback, and ask a service.",
    "train": "Take part in training a model as one of the parties.",
    "simulate": "Run all parties of a plan on this machine.",
    "bench": "Measure seconds, rounds, bytes and memory of a plan on this machine.",
    "trace": "Put traces of several parties on one time line.",
    "cert": "Make keys and certificates for mutual TLS, and keys of authors.",
    "join": "Exchange certificates with all parties, and compare one string.",
    "ops": "List the ONNX operators that can be compiled.",
    "doctor": "Look at what this machine has, and what it lacks.",
    "demo": "Classify handwritten digits among three processes, start to end.",
}
# Folders of several verbs.
FOLDERS: dict[str, str] = {
    **dict.fromkeys(("bench", "trace"), "measuring"),
    **dict.fromkeys(("cert", "join", "sign", "verify"), "trust"),
    **dict.fromkeys(("answer", "gateway", "infer", "reveal", "serve", "share"), "serving"),
}


def module_of(verb: str) -> str:
    """The module that has the `command` of a verb.

    >>> module_of("cert")
    'veilgraph.commands.trust.cert'
    """
    folder = f"{FOLDERS[verb]}." if verb in FOLDERS else ""
    return f"veilgraph.commands.{folder}{verb}"


def _is_installed(verb: str) -> bool:
    module = module_of(verb)
    return bool(find_spec(module.rpartition(".")[0]) and find_spec(module))


# Those that are installed: veilgraph-client has few of them, and few of the folders.
VERBS: dict[str, str] = {verb: says for verb, says in _ALL.items() if _is_installed(verb)}
