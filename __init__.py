"""Slipstick: a model, a plan and a system into what a step takes and what it costs."""

# Absolute imports on purpose: pytest imports this file a second time under the checkout folder's own name.
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from slipstick.ir import __version__ as __version__

if TYPE_CHECKING:
    from slipstick.app.python.verbs import (
        choose,
        compare,
        compile,
        cost,
        estimate,
        explain,
        export,
        mixed,
        models,
        operators,
        optimise,
        posttrain,
        recompute,
        search,
        serve,
        size,
        sweep,
        systems,
        topologies,
    )
    from slipstick.backends.machine.load import load_system
    from slipstick.backends.machine.system import System
    from slipstick.backends.machine.system_table import tabled
    from slipstick.driver.estimate import (
        Estimate,
        Estimates,
        Lowered,
        MachineEstimates,
        Screened,
        estimate_many,
        evaluate,
        evaluate_machines,
        lower,
        screen,
    )
    from slipstick.explore.plans.degrees import Degrees
    from slipstick.explore.plans.job import PlanJob, PlanMachine
    from slipstick.explore.plans.space import Choices, PlanSpace
    from slipstick.frontend import GraphCache, load
    from slipstick.frontend.dynamo import Captured, backend, capture
    from slipstick.frontend.exported import load_exported, trace_graph
    from slipstick.frontend.module import trace
    from slipstick.frontend.runs.model_run import ModelRun
    from slipstick.frontend.semantic.costs import register_cost
    from slipstick.ir.editing.build import GraphBuilder
    from slipstick.ir.errors import SlipstickError
    from slipstick.ir.graph import Graph, Workload
    from slipstick.ir.plan import Defaults, Family, Plan, PlanTable, PlanWords, make_plan, plan_of
    from slipstick.ir.types import DType
    from slipstick.watch.session import watch

__all__ = [
    "Captured",
    "Choices",
    "DType",
    "Defaults",
    "Degrees",
    "Estimate",
    "Estimates",
    "Family",
    "Graph",
    "GraphBuilder",
    "GraphCache",
    "Lowered",
    "MachineEstimates",
    "ModelRun",
    "Plan",
    "PlanJob",
    "PlanMachine",
    "PlanSpace",
    "PlanTable",
    "PlanWords",
    "Screened",
    "SlipstickError",
    "System",
    "Workload",
    "backend",
    "capture",
    "choose",
    "compare",
    "compile",
    "cost",
    "estimate",
    "estimate_many",
    "evaluate",
    "evaluate_machines",
    "explain",
    "export",
    "load",
    "load_exported",
    "load_system",
    "lower",
    "make_plan",
    "mixed",
    "models",
    "operators",
    "optimise",
    "plan_of",
    "posttrain",
    "recompute",
    "register_cost",
    "screen",
    "search",
    "serve",
    "size",
    "sweep",
    "systems",
    "tabled",
    "topologies",
    "trace",
    "trace_graph",
    "watch",
]

# Where each public name lives; a module is imported when its name is first asked for.
_MODULE_OF = {
    "Captured": "slipstick.frontend.dynamo",
    "Choices": "slipstick.explore.plans.space",
    "DType": "slipstick.ir.types",
    "Defaults": "slipstick.ir.plan",
    "Degrees": "slipstick.explore.plans.degrees",
    "Estimate": "slipstick.driver.estimate",
    "Estimates": "slipstick.driver.estimate",
    "Family": "slipstick.ir.plan",
    "Graph": "slipstick.ir.graph",
    "GraphBuilder": "slipstick.ir.editing.build",
    "GraphCache": "slipstick.frontend",
    "Lowered": "slipstick.driver.estimate",
    "MachineEstimates": "slipstick.driver.estimate",
    "ModelRun": "slipstick.frontend.runs.model_run",
    "Plan": "slipstick.ir.plan",
    "PlanJob": "slipstick.explore.plans.job",
    "PlanMachine": "slipstick.explore.plans.job",
    "PlanSpace": "slipstick.explore.plans.space",
    "PlanTable": "slipstick.ir.plan",
    "PlanWords": "slipstick.ir.plan",
    "Screened": "slipstick.driver.estimate",
    "SlipstickError": "slipstick.ir.errors",
    "System": "slipstick.backends.machine.system",
    "Workload": "slipstick.ir.graph",
    "backend": "slipstick.frontend.dynamo",
    "capture": "slipstick.frontend.dynamo",
    "choose": "slipstick.app.python.verbs",
    "compare": "slipstick.app.python.verbs",
    "compile": "slipstick.app.python.verbs",
    "cost": "slipstick.app.python.verbs",
    "estimate": "slipstick.app.python.verbs",
    "estimate_many": "slipstick.driver.estimate",
    "evaluate": "slipstick.driver.estimate",
    "evaluate_machines": "slipstick.driver.estimate",
    "explain": "slipstick.app.python.verbs",
    "export": "slipstick.app.python.verbs",
    "load": "slipstick.frontend",
    "load_exported": "slipstick.frontend.exported",
    "load_system": "slipstick.backends.machine.load",
    "lower": "slipstick.driver.estimate",
    "make_plan": "slipstick.ir.plan",
    "plan_of": "slipstick.ir.plan",
    "mixed": "slipstick.app.python.verbs",
    "models": "slipstick.app.python.verbs",
    "operators": "slipstick.app.python.verbs",
    "posttrain": "slipstick.app.python.verbs",
    "recompute": "slipstick.app.python.verbs",
    "register_cost": "slipstick.frontend.semantic.costs",
    "screen": "slipstick.driver.estimate",
    "search": "slipstick.app.python.verbs",
    "serve": "slipstick.app.python.verbs",
    "size": "slipstick.app.python.verbs",
    "optimise": "slipstick.app.python.verbs",
    "sweep": "slipstick.app.python.verbs",
    "systems": "slipstick.app.python.verbs",
    "topologies": "slipstick.app.python.verbs",
    "tabled": "slipstick.backends.machine.system_table",
    "trace": "slipstick.frontend.module",
    "trace_graph": "slipstick.frontend.exported",
    "watch": "slipstick.watch.session",
}


class _Called(ModuleType):
    """A folder with the name of a function: `slipstick.cost(...)` is a call, `slipstick.cost.money` a module in it."""

    def __call__(self, *given: object, **said: object) -> object:
        """Call the function."""
        found: object = self._function()(*given, **said)
        return found

    @property
    def __signature__(self) -> object:
        """The signature of the function."""
        from inspect import signature

        return signature(self._function())

    def _function(self) -> Callable[..., object]:
        from importlib import import_module

        name = self.__name__.rpartition(".")[2]
        found: Callable[..., object] = getattr(import_module(_MODULE_OF[name]), name)
        return found


class _Package(ModuleType):
    """The package itself, which Python tells of each folder that it imports."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _MODULE_OF and isinstance(value, ModuleType):
            value.__class__ = _Called
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

# Hidden from type checkers, which would otherwise accept any name at all.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first use and keep it."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'slipstick' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(_MODULE_OF[name]), name)
        # A folder of that name may have been imported with it: then it stays, and can be called.
        return globals().setdefault(name, value)

    def __dir__() -> list[str]:
        """List the public names before they are loaded, too."""
        return sorted(__all__)
