"""Recipes of Megatron-Bridge and NeMo, functions of Python that set fields of a configuration; none of it is run.

As in NVIDIA-NeMo/Megatron-Bridge at commit 067f987df03b: src/megatron/bridge/perf_recipes. A recipe begins with the
configuration of another function, and sets fields of it: `cfg.model.tensor_model_parallel_size = 2`. Fields have the
names of Megatron-LM's flags.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from ....ir.errors import ParseError, UsageError, did_you_mean
from ....ir.records import dataclass
from ..launch import Launch, Value
from ..shapes import catalogue_name
from .megatron import megatron

_DEEPEST, _MOST_CALLS = 20, 2_000
# What its data parallelism is where a recipe does not say: src/megatron/bridge/training/config.py, comm_overlap.py.
_USUAL: Mapping[str, Value] = {
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "moe_token_dispatcher_type": "alltoall",
    "grad_reduce_in_bf16": True,
}
# Its names of precision, as settings.
_PRECISIONS: Mapping[str, Mapping[str, Value]] = {
    "bf16": {"bf16": True},
    "fp8_cs": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8_ds": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "delayed"},
    "fp8_sc": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "blockwise"},
    "fp8_mx": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4": "e2m1"},
}
# Parts of a configuration that change neither time nor memory.
_ELSEWHERE = ("env_vars", "tokenizer", "logger", "checkpoint", "rng", "dist", "profiling", "scheduler", "validation")
_NAMES: Mapping[str, str] = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "average_in_collective": "ddp_average_in_collective",
    "gated_linear_unit": "swiglu",
    "moe_a2a_overlap": "overlap_moe_expert_parallel_comm",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "keep_fp8_transpose_cache": "no_fp8_weight_transpose_cache",
}
_RECIPE = re.compile(r"(?P<model>\w+?)_(?:pretrain|sft|finetune)_(?:config_)?(?:(?P<gpus>\d+)gpu)?\w*")


Beside: TypeAlias = Callable[[str], "str | None"]
# Values of parameters and of local variables, by name.
Known: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class _Module:
    """Functions of a file, and what it imports: by its name there, the module and the name in it."""

    functions: Mapping[str, ast.FunctionDef]
    imports: Mapping[str, tuple[str, str]]


@dataclass(slots=True)
class _Recipe:
    """Fields that are set so far, what was called and not read, and modules that were read."""

    beside: Beside
    values: dict[str, Value] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    modules: dict[str, _Module | None] = field(default_factory=dict)
    num_calls: int = 0


def module_of(text: str, name: str) -> _Module:
    """Return the functions and imports of a file of recipes; ParseError with its line for what is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise ParseError(f"{name}:{line or 1}: no Python: {getattr(error, 'msg', error)}") from None
    named = [node for node in body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    imports = {one.asname or one.name: (str(node.module), one.name) for node in named for one in node.names}
    return _Module({node.name: node for node in body if isinstance(node, ast.FunctionDef)}, imports)


def recipes_in(text: str, name: str) -> Sequence[str]:
    """Return the names of the recipes of a file."""
    return [one for one in module_of(text, name).functions if _RECIPE.fullmatch(one) and not one.startswith("_")]


def bridge(text: str, name: str, recipe: str | None, num_gpus: int | None, beside: Beside) -> Launch:
    """Return a recipe of a file as a launch.

    Args:
        text: the file.
        name: of the file.
        recipe: the function; None where the file has one.
        num_gpus: devices of the launch, where its name does not say (`..._64gpu_h100_bf16_config`).
        beside: reads the file of a module that it imports (`megatron/bridge/recipes/common.py`).

    Raises:
        UsageError: no such recipe, or several and none is named.
    """
    module, public = module_of(text, name), recipes_in(text, name)
    if recipe is None and len(public) == 1:
        recipe = public[0]
    if recipe is None:
        raise UsageError(f"{name}: say which behind its name, {name}::RECIPE; it has {', '.join(public) or 'none'}")
    if recipe not in module.functions:
        near = did_you_mean(recipe, public)
        raise UsageError(f"{name}: no recipe '{recipe}'{near} it has {', '.join(public) or 'none'}")
    read = _Recipe(beside)
    _run(read, module, module.functions[recipe], {}, 0)
    said = _RECIPE.fullmatch(recipe)
    if num_gpus is None and said is not None and said["gpus"]:
        num_gpus = int(said["gpus"])
    given = {**_USUAL, **read.values}
    named = None if said is None else catalogue_name(said["model"])
    given["model"] = named or given.get("model", "" if said is None else said["model"])
    launch = megatron(given, {key: key for key in given}, num_gpus)
    unread = tuple(f"not read, and taken to change nothing: {one}" for one in dict.fromkeys(read.unread))
    words = {**launch.words, "stack": "megatron-bridge"}
    return replace(launch, words=words, assumed=(*launch.assumed, *unread))


def _run(read: _Recipe, module: _Module, function: ast.FunctionDef, known: Known, depth: int) -> None:
    """Read the statements of a function in order, with its parameters as they are known."""
    read.num_calls += 1
    if depth > _DEEPEST or read.num_calls > _MOST_CALLS:
        raise ParseError(f"{function.name}: recipes call each other more than {_DEEPEST} deep, or without end")
    _statements(read, module, function.body, dict(known), depth)


def _statements(read: _Recipe, module: _Module, body: Sequence[ast.stmt], known: dict[str, Value], depth: int) -> None:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(value, ast.Call):
                known[name] = _literal(value, known)
            case ast.Assign(targets=[target], value=value):
                _assign(read, module, target, value, known, depth)
            case ast.Expr(value=ast.Call() as call) | ast.Return(value=ast.Call() as call):
                _called(read, module, call, known, depth)
            case ast.If(test=test) if (met := _literal(test, known)) is not None:
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
    if isinstance(value, ast.Call) and path[-1] != "mixed_precision":
        _called(read, module, value, known, depth)
    elif len(path) > 1 and path[1] not in _ELSEWHERE:
        _set(read, path[-1], value, known)


def _set(read: _Recipe, name: str, value: ast.expr, known: Known) -> None:
    """Set a field: None takes it back, what is no literal stays unknown."""
    if name == "mixed_precision":
        first = value.args[0] if isinstance(value, ast.Call) and value.args else value
        named = str(_literal(first, known) or ast.unparse(first)).removesuffix("()").removesuffix("_mixed")
        # It stands in the place of the one before.
        kept = {key: one for key, one in read.values.items() if key not in ("fp8", "fp8_recipe", "fp4")}
        read.values = {**kept, **_PRECISIONS.get(named, {})}
        return
    name, found = _NAMES.get(name, name), _literal(value, known)
    if found is None:
        read.values.pop(name, None)
        read.unread += [] if isinstance(value, ast.Constant) else [f"{name} = {ast.unparse(value)[:60]}"]
    elif name == "grad_reduce_in_fp32":
        read.values["grad_reduce_in_bf16"] = not found
    else:
        read.values[name] = found


def _literal(value: ast.expr, known: Known) -> Value:
    """Return a literal, a parameter, or a type of torch (`torch.bfloat16`); None for None and what is neither."""
    match value:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(attr=name):
            return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(name)
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, str | int | float | bool | list | tuple) else None


