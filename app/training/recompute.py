"""What layers keep, offload and recompute, found for a plan and a limit of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..plans.text import plan_file_text, words_around
from ..prepare import check_model, sized, system_of
from ..request import Request
from ..run_words import quantity_of
from ..software import with_software

if TYPE_CHECKING:
    from ...report.results.policies import PolicyResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeRequest(Request):
    """A plan, the memory it may take, and which policies are tried."""

    limit: str | None
    offloading: bool
    by_stage: bool
    runs_on: str | None


def find_recompute_policy(request: RecomputeRequest) -> PolicyResult:
    """Find the policy with the fastest training step within the memory."""
    from ...explore.recompute.search import find_policy
    from ...explore.recompute.spaces import FRAMEWORKS, space_of
    from ...report.results.policies import PolicyResult

    if request.words.phase != "train":
        raise UsageError(f"--phase {request.words.phase}: memory policies say what training keeps; use --phase train")
    limit_bytes = quantity_of(request.limit, "B", "--memory-limit")
    if limit_bytes is not None and limit_bytes <= 0:
        raise UsageError(f"--memory-limit {request.limit}: above 0, as 70GiB")
    check_model(request)
    request = with_software(request)
    system = system_of(request)
    graph, plan = sized(request, system.stack)
    runs_on = request.runs_on
    if runs_on is None and system.stack.framework in FRAMEWORKS:
        runs_on = system.stack.framework
    space = replace(space_of(runs_on), to_host=request.offloading, by_stage=request.by_stage)
    found = find_policy(graph, system, plan, limit_bytes, space)
    return PolicyResult(found=found, model=graph.name, system=system, runs_on=runs_on)


def plan_text(request: Request, found: PolicyResult) -> str:
    """Return the plan under the best policy as a file that `estimate --plan` takes."""
    return plan_file_text(found.found.best.plan, words_around(with_software(request)))
