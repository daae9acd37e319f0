"""What publications say of their served requests outside of their tables, and what of it cannot be predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...backends.machine.software.engine_file import engine_names
from ...ir.records import dataclass
from ..rows.rows import Row

_ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "lmdeploy": "lmdeploy",
        "tensorrt-llm": "tensorrt-llm",
        "trtllm": "tensorrt-llm",
        "nim": "tensorrt-llm",
        "vllm": "vllm",
        "sglang": "sglang",
    }
)
# Releases of TensorRT-LLM before its runtime replayed graphs and shared reads of the cache among grouped queries.
_OLD = (["v0.5"], ["v0.6.1"])
# Of the lengths that InferenceMAX prints its client draws each between 0.8 and 1: `--random-range-ratio 0.8` in
# SemiAnalysisAI/InferenceMAX, benchmarks/*.sh and .github/workflows.
DRAWN = 0.9
_DRAWN_SAID = "lengths are 0.9 of those printed (drawn between 0.8 and 1 of them)"


@dataclass(frozen=True, slots=True)
class DataSetSource:
    """What is known of a data set.

    Attributes:
        unknown: why none of its rows can be predicted, empty for most.
        derived: quantities that its publication computed from others of a row.
        judges_only: whether no number of an engine may be fitted to it.
        refused: why a row of it cannot be predicted, empty for most.
        share: what lengths are of those printed, and in words.
        offline: whether a program of the engine's own measured, without a server around it.
        said: cells of a row that its publication gives in the text around its table.
    """

    unknown: str = ""
    derived: frozenset[str] = frozenset()
    judges_only: bool = False
    refused: Callable[[Row], str] = lambda row: ""
    share: Callable[[Row], tuple[float, str]] = lambda row: (1.0, "")
    offline: bool = False
    said: Callable[[Row], Mapping[str, str]] = lambda row: {}

    def completed(self, row: Row) -> Row:
        """Return a row with what its publication says outside of its table in the place of its cells."""
        return Row({**row.cells, **self.said(row)}, row.line)


def engine_of(row: Row) -> str:
    """Return the name of the engine of a row, by how tables write it or as the catalogue has it; empty for another.

    >>> engine_of(Row({"engine": "trtllm 1.0.0rc3"})), engine_of(Row({"engine": "RTP-LLM"}))
    ('tensorrt-llm', '')
    """
    words = row.text("engine").lower().split(" ")
    if words[1:2] == ["(nemo)"]:
        return "nemo-2023"
    found = _ENGINES.get(words[0], words[0] if words[0] in engine_names() else "")
    return f"{found}-2023" if found == "tensorrt-llm" and words[1:2] in _OLD else found


def source_of(row: Row) -> DataSetSource:
    """Return what is known of the data set of a row."""
    return SOURCES.get(row.dataset, DataSetSource())


def _drawn(row: Row) -> tuple[float, str]:
    """Rows with a date are InferenceMAX's; those without are the publication's own, of fixed lengths."""
    return (DRAWN, _DRAWN_SAID) if "measured 20" in row.text("note") else (1.0, "")


def _pools_untold(row: Row) -> str:
    """Rows of GB200 that are called aggregated have the devices of disaggregated servers of the same days."""
    if row.text("accelerator").startswith("GB200"):
        return "tp is the number of devices of pools whose sizes are not given"
    return ""


def _attention_dp(row: Row) -> Mapping[str, str]:
    """The options that its page gives for models with experts: enable_attention_dp, and experts over all devices."""
    ranks = row.text("tp")
    return {"ep": ranks, "attention_dp": ranks, "tp": "1"} if row.text("model").startswith("Qwen3") else {}


SOURCES: Mapping[str, DataSetSource] = MappingProxyType(
    {
        "lmdeploy_static_a100": DataSetSource(derived=frozenset({"e2el"})),
        "trtllm_static_throughput": DataSetSource(derived=frozenset({"e2el"})),
        "trtllm_static_throughput_v05": DataSetSource(derived=frozenset({"e2el"})),
        "trtllm_max_throughput_v017": DataSetSource(offline=True),
        "trtllm_max_throughput_v10": DataSetSource(offline=True, said=_attention_dp),
        "nvidia_llama2_200_200": DataSetSource(judges_only=True),
        "deepseek_serving": DataSetSource(
            unknown="its engine, and the lengths or the batch of its requests, are not published"
        ),
        "aiconfigurator_silicon_agg": DataSetSource(refused=_pools_untold, share=_drawn),
        "aiconfigurator_silicon_disagg": DataSetSource(share=_drawn),
    }
)
