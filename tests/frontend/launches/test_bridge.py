"""Recipes of Megatron-Bridge."""

import pytest

from slipstick.frontend.launches.reading import read_launch
from slipstick.frontend.launches.training.bridge import recipes_in
from slipstick.ir.errors import ParseError, UsageError

TEXT = """
import os
os.system("touch /tmp/never")

def llama3_8b_pretrain_16gpu_h100_bf16_config():
    cfg = llama3_8b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    _common(cfg)
    cfg.model.tensor_model_parallel_size = 2
    cfg.optimizer.exp_avg_dtype = torch.bfloat16
    cfg.model.seq_length = os.environ["SEQ"]
    set_llama_pipeline_model_parallel_layout(cfg.model, "Et|tL")
    return cfg

def llama3_8b_pretrain_16gpu_h100_fp8cs_config():
    cfg = llama3_8b_pretrain_16gpu_h100_bf16_config()
    cfg.mixed_precision = _perf_precision("fp8_cs")
    cfg.model.tensor_model_parallel_size = 1
    return cfg

def _common(cfg):
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 2
    cfg.model.sequence_parallel = True
"""
BF16, FP8 = "llama3_8b_pretrain_16gpu_h100_bf16_config", "llama3_8b_pretrain_16gpu_h100_fp8cs_config"


def test_a_recipe_is_a_plan() -> None:
    launch = read_launch(TEXT, f"llama3.py::{BF16}")
    names = ("model", "gpus", "tp", "sp", "gbs", "mbs", "dtype", "zero", "exp_avg_dtype", "stack")
    assert {name: launch.words[name] for name in names} == {
        "model": "llama-3.1-8b", "gpus": 16, "tp": 2, "sp": True, "gbs": 128, "mbs": 2, "dtype": "bf16", "zero": 1,
        "exp_avg_dtype": "bf16", "stack": "megatron-bridge",
    }  # fmt: skip


def test_a_recipe_that_begins_with_another_overrides_it() -> None:
    launch = read_launch(TEXT, f"llama3.py::{FP8}")
    assert (launch.words["tp"], launch.words["precision"], launch.words["gbs"]) == (1, "fp8", 128)


def test_what_cannot_be_read_is_said() -> None:
    told = " ".join(read_launch(TEXT, f"llama3.py::{BF16}").assumed)
    assert "llama3_8b_pretrain_config()" in told
    assert "seq_length = os.environ['SEQ']" in told


def test_what_it_imports_is_read_where_there_is_a_file() -> None:
    files = {
        "lib/base.py": "from lib.common import start as llama3_8b_pretrain_config\n",
        "lib/common.py": """
def start(width=1, *, deep=True):
    cfg = Container(train=Training(micro_batch_size=4), model=None, mixed_precision="bf16_mixed")
    cfg.model = AutoBridge.from_hf_pretrained("org/m").provider(load=False)
    if deep:
        cfg.model.pipeline_model_parallel_size = 2
    cfg.model.context_parallel_size = width
    return cfg
""",
    }
    text = """
from lib.base import llama3_8b_pretrain_config
def own_pretrain_32gpu_config():
    cfg = llama3_8b_pretrain_config(width=2)
    cfg.train.global_batch_size = 64
"""
    launch = read_launch(text, "r.py", beside=files.get)
    found = {name: launch.words[name] for name in ("model", "gpus", "pp", "cp", "mbs", "gbs", "dtype")}
    assert found == {"model": "org/m", "gpus": 32, "pp": 2, "cp": 2, "mbs": 4, "gbs": 64, "dtype": "bf16"}
    assert not [line for line in launch.assumed if line.startswith("not read")]


def test_a_file_of_several_recipes_asks_for_one() -> None:
    with pytest.raises(UsageError, match=f"llama3.py::RECIPE; it has {BF16}, {FP8}"):
        read_launch(TEXT, "llama3.py")
    with pytest.raises(UsageError, match="no recipe 'x'"):
        read_launch(TEXT, "llama3.py::x")


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "(" * 5000])
def test_what_is_no_python_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(ParseError, match=r"r\.py:1: no Python"):
        recipes_in(text, "r.py")


def test_recipes_without_end_are_refused() -> None:
    with pytest.raises(ParseError, match="more than 20 deep"):
        read_launch("def a_pretrain_config():\n    a_pretrain_config()\n", "r.py")
