"""A wrong command line is answered with the words that say the same here."""

import re
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from slipstick.cli import VERBS
from slipstick.cli.flags.hints import _FLAGS, _VALUES

Cli = Callable[..., "CompletedProcess[str]"]
ESTIMATE = ("estimate", "gpt2", "--system", "dgx-h100")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*ESTIMATE, "--batch-size", "8"), "here it is --mbs N (sequences per replica and pass) or --gbs N"),
        ((*ESTIMATE, "--nodes", "2"), "here it is --gpus N, of all nodes together"),
        ((*ESTIMATE, "--precision", "bf16"), "'bf16' is not allowed; use --dtype bf16; allowed: none, fp8"),
        ((*ESTIMATE, "--phase", "inference"), "use --phase serve for requests"),
        (("estimate", "gpt2", "dgx-h100"), "a system has a flag: --system dgx-h100"),
        (("models",), "see `slipstick list models`"),
        (("reprot",), "did you mean 'report'?"),
        (("srve",), "see `slipstick estimate --phase serve`"),
        (("schema", "plan", "-o", "plan.svg"), "cannot write '.svg'; formats of this file: .json"),
        (("show", "dgx-h100"), "'dgx-h100' is a name, not a kind: slipstick show system dgx-h100"),
        (("list", "zzz"), "'zzz' is not a kind; allowed: adapters"),
        (
            ("estimate", "gpt2", "--system", "dgx-h100", "--set", "hbm.bandwidth=4TB/s"),
            "the whole path: chip.memory.hbm",
        ),
    ],
)
def test_what_was_meant_is_said(cli: Cli, words: tuple[str, ...], told: str) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize(("word", "same"), [("gpu", "chips"), ("recipes", "precisions"), ("Model", "models")])
def test_kinds_have_other_names(cli: Cli, word: str, same: str) -> None:
    assert cli("list", word).stdout == cli("list", same).stdout


def test_every_hint_names_flags_that_there_are(cli: Cli) -> None:
    known = "".join(cli(verb, "--help-all").stdout for verb in ("estimate", "size"))
    assert "estimate" in VERBS
    for told in (*_FLAGS.values(), *_VALUES.values()):
        assert all(flag in known for flag in re.findall(r"--[a-z-]+", told)), told
