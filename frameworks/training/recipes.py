"""Recipes of Megatron-Bridge and NeMo, functions of Python that set fields of a configuration; none of it is run.

As in NVIDIA-NeMo/Megatron-Bridge at commit 067f987df03b, src/megatron/bridge/perf_recipes, and in NVIDIA/NeMo at
commit 8cfedd720346, nemo/collections/llm/recipes. A recipe begins with the configuration of another function, or with
parts (`run.Config(MegatronStrategy, tensor_model_parallel_size=4)`), and sets fields of it:
`cfg.model.tensor_model_parallel_size = 2`. Fields have the names of Megatron-LM's flags.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import TypeAlias

from ...ir.errors import ParseError, UsageError, did_you_mean
from ...ir.records import dataclass
from ..launch import Launch, Value, Word
from ..shapes import catalogue_name
from .expressions import Known, is_met, literal, parameters, reading, told
from .megatron import MEGATRON

# Calls in calls, and nodes of all functions that are read: those of NeMo read some thousand.
_DEEPEST, _MOST_NODES = 20, 200_000
# What its data parallelism is where a recipe does not say: src/megatron/bridge/training/config.py, comm_overlap.py.
_SHARDED: Mapping[str, Value] = {
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "moe_token_dispatcher_type": "alltoall",
}
_USUAL: Mapping[str, Value] = {**_SHARDED, "grad_reduce_in_bf16": True}
_TENSORWISE: Mapping[str, Value] = {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": True}


def _first_last(layers: int) -> Mapping[str, Value]:
    """Return the settings by which the first and the last layers stay in bf16."""
    ends = {"num_layers_at_start_in_bf16": layers, "num_layers_at_end_in_bf16": layers}
    return {"first_last_layers_bf16": True, **ends}


# Names of precision, as settings: those of Megatron-Bridge, then those of NeMo (recipes/precision/mixed_precision.py).
_PRECISIONS: Mapping[str, Mapping[str, Value]] = {
    "bf16": {"bf16": True},
    "fp8_cs": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8_ds": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "delayed"},
    "fp8_sc": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "blockwise"},
    "fp8_mx": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4": "e2m1"},
    "fp16": {"fp16": True},
    "bf16_with_fp8": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "delayed", "fp8_param_gather": True},
    "bf16_with_mxfp8": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "mxfp8", "fp8_param_gather": True},
    "bf16_with_fp8_current_scaling": {**_TENSORWISE, **_first_last(1)},
    "nemotron_h_bf16_with_fp8_current_scaling": {**_TENSORWISE, **_first_last(2)},
    "nanov2_bf16_with_fp8_current_scaling": {**_TENSORWISE, **_first_last(2), "fp8_recipe": "blockwise"},
    "bf16_with_fp8_subchannel_scaling": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "blockwise"},
}
# Values of `precision` in Lightning's words.
_LIGHTNING: Mapping[str, str] = {"bf16-mixed": "bf16", "bf16-true": "bf16", "16-mixed": "fp16", "16-true": "fp16"}
# Parts of a configuration that change neither time nor memory.
_ELSEWHERE = ("env_vars", "tokenizer", "logger", "checkpoint", "rng", "dist", "profiling", "scheduler", "validation",
              "log", "resume", "lr_scheduler", "dir", "name", "fn", "max_steps", "lr", "min_lr", "path", "betas", "eps",
              "tp_comm_overlap_cfg")  # fmt: skip
_PRECISION_KEYS = frozenset(key for settings in _PRECISIONS.values() for key in settings)
_DEGREES = ("tensor_model", "pipeline_model", "context")
# Linear layers of Megatron by the names that they have apart.
_ADAPTED: Mapping[str, tuple[str, ...]] = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}
# Fields that hold a precision by its name.
_OF_PRECISION = ("mixed_precision", "plugins")
_NAMES: Mapping[str, str] = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "average_in_collective": "ddp_average_in_collective",
    "gated_linear_unit": "swiglu",
    "moe_a2a_overlap": "overlap_moe_expert_parallel_comm",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "keep_fp8_transpose_cache": "no_fp8_weight_transpose_cache",
}
_RECIPE = re.compile(r"(?P<model>\w+?)_(?:pretrain|sft|finetune)_(?:config_)?(?:(?P<gpus>[0-9]+)gpu)?\w*")
# Recipes of NeMo have these names in every file, which has the model's as its NAME.
_OF_NEMO = re.compile(r"(pretrain|finetune)_recipe(_performance)?")


Beside: TypeAlias = Callable[[str], "str | None"]


@dataclass(frozen=True, slots=True)
class _Module:
    """Functions and constants of a file, and what it imports: by its name there, the module and the name in it."""

    functions: Mapping[str, ast.FunctionDef]
    imports: Mapping[str, tuple[str, str]]
    constants: Mapping[str, Value]

    @property
    def recipes(self) -> Sequence[str]:
        """The names of its recipes."""
        named = (one for one in self.functions if not one.startswith("_"))
        return [one for one in named if _RECIPE.fullmatch(one) or _OF_NEMO.fullmatch(one)]


@dataclass(slots=True)
class _Recipe:
    """Fields that are set so far, what was not read, names of parts that were, and modules that were read."""

    beside: Beside
    values: dict[str, Value] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    modules: dict[str, _Module | None] = field(default_factory=dict)
    num_nodes: int = 0


def module_of(text: str, name: str) -> _Module:
    """Return the functions and imports of a file of recipes; ParseError with its line for what is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise ParseError(f"{name}:{line or 1}: no Python: {getattr(error, 'msg', error)}") from None
    named = [node for node in body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    imports = {one.asname or one.name: (str(node.module), one.name) for node in named for one in node.names}
    constants = dict[str, Value]()
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=of)], value=ast.Constant(value=str() | int() | float() as value)):
                constants[of] = value
    return _Module({node.name: node for node in body if isinstance(node, ast.FunctionDef)}, imports, constants)


