"""Words of experts that lie on several ranks: how rows get there, how popular each is, and which ranks have copies."""

from typing import Annotated

from ...errors import PlanError
from ...records import dataclass
from ..low_inference import SAME
from ..training.adapters import AdapterWords
from ..word import Word

# Types in which rows travel to experts; how they get there: sent, or every rank has all tokens and takes its own rows.
WIRES = ("same", "fp8")
EXCHANGES = ("alltoall", "allgather")
# What a popularity by a power law begins with, and the word for that of the catalogue.
LAW, OF_MODEL = "power:", "model"


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWords(AdapterWords):
    """Words of experts, and behind them those of adapters."""

    exchange: Annotated[str, Word(
        "Token exchange of expert parallelism: all-to-all dispatch and combine, or (in inference) an all-gather of "
        "all tokens, local experts, and a sum.",
        name="ep_exchange", choices=EXCHANGES, noun="exchange of rows", behind="expert_imbalance", needs="ep",
    )] = "alltoall"
    dispatch_dtype: Annotated[str, Word(
        "Data type of dispatched tokens; combined results keep their own.",
        choices=WIRES, noun="dispatch dtype", needs="ep",
    )] = SAME
    routing_nodes: Annotated[int, Word(
        "Node-limited routing: most nodes that a token is sent to, with copies inside a node; 0: no limit.", needs="ep",
    )] = 0
    expert_popularity: Annotated[str, Word(
        "Popularity of experts, from which the load of the busiest rank follows: power:X (rows of experts drawn from a "
        "power law of exponent X), model (as the catalogue has it), or a JSON file of rows, a list of experts a "
        "layer.  [default: all alike]",
        metavar="power:X|model|FILE", needs="ep",
    )] = ""
    eplb: Annotated[bool, Word(
        "Place experts by their popularity so that ranks have equal loads, as DeepSeek's EPLB does; off, in order.  "
        "[default: off]",
        needs="ep",
    )] = False
    redundant_experts: Annotated[int, Word(
        "With --eplb in inference, copies of popular experts in each layer: ep divides experts and copies together.",
        also=("--num-redundant-experts", "--ep-num-redundant-experts"), needs="ep", least=0,
    )] = 0


# fmt: on
def check_placed(words: ExpertWords, infers: bool) -> None:
    """Raise PlanError for a popularity that is none, and for copies that nothing places or that would be trained."""
    text = words.expert_popularity
    if text.startswith(LAW):
        try:
            exponent = float(text.removeprefix(LAW))
        except ValueError:
            exponent = float("nan")
        if not 0 < exponent <= 10 or exponent == 1:
            raise PlanError(f"expert_popularity={text}: the exponent of a power law, above 0 up to 10, and not 1")
    elif text and text != OF_MODEL and not text.endswith(".json"):
        raise PlanError(f"expert_popularity={text}; allowed: power:X, {OF_MODEL}, or a file that ends in .json")
    if not words.redundant_experts:
        return
    if not infers:
        raise PlanError("redundant_experts in training: copies would be trained apart; leave them out")
    if not words.eplb:
        raise PlanError(f"redundant_experts={words.redundant_experts}: nothing places copies without --eplb: add it")
