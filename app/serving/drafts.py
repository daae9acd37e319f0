"""Words of speculative decoding, and the server that drafts by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..run_words import refuse_idle

if TYPE_CHECKING:
    from ...cost.serving.batching.speculative import Drafter
    from ...driver.serve.server import Server

# Tokens of a draft where nobody says how many.
USUAL_LENGTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """What a user asked of drafts, as typed."""

    draft: str | None = None
    draft_length: int | None = None
    mtp: int | None = None
    ngram: int | None = None
    acceptance: float | None = None

    def of(self, server: Server, small: Callable[[str], Drafter]) -> Server:
        """Return a server that drafts as was asked; UsageError for flags that do not go together.

        `small` makes a drafter of the name of a model.
        """
        kinds = [name for name in ("draft", "mtp", "ngram") if getattr(self, name) is not None]
        if not kinds:
            given = {"--draft-length": self.draft_length, "--acceptance": self.acceptance}
            refuse_idle(given, "of drafts: say what drafts with --draft MODEL, --mtp N or --ngram N")
            return server
        if len(kinds) > 1 or (self.draft_length is not None and self.draft is None):
            raise UsageError("--draft MODEL with --draft-length, --mtp N and --ngram N are three ways: give one")
        if self.acceptance is None:
            raise UsageError(
                "drafted tokens that are kept decide what a draft is worth: give --acceptance, as measured; heads of "
                "DeepSeek-V3 have 0.85 to 0.9 (arXiv 2412.19437)"
            )
        from ...cost.serving.batching.speculative import Drafter, Speculation
        from ...driver.serve.drafts import drafting, prediction_head

        drafter, length = Drafter(), self.mtp or self.ngram or 0
        if self.draft is not None:
            drafter, length = small(self.draft), USUAL_LENGTH if self.draft_length is None else self.draft_length
        elif self.mtp is not None:
            drafter = prediction_head(server)
        return drafting(server, Speculation(drafter=drafter, length=length, acceptance=self.acceptance))