def recipes_in(text: str, name: str) -> Sequence[str]:
    """Return the names of the recipes of a file."""
    return module_of(text, name).recipes


def python_recipe(text: str, name: str, recipe: str | None, num_gpus: int | None, beside: Beside) -> Launch:
    """Return a recipe of a file as a launch.

    Args:
        text: the file.
        name: of the file.
        recipe: the function, or a call of it: `pretrain_recipe(num_nodes=8)`; None where the file has one.
        num_gpus: devices of the launch, where neither its name (`..._64gpu_h100_bf16_config`) nor its nodes say.
        beside: reads the file of a module that it imports (`megatron/bridge/recipes/common.py`).

    Raises:
        UsageError: no such recipe, or several and none is named.
    """
    module = module_of(text, name)
    public = module.recipes
    if recipe is None and len(public) == 1:
        recipe = public[0]
    if recipe is None:
        raise UsageError(f"{name}: say which behind its name, {name}::RECIPE; it has {', '.join(public) or 'none'}")
    call = _call_of(recipe, name)
    function = ast.unparse(call.func)
    if function not in module.functions:
        near = did_you_mean(function, public)
        raise UsageError(f"{name}: no recipe '{function}'{near} it has {', '.join(public) or 'none'}")
    read = _Recipe(beside)
    known = parameters(module.functions[function], call, module.constants)
    _check_arguments(module.functions[function], call, name)
    _run(read, module, module.functions[function], known, 0)
    adapters = _adapters(read, str(known.get("peft_scheme") or "none"))
    given, stack, devices = _of_framework(read, module, function)
    launch = MEGATRON.read(given, {key: key for key in given}, num_gpus or devices)
    unread = tuple(f"not read, and taken to change nothing: {one}" for one in dict.fromkeys(read.unread))
    return replace(launch, words={**launch.words, **stack, **adapters}, assumed=(*launch.assumed, *unread))


