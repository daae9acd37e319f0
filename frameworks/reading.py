"""Which framework a launch is of, and its settings as that framework reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..ir.errors import ParseError, UsageError, did_you_mean
from ..ir.records import dataclass
from ..ir.units import is_digits
from .forms import documents_of, settings_in
from .launch import Launch, Value, settings_of
from .manifests import launched
from .registry import ENGINES, FRAMEWORKS, TRAINERS, reader_of
from .shell.effects import Command
from .shell.marks import UNKNOWN
from .shell.script import read_script
from .training.recipes import python_recipe

# What a command line of each framework runs, as a pattern of one of its words.
_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "megatron": r"(.*/)?(pretrain|train|finetune)_(gpt|bert|t5|mamba|vlm|hybrid|ict|retro|vision|mimo)\w*\.py",
        "maxtext": r"(maxtext|MaxText)(\.\w+)*\.train|(.*/)?(MaxText|maxtext)(/\w+)*/train\.py",
        "torchtitan": r"torchtitan(\.\w+)*|(.*/)?torchtitan/train\.py",
        "vllm": r"vllm(\.entrypoints[\w.]*)?|atom\.entrypoints[\w.]*",
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
        "nanotron": ("tokens.micro_batch_size", "parallelism.tp", "model.model_config.hidden_size"),
        "maxtext": ("per_device_batch_size", "max_target_length", "ici_fsdp_parallelism"),
        "transformers": (
            "per_device_train_batch_size",
            "distributed_type",
            "base_model",
            "model_name_or_path",
            "sequence_len",
            "cutoff_len",
        ),
        "vllm": ("max_num_batched_tokens", "max_model_len"),
        "sglang": ("mem_fraction_static", "tp_size", "chunked_prefill_size"),
        "tensorrt-llm": ("max_num_tokens", "kv_cache_config.free_gpu_memory_fraction"),
    }
)
# Settings without dashes: a pattern of their words, and the flag that each is.
BARE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "maxtext": (r"^(?=\w+=)", "--"),
        "torchtitan": (r"^activation-checkpoint:(\w+)$", r"--activation_checkpoint.mode=\1"),
    }
)
# Settings that name a file of more settings.
_FILES = ("config", "config_file", "extra_llm_api_options", "deepspeed", "deepspeed_config", "deepspeed_config_file")
_NODES = ("nnodes", "num_nodes", "n", "nodes")
_PER_NODE = ("nproc_per_node", "num_gpus", "gpus_per_node", "ntasks_per_node", "nproc_per_node")


def read_launch(
    text: str,
    name: str = "",
    framework: str | None = None,
    num_gpus: int | None = None,
    environment: Mapping[str, str] | None = None,
    beside: Callable[[str], str | None] | None = None,
) -> Launch:
    """Return a launch of another framework in the words of a plan; nothing of it is run.

    Args:
        text: a shell script, a command line, or a file of settings: JSON, TOML, YAML.
        name: of its file, whose ending says the form; a command line has none. Behind the name of a file of recipes
            in Python stands which: `llama3.py::llama3_8b_pretrain_8gpu_h100_bf16_config`.
        framework: one of `FRAMEWORKS`; None to find out.
        num_gpus: devices of the launch, where the text does not say.
        environment: variables that a script finds set.
        beside: reads a file that the launch names (`--extra_llm_api_options`, `deepspeed:`); None where there is none.

    Raises:
        ParseError: no such text, or a value that is none of its setting's.
        UsageError: an unknown framework, or none that the text is of.
    """
    if framework is not None and framework not in FRAMEWORKS:
        raise UsageError(
            f"unknown framework '{framework}'{did_you_mean(framework, FRAMEWORKS)} allowed: {', '.join(FRAMEWORKS)}"
        )
    wanted = LaunchContext(framework, num_gpus, dict(environment or {}), beside or (lambda _: None))
    try:
        return _on_devices(_of_text(text, name, wanted), num_gpus)
    except RecursionError:
        raise ParseError("brackets, conditions or calls are nested too deep to be read") from None


def _on_devices(launch: Launch, num_gpus: int | None) -> Launch:
    """Return a launch on the devices that its user names where it counts none: more of a server are replicas of it."""
    words = launch.words if num_gpus is None else {"gpus": num_gpus, **launch.words}
    return replace(launch, words=words)


def _of_text(text: str, name: str, wanted: LaunchContext) -> Launch:
    """Read a launch by the form of its text."""
    file, _, recipe = name.partition("::")
    if file.endswith(".py"):
        return python_recipe(text, file, recipe or None, wanted.num_gpus, wanted.beside)
    documents = documents_of(text, name)
    if documents is None:
        return _of_script(text, wanted)
    if (inside := launched(documents)) is not None:
        around = replace(
            wanted,
            environment={**inside.environment, **wanted.environment},
            num_gpus=wanted.num_gpus or inside.num_gpus,
        )
        return _of_script(inside.script, around)
    given = settings_in(documents[0] if documents else {}, wanted.environment)
    found = wanted.framework or given.framework or _told_by(given.values)
    if found not in FRAMEWORKS:
        told = ", ".join(f"{key} ({', '.join(words[:2])})" for key, words in _TELLS.items())
        named = f" it names '{found}'," if found else ""
        raise UsageError(
            f"{name}:{named} settings of no framework that is known, by any of {told}; say --framework NAME"
        )
    return _read(found, given.values, given.shown, wanted)


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What a user says around a launch, and the files that stand beside it."""

    framework: str | None
    num_gpus: int | None
    environment: Mapping[str, str]
    beside: Callable[[str], str | None]


