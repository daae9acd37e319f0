"""Formats: how a hostile file of each is made, and the command that reads it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import yaml

from slipstick.backends.machine.software.phases import running

from .binary import exported, profiled
from .judge import CODE, FLAGS, Outcome, judged
from .mutate import Tree, bred, changed, flipped, retabled, reworded, rough, swapped, times
from .onnx_models import mutated as mutated_onnx
from .schemas import grown, write_defaults
from .seeds import (
    GRAPHS,
    INFERENCE,
    LAUNCHES,
    MEASURED,
    OF_SERVERS,
    REQUESTS,
    ROOT,
    SPACES,
    STYLES,
    TRACE,
    TRAFFIC,
    TRAINING,
    configs,
    kernels,
    systems,
    tables,
    trees,
    written,
)
from .words import command_line

# Writes a hostile file where the process is, and returns the command that reads it.
Case: TypeAlias = Callable[[random.Random], list[str]]
# Lies where the process is, and is read whatever is typed.
DEFAULTS = "slipstick.toml"
_ON = ("--system", "dgx-h100", "--gpus", "8", "--seq", "256", "--gbs", "16", "--format", "json")
_DECODING = ("--system", "dgx-h100", "--phase", "decode", "--seq", "128", "--format", "json")
_SERVED = ("--system", "dgx-h100", "--gpus", "2", "--phase", "serve")
_MANY = ("--concurrency", "8", "--isl", "128", "--osl", "64")
_WORDS = (
    "batch", "seq", "kv", "512", "128", "0", "-1", "9" * 20, "bf16", "int64", "fp4", "%0", "%9999", "x4", "x100000000",
    "saved", "~0", "~7", "backward", "recompute", "of %3", "in %1", "1e308", "nan", "2*seq", "seq^99", "seq + -1",
    "batch*batch*batch*seq", "{}", "[]", '""', "kind", "<S(0)>", "matmul", "attention", "experts", "all_reduce",
    "kv_append", "param", "input", "port", "prologue", "epilogue", "block0", "|", "abc,dc->abd", "abc,abc->", "->",
    "aaaa,b->c", "seq^-1", "9" * 500,
)  # fmt: skip


_SHELL = ("0", "-1", "1e999", "9" * 500, "$X", "${", "$(id)", "`", "'", '"', "\\", ";", "=", "nan")


def _put(name: str, data: str | bytes) -> str:
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    Path(name).write_bytes(raw)
    return name


def _tree(rng: random.Random, tree: Tree, herd: Sequence[Tree], kind: str = "") -> Tree:
    """Return a tree with values that may stand there, with keys of the schema of its kind, or with odd values."""
    which = rng.random()
    if which < 0.5:
        return bred(rng, tree, herd)
    return grown(rng, tree, kind) if kind and which < 0.75 else changed(rng, tree, CODE)


def _yaml(rng: random.Random, tree: Tree, herd: Sequence[Tree], kind: str = "", text: str = "") -> str:
    if rng.random() < 0.8:
        return yaml.safe_dump(_tree(rng, tree, herd, kind), allow_unicode=True)
    return rough(rng, text or yaml.safe_dump(tree, sort_keys=False))


def _system(rng: random.Random) -> list[str]:
    tree = rng.choice(systems())
    name = _put("x.yaml", _yaml(rng, tree, systems(), "system"))
    if rng.random() < 0.2:
        return ["cost", name, "--format", "json"]
    return ["estimate", "tiny.graph", "--system", name, *_ON[2:], "--tp", rng.choice(["1", "2"])]


def _part(flag: str, folder: str) -> Case:
    def case(rng: random.Random) -> list[str]:
        at = rng.randrange(len(trees(folder)))
        name = _put("x.yaml", _yaml(rng, trees(folder)[at], trees(folder), flag[2:], written(folder)[at]))
        if flag == "--prices":
            basis = rng.choice(["market", "build"])
            return ["cost", "dgx-h100", flag, name, "--basis", basis, "--format", "json"]
        if flag == "--engine":
            return ["estimate", "tiny.json", *_SERVED, *_MANY, flag, name, "--format", "json"]
        if flag == "--stack" and _name_of(trees(folder)[at]) not in running("train", "stack"):
            return ["estimate", "decode.graph", *_DECODING, flag, name]
        return ["estimate", "tiny.graph", *_ON, flag, name]

    return case


def _name_of(tree: Tree) -> str:
    return str(tree["name"]) if isinstance(tree, dict) else ""


def _plan(rng: random.Random) -> list[str]:
    plan = rng.choice([*TRAINING, *INFERENCE])
    # What another phase says is refused at once.
    herd = [plan] if plan in INFERENCE else TRAINING
    if rng.random() < 0.4:
        name = _put("x.json", json.dumps(_tree(rng, plan, herd, "plan")))
    else:
        name = _put("x.yaml", _yaml(rng, plan, herd, "plan"))
    return ["estimate", "--plan", name, "--format", "json"]


def _defaults(rng: random.Random) -> list[str]:
    text = write_defaults(rng, "estimate")
    _put(DEFAULTS, text if rng.random() < 0.9 else rough(rng, text))
    return ["estimate", "tiny.graph", *_ON]


def _space(rng: random.Random) -> list[str]:
    name = _put("x.yaml", _yaml(rng, rng.choice(SPACES), SPACES, "space"))
    return ["search", "--space", name, "--no-ledger", "--jobs", "1", "-q", "--no-why"]


def _tp_plan(rng: random.Random) -> list[str]:
    kind = rng.random()
    if kind < 0.3:
        lines = [f'"{k}" = "{v}"' if isinstance(v, str) else f"{k} = true" for k, v in dict(STYLES).items()]  # type: ignore[arg-type]
        name = _put("x.toml", rough(rng, "\n".join(lines) + "\n"))
    elif kind < 0.6:
        name = _put("x.json", json.dumps(changed(rng, STYLES, ["colwise", "rowwise", "replicate"])))
    else:
        name = _put("x.yaml", _yaml(rng, STYLES, [STYLES]))
    return ["estimate", "tiny.graph", *_ON, "--tp", "2", "--tp-plan", name]


def _graph(rng: random.Random) -> list[str]:
    which = rng.choice(GRAPHS)
    text = (ROOT / "tests" / "golden" / f"{which}.graph").read_text(encoding="utf-8")
    kind = rng.random()
    text = swapped(rng, text) if kind < 0.8 else reworded(rng, text, _WORDS) if kind < 0.9 else rough(rng, text, _WORDS)
    if rng.random() < 0.9:
        name = _put("x.graph", text)
    else:
        packed = gzip.compress(text.encode())
        name = _put("x.graph.gz", packed if rng.random() < 0.7 else flipped(rng, packed))
    more = rng.choice([[], [], ["--recompute", "full"], ["--zero", "3"], ["--pp", "2"], ["--sp"]])
    phase = which.rpartition(".")[2]
    if phase == "decode":
        return ["estimate", name, *_DECODING]
    return ["estimate", name, *_ON, "--tp", rng.choice(["1", "2"]), *more]


def _config(rng: random.Random) -> list[str]:
    tree = rng.choice(configs())
    if rng.random() < 0.85:
        found = bred(rng, tree, configs()) if rng.random() < 0.4 else changed(rng, tree)
        if times(rng, (0, 0, 0, 0, 0, 0, 1)) and isinstance(found, dict):
            found |= rng.choice(_CONFIGS)
        text = json.dumps(found)
    else:
        text = rough(rng, json.dumps(tree), ["{", "}", "[", "]", ",", '"', "NaN", "1e999", "\\ud800", "[" * 5000])
    name = _put("x.json", text)
    phase = rng.choice(["train", "prefill", "decode"])
    where = _ON if phase == "train" else (*_ON[:6], "--format", "json")
    return ["estimate", name, *where, "--phase", phase, "--no-cache", "-q"]


_CONFIGS: tuple[dict[str, Tree], ...] = (
    {"auto_map": {"AutoModelForCausalLM": "evil--evil.Evil"}, "trust_remote_code": True},
    {"_attn_implementation": "kernels-community/flash-attn"},
    {"model_type": "qwen3_moe"},
    {"model_type": "t5"},
    {"model_type": "x"},
    {"quantization_config": {"quant_method": "fp8"}},
    {"quantization_config": {"quant_method": None}},
    {"architectures": ["Evil", 3]},
    {"rope_scaling": {"type": "x", "factor": -1}},
    {"num_hidden_layers": 100000},
    {"sliding_window": -4},
    {"vocab_size": 10**12},
    {"hidden_act": "__import__"},
    {"pad_token_id": 10**9},
)


def _csv(rng: random.Random) -> list[str]:
    fits = rng.random() < 0.15
    text = rng.choice(kernels() if fits else tables())
    bits = [",", '"', "\n", "\x00", "nan", ";", "\t", "\ufeff"]
    name = _put("table.csv", retabled(rng, text) if rng.random() < 0.85 else rough(rng, text, bits))
    if fits:
        return ["calibrate", "--from", name, "-o", "fits/"]
    return ["validate", name, "--format", "json", "--jobs", "1", "-q"]


def _requests(rng: random.Random) -> list[str]:
    kind = rng.random()
    records = bred(rng, REQUESTS, [REQUESTS]) if kind < 0.5 else changed(rng, REQUESTS)
    rows = [one for one in (records if isinstance(records, list) else []) if isinstance(one, dict)]
    if kind < 0.5:
        rows.sort(key=lambda one: str(one.get("timestamp", "")).zfill(9))
    if rng.random() < 0.5:
        text = "".join(f"{json.dumps(one)}\n" for one in rows)
        name = _put("x.jsonl", text if kind < 0.8 else rough(rng, text))
    else:
        cells = [",".join(str(one.get(key, "")) for key in TRAFFIC) for one in rows]
        text = "\n".join([",".join(TRAFFIC.values()), *cells, ""])
        if kind >= 0.5:
            text = retabled(rng, text) if kind < 0.9 else rough(rng, text, [",", '"', "\n", "nan"])
        name = _put("x.csv", text)
    return ["estimate", "tiny.json", *_SERVED, "--serve", name, "--format", "json"]


def _report(rng: random.Random) -> list[str]:
    tree: Tree = json.loads(Path("base.json").read_text(encoding="utf-8"))
    name = _put("x.json", json.dumps(changed(rng, tree)) if rng.random() < 0.85 else rough(rng, json.dumps(tree)))
    if rng.random() < 0.2:
        return ["report", name, "-o", "out.md"]
    pair = [name, "base.json"] if rng.random() < 0.5 else ["base.json", name]
    more: list[list[str]] = [[], ["--format", "json"], ["--format", "md"], ["--fail-on", "step_time_s>+5%"]]
    return ["compare", *pair, *rng.choice(more)]


def _ledger(rng: random.Random) -> list[str]:
    name = _put("x.ledger", flipped(rng, Path("base.ledger").read_bytes()))
    verbs = (["runs", "show", name], ["runs", "show", name, "--format", "json"], ["runs", "export", name, "-o", "-"])
    return list(rng.choice(verbs))


def _trace(rng: random.Random) -> list[str]:
    text = json.dumps(changed(rng, TRACE)) if rng.random() < 0.8 else rough(rng, json.dumps(TRACE))
    if rng.random() < 0.8:
        name = _put("x.trace.json", text)
    else:
        packed = gzip.compress(text.encode())
        name = _put("x.trace.json.gz", packed if rng.random() < 0.6 else flipped(rng, packed))
    return ["compare", "base.json", "--measured", name, "--format", rng.choice(["json", "table"])]


def _measured(rng: random.Random) -> list[str]:
    suffix = rng.choice(list(MEASURED))
    text = MEASURED[suffix]
    if suffix != "log" and rng.random() < 0.8:
        text = json.dumps(changed(rng, json.loads(text)))
    else:
        text = rough(rng, text, ["9" * 400, "-1", "nan", "inf", "0", "K", ",", "\x00", "\n", "e999", "iteration"])
    base = "served.json" if suffix in OF_SERVERS else "base.json"
    return ["compare", base, "--measured", _put(f"x.{suffix}", text), "--format", "json"]


def _launch(rng: random.Random) -> list[str]:
    suffix = rng.choice(list(LAUNCHES))
    text = LAUNCHES[suffix]
    if suffix == "json" and rng.random() < 0.8:
        text = json.dumps(changed(rng, json.loads(text)))
    elif suffix == "yaml" and rng.random() < 0.8:
        text = yaml.safe_dump(changed(rng, yaml.safe_load(text)))
    elif rng.random() < 0.5:
        text = reworded(rng, text, _SHELL)
    else:
        text = rough(rng, text)
    more: list[list[str]] = [[], ["--gpus", "16"], ["--format", "json"], ["--system", "dgx-h100"]]
    return ["import", _put(f"x.{suffix}", text), *rng.choice(more)]


def _onnx(rng: random.Random) -> list[str]:
    name = _put("x.onnx", mutated_onnx(rng, flipped))
    more: list[list[str]] = [[], ["--allow-unpriced"]]
    return ["trace", name, "--phase", "prefill", "--format", "json", "-q", "--no-cache", *rng.choice(more)]


def _pt2(rng: random.Random) -> list[str]:
    name = _put("x.pt2", exported(rng))
    return ["trace", name, "--phase", "prefill", "--format", "json", "-q", "--no-cache", "--allow-unpriced"]


def _nsys(rng: random.Random) -> list[str]:
    profiled(rng, Path("x.sqlite"))
    return ["compare", "base.json", "--measured", "x.sqlite", "--format", rng.choice(["json", "table"])]


FORMATS: Mapping[str, Case] = MappingProxyType(
    {
        "config": _config,
        "system": _system,
        "stack": _part("--stack", "stacks"),
        "engine": _part("--engine", "engines"),
        "prices": _part("--prices", "prices/profiles"),
        "calibration": _part("--calibration", "calibration"),
        "plan": _plan,
        "defaults": _defaults,
        "space": _space,
        "tp-plan": _tp_plan,
        "graph": _graph,
        "onnx": _onnx,
        "pt2": _pt2,
        "csv": _csv,
        "requests": _requests,
        "report": _report,
        "ledger": _ledger,
        "trace": _trace,
        "nsys": _nsys,
        "measured": _measured,
        "launch": _launch,
        "words": command_line,
    }
)


def tried(name: str, rng: random.Random) -> tuple[list[str], Outcome]:
    """Make a hostile file of a format where the process is, and judge what becomes of it."""
    try:
        command = FORMATS[name](rng)
        return command, judged(command, FLAGS) if name == "words" else judged(command)
    finally:
        Path(DEFAULTS).unlink(missing_ok=True)