def _called(read: _Recipe, module: _Module, call: ast.Call, known: Known, depth: int) -> None:
    """Read what a call sets: fields of a configuration, a function of this file or of one that it imports."""
    name = ast.unparse(call.func)
    if "from_hf_pretrained" in name or "from_hf_config" in name:
        constants = (node.value for node in ast.walk(call) if isinstance(node, ast.Constant))
        read.values["model"] = next((value for value in constants if isinstance(value, str)), "")
        return
    if name.endswith("pipeline_model_parallel_layout"):
        layouts = [one for one in (_literal(arg, known) for arg in call.args) if isinstance(one, str)]
        if layouts:
            read.values["pipeline_model_parallel_layout"] = layouts[0]
            return
    if (found := _function(read, module, name, 0)) is not None:
        where, function = found
        _run(read, where, function, _parameters(function, call, known), depth + 1)
    elif name.rpartition(".")[2][:1].isupper():
        for keyword in call.keywords:
            if isinstance(keyword.value, ast.Call) and keyword.arg != "mixed_precision":
                _called(read, module, keyword.value, known, depth)
            elif keyword.arg not in (None, *_ELSEWHERE):
                _set(read, str(keyword.arg), keyword.value, known)
    else:
        read.unread.append(f"{name}()")


def _parameters(function: ast.FunctionDef, call: ast.Call, known: Known) -> dict[str, Value]:
    """Return what is known of the parameters of a function in a call: its defaults, and what the call gives."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    usual = dict(zip(reversed(names), (_literal(one, {}) for one in reversed(arguments.defaults)), strict=False))
    only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    usual |= {one.arg: None if default is None else _literal(default, {}) for one, default in only}
    placed = dict(zip(names, (_literal(one, known) for one in call.args), strict=False))
    return usual | placed | {str(one.arg): _literal(one.value, known) for one in call.keywords}


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