def _told_by(given: Mapping[str, Value], least: int = 1) -> str | None:
    """Return the framework with most of its tell-tale settings; None where none has `least`."""
    counts = {one: sum(word in given for word in words) for one, words in _TELLS.items()}
    found = max(counts, key=lambda one: counts[one])
    return found if counts[found] >= least else None


def _of_script(text: str, wanted: LaunchContext) -> Launch:
    """Read the first command of a script that a framework runs."""
    script = read_script(text, wanted.environment)
    written = replace(wanted, beside=lambda name: script.files.get(name) or wanted.beside(name))
    for command in script.commands:
        named = [(name, at) for name in _PROGRAMS if (at := _program_at(command, name)) is not None]
        for framework, at in named:
            if wanted.framework in (None, framework):
                return _of_command(framework, at, command, script.commands, written)
    # Flags alone, as `-- --tensor-model-parallel-size 8`, and programs of one's own.
    for command in sorted(script.commands, key=lambda one: -len(one.words)):
        given = settings_of(command.words)[0]
        told = wanted.framework or _told_by(given, least=2)
        if told is not None:
            # Behind a program of one's own; flags alone have none.
            at = next((k for k, word in enumerate(command.words) if word.endswith(".py")), -1)
            return _of_command(told, at, command, script.commands, written)
    raise UsageError(
        f"no command of {', '.join(FRAMEWORKS)} is in it: for flags alone, or a wrapper of your own, say --framework"
    )


def _program_at(command: Command, framework: str) -> int | None:
    """Return where the program of a framework stands in a command: no value of a flag, and with its verb."""
    pattern, words = re.compile(_PROGRAMS[framework]), command.words
    for at, word in enumerate(words):
        before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        starts = word not in _VERBS or after in _VERBS[word]
        is_value = before.startswith("-") and before != "-m" and word.isalpha() and word not in _VERBS
        if starts and pattern.fullmatch(word) and not is_value:
            return at
    return None


def _of_command(framework: str, at: int, command: Command, others: Sequence[Command], wanted: LaunchContext) -> Launch:
    """Read a command: what stands before its program launches it, what stands behind are its settings."""
    # Settings without dashes: `name=value` of MaxText, a choice among kinds of torchtitan.
    bare, flag = BARE.get(framework, (r"(?!)", ""))
    given, shown, alone = settings_of([re.sub(bare, flag, word) for word in command.words[at + 1 :]])
    launcher = settings_of(command.words[: max(at, 0)])[0]
    if framework == "deepspeed" and any(word.endswith(".py") for word in command.words):
        given, shown, alone = settings_of(command.words[at + 1 :])
        # What DeepSpeed starts has arguments of transformers' Trainer, or its own under the same names.
        framework = "transformers" if _told_by(given) in (None, "deepspeed") else str(_told_by(given))
    if (launcher_file := launcher.get("config_file")) is not None and framework == "transformers":
        given = {"config_file": launcher_file, **given}
    alone = [word for word in alone if word not in ("serve", "api_server", "-m") and not word.endswith(".py")]
    for wrapper in others:
        if wrapper.words[0] in ("#SBATCH", "srun"):
            launcher |= settings_of(wrapper.words[1:])[0]
    # What torchrun, srun or deepspeed start: nodes x those of a node.
    each = next((_whole(launcher[name]) for name in _PER_NODE if name in launcher), None)
    nodes = next((_whole(launcher[name]) for name in _NODES if name in launcher), 1)
    started = None if each is None or nodes is None else each * nodes
    around = replace(wanted, num_gpus=wanted.num_gpus or started)
    launch = _read(framework, given, shown, around, alone[0] if alone else None)
    if not command.words[at].startswith("atom."):
        return launch
    return replace(launch, assumed=("engine vllm in the place of ATOM, whose flags are like its", *launch.assumed))


def _whole(value: Value) -> int | None:
    text = str(value[0] if isinstance(value, tuple) and value else value).split(":")[-1]
    return int(text) if is_digits(text) else None


def _read(
    framework: str,
    given: Mapping[str, Value],
    shown: Mapping[str, str],
    wanted: LaunchContext,
    alone: str | None = None,
) -> Launch:
    given = _with_files(given, wanted)
    if framework in TRAINERS:
        return reader_of(framework)(given, shown, wanted.num_gpus)
    model = None if alone is None or UNKNOWN in alone else alone
    return ENGINES[framework].read(given, shown, wanted.num_gpus, model)


def _with_files(given: Mapping[str, Value], wanted: LaunchContext) -> Mapping[str, Value]:
    """Put the settings of files that a launch names in their place, under those that it says itself."""
    found = dict(given)
    for name in _FILES:
        path = given.get(name)
        text = wanted.beside(path) if isinstance(path, str) and UNKNOWN not in path else None
        documents = None if text is None or path is None else documents_of(text, str(path))
        if documents:
            del found[name]
            found = {**settings_in(documents[0], wanted.environment).values, **found}
    return found
