"""Which framework a launch is of, and its settings as that framework reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import TypeAlias

from ...ir.errors import ParseError, UsageError, did_you_mean
from ...ir.text.formats import check_settings, read_json, read_toml, read_yaml
from .launch import Launch, Value, flattened, plain, settings_of
from .megatron import megatron
from .servers import ENGINES, server
from .shell import UNKNOWN, Command, commands
from .trainers import deepspeed, torchtitan, trainer

Trainer: TypeAlias = Callable[[Mapping[str, Value], Mapping[str, str], "int | None"], Launch]
TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed, "transformers": trainer}
)
FRAMEWORKS = (*TRAINERS, *ENGINES)
# What a command line of each framework runs, as a pattern of one of its words.
_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "megatron": r"(.*/)?(pretrain|train|finetune)_(gpt|bert|t5|mamba|vlm|hybrid|ict|retro|vision|mimo)\w*\.py",
        "torchtitan": r"torchtitan(\.\w+)*|(.*/)?torchtitan/train\.py",
        "vllm": r"vllm(\.entrypoints[\w.]*)?",
        "sglang": r"sglang(\.launch_server|\.bench_one_batch|\.bench_offline\w*)?",
        "tensorrt-llm": r"trtllm-(serve|bench)",
        "lmdeploy": r"lmdeploy",
        "deepspeed": r"(.*/)?deepspeed|deepspeed\.launcher\.\w+",
    }
)
# Programs of several verbs, and those that start what is read.
_VERBS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"vllm": ("serve",), "sglang": ("serve",), "lmdeploy": ("serve",), "trtllm-bench": ()}
)
# Words by which settings of a file are told apart, of each framework.
_TELLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "megatron": ("tensor_model_parallel_size", "micro_batch_size", "num_layers"),
        "torchtitan": ("training.seq_len", "training.local_batch_size", "parallelism.tensor_parallel_degree"),
        "deepspeed": ("zero_optimization.stage", "train_micro_batch_size_per_gpu", "train_batch_size"),
        "transformers": ("per_device_train_batch_size", "distributed_type", "base_model", "model_name_or_path"),
        "vllm": ("max_num_batched_tokens", "max_model_len"),
        "sglang": ("mem_fraction_static", "tp_size", "chunked_prefill_size"),
        "tensorrt-llm": ("max_num_tokens", "kv_cache_config.free_gpu_memory_fraction"),
    }
)
_NODES = ("nnodes", "num_nodes", "n", "nodes")
_PER_NODE = ("nproc_per_node", "num_gpus", "gpus_per_node", "ntasks_per_node", "nproc_per_node")


def read_launch(
    text: str,
    name: str = "",
    framework: str | None = None,
    num_gpus: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Launch:
    """Return a launch of another framework in the words of a plan; nothing of it is run.

    Args:
        text: a shell script, a command line, or a file of settings: JSON, TOML, YAML.
        name: of its file, whose ending says the form; a command line has none.
        framework: one of `FRAMEWORKS`; None to find out.
        num_gpus: devices of the launch, where the text does not say.
        environment: variables that a script finds set.

    Raises:
        ParseError: no such text, or a value that is none of its setting's.
        UsageError: an unknown framework, or none that the text is of.
    """
    if framework is not None and framework not in FRAMEWORKS:
        raise UsageError(
            f"unknown framework '{framework}'{did_you_mean(framework, FRAMEWORKS)} allowed: {', '.join(FRAMEWORKS)}"
        )
    tree = _tree(text, PurePath(name).suffix.lower(), name)
    if tree is None:
        return _of_script(text, framework, num_gpus, environment)
    given, shown = _settings(tree, environment or {})
    # The framework with most of its tell-tale settings.
    counts = {one: sum(word in given for word in words) for one, words in _TELLS.items()}
    found = framework or max(counts, key=lambda one: counts[one])
    if framework is None and not counts[found]:
        told = ", ".join(f"{key} ({', '.join(words[:2])})" for key, words in _TELLS.items())
        raise UsageError(f"{name}: settings of no framework that is known, by any of {told}; say --framework NAME")
    return _read(found, given, shown, num_gpus, None)


def _tree(text: str, suffix: str, name: str) -> object:
    """Return a file of settings as mappings and lists; None for a script or a command line."""
    where = name or "the launch"
    if suffix == ".json" or text.lstrip().startswith("{"):
        return read_json(text, where)
    if suffix == ".toml":
        return read_toml(text, where)
    if suffix in (".yaml", ".yml"):
        return read_yaml(text, where)
    check_settings(text, where)
    return None


def _settings(tree: object, environment: Mapping[str, str]) -> tuple[dict[str, Value], dict[str, str]]:
    """Return settings by plain name and how each stands in its file; of a Megatron test case its arguments alone."""
    if not isinstance(tree, Mapping):
        raise ParseError("a file of settings holds a mapping, and this is a list or a single value")
    arguments = tree.get("MODEL_ARGS") or tree.get("modules", {}) if "MODEL_ARGS" in tree else tree
    if not isinstance(arguments, Mapping):
        raise ParseError("MODEL_ARGS is no mapping of flags")
    given = {
        name: value for name, value in flattened(arguments).items() if value is not False or "MODEL_ARGS" not in tree
    }
    shown = {plain(str(key)): str(key) for key in arguments}

    def set_to(match: re.Match[str]) -> str:
        """Fill in a variable; what nobody sets stands as unknown."""
        return environment.get(match[1], f"{UNKNOWN}{match[0]}{UNKNOWN}")

    variables = re.compile(r"\$\{?(\w+)\}?")
    filled = {n: variables.sub(set_to, value) if isinstance(value, str) else value for n, value in given.items()}
    return filled, shown


def _of_script(text: str, framework: str | None, num_gpus: int | None, environment: Mapping[str, str] | None) -> Launch:
    """Read the first command of a script that a framework runs."""
    found = commands(text, environment)
    for command in found:
        named = [(name, at) for name in _PROGRAMS if (at := _program_at(command, name)) is not None]
        wanted = [pair for pair in named if framework in (None, pair[0])]
        if wanted:
            return _of_command(*wanted[0], command, found, num_gpus)
    if framework is not None and found:
        # Flags alone, as `-- --tensor-model-parallel-size 8`.
        given, shown, alone = settings_of(max(found, key=lambda one: len(one.words)).words)
        return _read(framework, given, shown, num_gpus, alone[0] if alone else None)
    raise UsageError(
        f"no command of {', '.join(FRAMEWORKS)} is in it: for flags alone, or a wrapper of your own, say --framework"
    )


def _program_at(command: Command, framework: str) -> int | None:
    """Return where the program of a framework stands in a command: no value of a flag, and with its verb."""
    pattern, words = re.compile(_PROGRAMS[framework]), command.words
    for at, word in enumerate(words):
        before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        starts = word not in _VERBS or after in _VERBS[word]
        if starts and pattern.fullmatch(word) and (before == "-m" or not before.startswith("-")):
            return at
    return None


def _of_command(framework: str, at: int, command: Command, others: Sequence[Command], num_gpus: int | None) -> Launch:
    """Read a command: what stands before its program launches it, what stands behind are its settings."""
    # A choice among kinds stands behind all flags of torchtitan: `activation-checkpoint:full`.
    words = [re.sub(r"^activation-checkpoint:(\w+)$", r"--activation_checkpoint.mode=\1", w) for w in command.words]
    given, shown, alone = settings_of(words[at + 1 :])
    launcher = settings_of(command.words[:at])[0]
    if framework == "deepspeed" and any(word.endswith(".py") for word in command.words):
        given, shown, alone = settings_of(command.words[at + 1 :])
        framework = "transformers" if "per_device_train_batch_size" in given else framework
    alone = [word for word in alone if word not in ("serve", "api_server", "-m")]
    for wrapper in others:
        if wrapper.words[0] in ("#SBATCH", "srun"):
            launcher |= settings_of(wrapper.words[1:])[0]
    # What torchrun, srun or deepspeed start: nodes x those of a node.
    each = next((_whole(launcher[name]) for name in _PER_NODE if name in launcher), None)
    nodes = next((_whole(launcher[name]) for name in _NODES if name in launcher), 1)
    started = None if each is None or nodes is None else each * nodes
    return _read(framework, given, shown, num_gpus or started, alone[0] if alone else None)


def _whole(value: Value) -> int | None:
    text = str(value[0] if isinstance(value, tuple) and value else value).split(":")[-1]
    return int(text) if text.isdigit() else None


def _read(
    framework: str, given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None, alone: str | None
) -> Launch:
    if framework in TRAINERS:
        return TRAINERS[framework](given, shown, num_gpus)
    model = None if alone is None or UNKNOWN in alone else alone
    return server(framework, given, shown, model)
