"""Words of disaggregated pools: prompts on some devices, answers on others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.units import is_digits
from ..run_words import refuse_idle

if TYPE_CHECKING:
    from ..request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """What a user asked of pools, as typed."""

    disagg: str | None = None
    prefill_system: str | None = None
    prefill_tp: int | None = None
    prefill_pp: int | None = None
    prefill_ep: int | None = None
    prefill_etp: int | None = None
    prefill_batch: int | None = None
    kv_bandwidth: str | None = None
    stream_kv: bool = False

    @property
    def workers(self) -> tuple[int, int] | None:
        """Workers of prompts and of answers; None without pools. UsageError for what is no such pair."""
        if self.disagg is None:
            given = {
                "--prefill-system": self.prefill_system,
                "--prefill-tp": self.prefill_tp,
                "--prefill-pp": self.prefill_pp,
                "--prefill-ep": self.prefill_ep,
                "--prefill-etp": self.prefill_etp,
                "--prefill-batch": self.prefill_batch,
                "--kv-bandwidth": self.kv_bandwidth,
                "--stream-kv": self.stream_kv or None,
            }
            refuse_idle(given, "of pools: say how many workers there are with --disagg P:D")
            return None
        first, colon, then = self.disagg.partition(":")
        if not colon or not is_digits(first) or not is_digits(then) or not int(first) * int(then):
            raise UsageError(f"--disagg {self.disagg}: workers of prompts and of answers, as in 2:6")
        return int(first), int(then)

    @property
    def bytes_per_s(self) -> float | None:
        """What carries caches, where it was said."""
        from ...ir.units import parse_quantity

        return None if self.kv_bandwidth is None else parse_quantity(self.kv_bandwidth, "B/s").value_si

    def of_prompts(self, request: Request, workers: int) -> Request:
        """Return what is asked of the pool of prompts."""
        own = {name: getattr(self, f"prefill_{name}") for name in ("tp", "pp", "ep", "etp", "system")}
        return self.of_answers(request.said({name: degree for name, degree in own.items() if degree}), workers)

    def of_answers(self, request: Request, workers: int) -> Request:
        """Return what is asked of the pool of answers; UsageError for devices that pools already say."""
        if request.words.num_gpus is not None or request.words.dp is not None:
            raise UsageError("--gpus and --dp: with --disagg P:D the pools say how many workers there are")
        return request.said({"dp": workers})
