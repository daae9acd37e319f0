"""Slipstick: a model, a plan and a system into what a step takes and what it costs."""

# Absolute imports on purpose: pytest imports this file a second time under the checkout folder's own name.
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstick.backends.system import System, load_system
    from slipstick.driver import Estimate, estimate
    from slipstick.frontend import GraphCache, load
    from slipstick.ir.errors import SlipstickError
    from slipstick.ir.graph import Graph
    from slipstick.ir.plan import Family, Plan, make_plan

__version__ = "0.1.0"

__all__ = [
    "Estimate",
    "Family",
    "Graph",
    "GraphCache",
    "Plan",
    "SlipstickError",
    "System",
    "estimate",
    "load",
    "load_system",
    "make_plan",
]

# Where each public name lives; a module is imported when its name is first asked for.
_MODULE_OF = {
    "Estimate": "slipstick.driver",
    "Family": "slipstick.ir.plan",
    "Graph": "slipstick.ir.graph",
    "GraphCache": "slipstick.frontend",
    "Plan": "slipstick.ir.plan",
    "SlipstickError": "slipstick.ir.errors",
    "System": "slipstick.backends.system",
    "estimate": "slipstick.driver",
    "load": "slipstick.frontend",
    "load_system": "slipstick.backends.system",
    "make_plan": "slipstick.ir.plan",
}

# Hidden from type checkers, which would otherwise accept any name at all.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first use and keep it."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'slipstick' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names before they are loaded, too."""
        return sorted({*globals(), *__all__})