def _call_of(recipe: str, name: str) -> ast.Call:
    """Return `NAME` or `NAME(argument=value)` as a call; UsageError for anything else."""
    try:
        found = ast.parse(recipe, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    match found:
        case ast.Name():
            return ast.Call(found, [], [])
        case ast.Call(func=ast.Name(), args=[]):
            return found
    raise UsageError(f"{name}: '{recipe}' is no recipe; write its name, or name(num_nodes=8)")


def _check_arguments(function: ast.FunctionDef, call: ast.Call, name: str) -> None:
    """Refuse arguments that a user gives to a recipe and that would be lost: of another name, or no literal."""
    takes = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    for one in call.keywords:
        if one.arg is None or (one.arg not in takes and function.args.kwarg is None):
            told = f"'{one.arg}'" if one.arg else "**"
            near = did_you_mean(one.arg or "", takes)
            raise UsageError(
                f"{name}: {function.name}() takes no {told}{near} it takes {', '.join(takes) or 'nothing'}"
            )
        if not reading(one.value, {})[0]:
            raise UsageError(f"{name}: {one.arg} is no literal in {ast.unparse(call)[:80]}")


def _of_framework(
    read: _Recipe, module: _Module, function: str
) -> tuple[Mapping[str, Value], Mapping[str, Word], int | None]:
    """Return the settings with what is usual in the framework, the word of its stack, and the devices it says."""
    nodes, each = read.values.pop("num_nodes", None), read.values.pop("devices", None)
    if _OF_NEMO.fullmatch(function) is None:
        said = _RECIPE.fullmatch(function)
        spelled, gpus = ("", None) if said is None else (said["model"], said["gpus"])
        usual, stack = _USUAL, dict[str, Word](stack="megatron-bridge")
        devices = int(gpus) if gpus else None
    else:
        spelled, usual, stack = str(module.constants.get("NAME", "")), _SHARDED, {}
        devices = nodes * each if isinstance(nodes, int) and isinstance(each, int) else None
        degrees = [read.values.get(f"{axis}_parallel_size") for axis in _DEGREES]
        needed = prod(degree for degree in degrees if isinstance(degree, int) and degree)
        if devices is not None and devices % needed:
            read.unread.append(f"{devices} GPUs, which are no multiple of the {needed} that its degrees need")
            devices = None
    given = {**usual, **read.values}
    given["model"] = catalogue_name(spelled) or given.get("model", spelled)
    return given, stack, devices


def _adapters(read: _Recipe, scheme: str) -> Mapping[str, Word]:
    """Return the words of the adapters that a recipe trains, none for none; UsageError for those that are not LoRA.

    As in nemo/collections/llm/peft/lora.py: rank 32 beside all linear layers.
    """
    named = str(read.values.pop("peft", scheme)).lower()
    kind = scheme.lower() if "peft_scheme" in named else named.rpartition(".")[2]
    parts = read.values.pop("peft_target_modules", None)
    rank, dropout = read.values.pop("peft_dim", 32), read.values.pop("peft_dropout", None)
    if kind == "none":
        return {}
    if kind != "lora":
        raise UsageError(f"peft {kind}: adapters of low rank (LoRA) are read, and no others")
    named_parts = parts if isinstance(parts, list | tuple) else ()
    modules = [name for part in named_parts for name in _ADAPTED.get(str(part), (str(part),))]
    words: dict[str, Word] = {"lora_rank": rank if isinstance(rank, int) and not isinstance(rank, bool) else 32}
    return (
        words
        | ({"lora_modules": ",".join(modules)} if modules else {})
        | ({"lora_dropout": dropout} if isinstance(dropout, float) and dropout else {})
    )


def _run(read: _Recipe, module: _Module, function: ast.FunctionDef, known: Known, depth: int) -> None:
    """Read the statements of a function in order, with its parameters as they are known."""
    read.num_nodes += sum(1 for _ in ast.walk(function))
    if depth > _DEEPEST or read.num_nodes > _MOST_NODES:
        raise ParseError(f"{function.name}: recipes call each other more than {_DEEPEST} deep, or without end")
    _statements(read, module, function.body, {**module.constants, **known}, depth)


def _statements(read: _Recipe, module: _Module, body: Sequence[ast.stmt], known: dict[str, Value], depth: int) -> None:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(value, ast.Call):
                known.pop(name, None)
                known |= told({name: value}, known)
            case ast.Assign(targets=[target], value=value):
                _assign(read, module, target, value, known, depth)
            case ast.Expr(value=ast.Call() as call) | ast.Return(value=ast.Call() as call):
                _called(read, module, call, known, depth)
            case ast.If(test=test) if (met := is_met(test, known)) is not None:
                _statements(read, module, statement.body if met else statement.orelse, known, depth)
            case ast.If(test=test):
                read.unread.append(f"if {ast.unparse(test)[:60]}: ...")
            case _:
                pass


def _assign(
    read: _Recipe, module: _Module, target: ast.expr, value: ast.expr, known: Mapping[str, Value], depth: int
) -> None:
    """Set a field by its last name, or read what a call sets."""
    path = ast.unparse(target).split(".")
    if isinstance(value, ast.Call) and len(path) == 1:
        read.parts.add(path[0])
    if path[-1] == "peft" and isinstance(value, ast.Call):
        read.values["peft"] = ast.unparse(value.args[0] if value.args else value.func)
        _parts(read, module, [(f"peft_{one.arg}", one.value) for one in value.keywords], known, depth)
    elif isinstance(value, ast.Call) and path[-1] not in _OF_PRECISION:
        _called(read, module, value, known, depth)
    elif len(path) > 1 and path[1] not in _ELSEWHERE:
        _set(read, f"peft_{path[-1]}" if path[-2] == "peft" else path[-1], value, known)


def _set(read: _Recipe, name: str, value: ast.expr, known: Known) -> None:
    """Set a field: None takes it back, what is no literal stays unknown."""
    if name == "precision" and (said := _LIGHTNING.get(str(literal(value, known)))) is not None:
        read.values[said] = True
        return
    if name in _OF_PRECISION:
        first = value.args[0] if isinstance(value, ast.Call) and value.args else value
        named = str(literal(first, known) or ast.unparse(first)).removesuffix("()").removesuffix("_mixed")
        # It stands in the place of the one before.
        kept = {key: one for key, one in read.values.items() if key not in _PRECISION_KEYS}
        read.values = {**kept, **_PRECISIONS.get(named, {})}
        return
    name, found = _NAMES.get(name, name), literal(value, known)
    if found is None and isinstance(value, ast.Name) and value.id in read.parts:
        return
    if found is None:
        read.values.pop(name, None)
        read.unread += [] if reading(value, known)[0] else [f"{name} = {ast.unparse(value)[:60]}"]
    elif name == "grad_reduce_in_fp32":
        read.values["grad_reduce_in_bf16"] = not found
    else:
        read.values[name] = found


def _called(read: _Recipe, module: _Module, call: ast.Call, known: Known, depth: int) -> None:
    """Read what a call sets: fields of a configuration, a function of this file or of one that it imports."""
    name = ast.unparse(call.func)
    if "from_hf_pretrained" in name or "from_hf_config" in name:
        constants = (node.value for node in ast.walk(call) if isinstance(node, ast.Constant))
        read.values["model"] = next((value for value in constants if isinstance(value, str)), "")
        return
    if name.endswith("pipeline_model_parallel_layout"):
        layouts = [one for one in (literal(arg, known) for arg in call.args) if isinstance(one, str)]
        if layouts:
            read.values["pipeline_model_parallel_layout"] = layouts[0]
            return
    if (found := _function(read, module, name, 0)) is not None:
        _parts(read, module, [(None, one) for one in call.args], known, depth)
        made = [
            one for one in call.keywords if one.arg not in _ELSEWHERE and isinstance(one.value, ast.Call | ast.List)
        ]
        _parts(read, module, [(None, one.value) for one in made], known, depth)
        read.parts |= {str(one.arg) for one in made}
        where, function = found
        _run(read, where, function, parameters(function, call, known), depth + 1)
    elif name.rpartition(".")[2][:1].isupper():
        _parts(read, module, [(one.arg, one.value) for one in call.keywords], known, depth)
        _parts(read, module, [(None, one) for one in call.args], known, depth)
    elif name.rpartition(".")[2] in ("append", "extend", "insert"):
        _parts(read, module, [(None, one) for one in call.args], known, depth)
    else:
        read.unread.append(f"{name}()")


def _parts(
    read: _Recipe, module: _Module, given: Sequence[tuple[str | None, ast.expr]], known: Known, depth: int
) -> None:
    """Read the arguments of a call: fields by their names, and calls and lists of calls wherever they stand."""
    for name, value in given:
        if name in _ELSEWHERE:
            continue
        match value:
            case ast.Call() if name not in _OF_PRECISION:
                _called(read, module, value, known, depth)
            case ast.List(elts=[ast.Call(), *_]):
                _parts(read, module, [(None, one) for one in value.elts], known, depth)
            case _ if name is not None:
                _set(read, name, value, known)


def _function(read: _Recipe, module: _Module, name: str, depth: int) -> tuple[_Module, ast.FunctionDef] | None:
    """Return a function by its name in a module, from the module that has it; None where no file does."""
    if name in module.functions:
        return module, module.functions[name]
    if name not in module.imports or depth > _DEEPEST:
        return None
    where, original = module.imports[name]
    if where not in read.modules:
        path = where.replace(".", "/")
        text = read.beside(f"{path}.py") or read.beside(f"{path}/__init__.py")
        read.modules[where] = None if text is None else module_of(text, f"{path}.py")
    found = read.modules[where]
    return None if found is None else _function(read, found, original, depth + 1)
