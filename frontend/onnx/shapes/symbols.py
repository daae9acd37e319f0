"""Names of dims to sizes: batch, sequence and cached length by common names, by position, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from ....ir.errors import NotUnderstoodError, UnknownNameError, UsageError
from ....ir.graph import Workload
from ....ir.records import dataclass
from ....ir.sizes.expr import Dim, as_dim, as_expr, symbol
from ....ir.units import is_digits

MEANINGS = ("batch", "seq", "kv", "total", "tokens")
MAX_DIM = 2**40
# What exporters call them: torch.onnx examples, optimum, the builder of onnxruntime-genai, t5 and whisper scripts.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch", "batch_size", "batchsize", "b", "bs", "bsz", "n", "num_seqs", "batch_dim"),
    "seq": (
        "seq", "seq_len", "seqlen", "seq_length", "sequence", "sequence_length", "sequence_len", "s", "length", "q_len",
        "decoder_sequence_length",
    ),
    "kv": (
        "kv", "kv_len", "past", "past_len", "past_length", "past_seq_len", "past_seq_length", "past_sequence_length",
        "past_kv_len", "past_decoder_sequence_length", "cache_len", "cache_length", "encoder_sequence_length",
        "encoder_sequence_length_out",
    ),
    "tokens": ("tokens", "num_tokens", "token_count", "total_tokens"),
    "total": (
        "total", "total_len", "total_length", "total_seq", "total_seq_len", "total_sequence_length", "kv_seq_len",
        "attention_mask_sequence_length", "mask_sequence_length",
    ),
}  # fmt: skip
_MEANING = {name: meaning for meaning, names in _NAMES.items() for name in names}
_IDS = frozenset(
    {"input_ids", "position_ids", "inputs_embeds", "token_type_ids", "tokens", "ids", "input_embeds", "idx"}
)
_PLACES: Mapping[str, Mapping[tuple[int, int], str]] = {
    "mask": {(2, 0): "batch", (2, 1): "total", (4, 0): "batch", (4, 3): "total"},
    "cache": {(4, 0): "batch", (4, 2): "kv", (5, 1): "batch", (5, 3): "kv", (3, 0): "batch", (3, 1): "kv"},
}
_CACHE = re.compile(r"past|present|cache|(^|[._])(key|value|pk|pv|kv)s?([._]|$)", re.IGNORECASE)
_TERM = re.compile(r"\s*([A-Za-z_][\w.]*|[0-9]+)\s*")
# A number that a tensor holds, `shape[1]`; unlike sizes these may be negative.
_ENTRY = re.compile(r"\[[0-9]+\]$")
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_MAX_TEXT, _MAX_ENTRIES = 200, 64


@dataclass
class NamedSizes:
    """What each named dim is in a workload; `given` is what the user said, and what positions told.

    `sought` are the names that were looked up while a file was read: what a user says of another says nothing.
    A dim without a name is called after its tensor and axis, `boxes.0`; a number that a tensor holds after its tensor
    and place, `shape[1]`.
    """

    workload: Workload
    given: dict[str, Dim] = field(default_factory=dict)
    sought: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, workload: Workload, dims: Mapping[str, str]) -> NamedSizes:
        """Take NAME=batch|seq|kv|total|tokens|NUMBER pairs; UsageError for another word."""
        made = cls(workload)
        for name, text in dims.items():
            made.given[name] = made._told(name, text)
        return made

    def _told(self, name: str, text: str) -> Dim:
        if text in MEANINGS:
            return self.meaning(text)
        if _ENTRY.search(name) and _WHOLE.fullmatch(text) and abs(int(text)) < 2**63:
            return int(text)
        found = self._sum(text) if len(text) < _MAX_TEXT else None
        if found is None:
            raise UnknownNameError.of(f"size of dim '{name}'", text, (*MEANINGS, "NUMBER"))
        if isinstance(found, int) and not 0 < found <= MAX_DIM:
            raise UsageError(f"dim '{name}' = {text}: 1 to {MAX_DIM}")
        return found

    def entries(self, name: str, number: int) -> list[Dim] | None:
        """Return the numbers of a tensor of so many, where the user said all of them: `name[0]`, `name[1]`, ..."""
        found = [self._said(f"{name}[{k}]") for k in range(min(number, _MAX_ENTRIES))]
        told = [d for d in found if d is not None]
        return told if told and len(told) == number else None

    def bound(self, name: str, axis: int, declared: str | int | None = None) -> Dim:
        """Return the size of a dim that depends on data: as told, else as the file declares it.

        NotUnderstoodError says what to write.
        """
        place = f"{name}.{axis}"
        found = self._said(place)
        if found is None and isinstance(declared, int) and declared > 0:
            return declared
        word = declared if isinstance(declared, str) and is_name(declared) else place
        found = self.find(word) if found is None and word != place else found
        if found is None:
            raise NotUnderstoodError(f"dim {axis} of '{name}' depends on data: --dim {flag(word)}=NUMBER")
        return found

    def meaning(self, word: str) -> Dim:
        """Return a size: only a decode step has something cached, and runs one token; `tokens` are batch x seq."""
        decode = self.workload is Workload.DECODE
        sizes: Mapping[str, Dim] = {
            "batch": symbol("batch"),
            "seq": 1 if decode else symbol("seq"),
            "kv": symbol("kv") if decode else 0,
        }
        if word == "total":
            return as_dim(as_expr(sizes["kv"]) + sizes["seq"])
        if word == "tokens":
            return as_dim(as_expr(sizes["batch"]) * sizes["seq"])
        return sizes[word]

    def find(self, name: str) -> Dim | None:
        """Return the size of a name, a number, or a sum and product of them; None when a part is not known."""
        if (said := self._said(name)) is not None:
            return said
        if (meaning := _MEANING.get(name.lower())) is not None:
            return self.meaning(meaning)
        return self._sum(name) if len(name) < _MAX_TEXT and ("+" in name or "*" in name) else None

    def _sum(self, text: str) -> Dim | None:
        total = as_expr(0)
        for part in text.strip("() ").split("+"):
            term = as_expr(1)
            for factor in part.split("*"):
                found = _TERM.fullmatch(factor)
                word = "" if found is None else found.group(1)
                size = int(word) if is_digits(word) else self.find(word) if word else None
                if size is None:
                    return None
                term = term * size
            total = total + term
        return as_dim(total)

    def learn(self, input_name: str, position: int, rank: int, dim_name: str) -> Dim | None:
        """Return the size of a named or unnamed dim of an input, by name, else by where it stands; None: not known."""
        place = f"{input_name}.{position}"
        if (said := self._said(place)) is not None:
            return said
        found = self.find(dim_name) if is_name(dim_name) else None
        if found is None:
            found = self._by_place(input_name, position, rank)
            if found is not None and is_name(dim_name):
                self.given[dim_name] = found
        return found

    def _said(self, name: str) -> Dim | None:
        self.sought.add(name)
        return self.given.get(name)

    def _by_place(self, name: str, position: int, rank: int) -> Dim | None:
        meaning: str | None = None
        if name in _IDS or name.rpartition(".")[2] in _IDS:
            meaning = {0: "batch", 1: "seq"}.get(position)
        elif "mask" in name:
            meaning = _PLACES["mask"].get((rank, position))
        elif is_cache(name):
            meaning = _PLACES["cache"].get((rank, position))
        elif name.startswith("seqlens") and rank == 1:
            meaning = "batch"
        return None if meaning is None else self.meaning(meaning)


def is_cache(name: str) -> bool:
    """Whether an input is by its name what earlier steps cached, or a result what later ones find.

    >>> is_cache("past_key_values.0.key"), is_cache("input_ids")
    (True, False)
    """
    return _CACHE.search(name) is not None


def is_name(text: str) -> bool:
    """Whether a dim is called something: exporters write `?`, `-1` and the like where they know nothing.

    >>> is_name("rows"), is_name("?"), is_name("")
    (True, False, False)
    """
    return any(c.isalpha() for c in text)


def flag(name: str) -> str:
    """Return a name as a shell takes it.

    >>> flag("boxes.0"), flag("shape[1]")
    ('boxes.0', "'shape[1]'")
    """
    from shlex import quote

    return quote(name)
