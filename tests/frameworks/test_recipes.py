"""Recipes of Megatron-Bridge and of NeMo."""

import time
from contextlib import suppress

import pytest

from slipstick.frameworks.launch import Launch
from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.training.recipes import recipes_in
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


# A recipe of NeMo: parts that hold fields, parts by name, parts of another file, and the model's name in NAME.
NEMO = """
import nemo_run as run
from lib.trainers import trainer
NAME = "llama3_70b"

def model():
    return run.Config(LlamaModel, config=run.Config(Llama3Config70B))

def pretrain_recipe(name="default", num_nodes=4, num_gpus_per_node=8, performance_mode=False):
    recipe = run.Partial(
        fn,
        model=model(),
        trainer=trainer(tensor_parallelism=4, num_nodes=num_nodes, devices=num_gpus_per_node,
                        callbacks=[run.Config(TimingCallback)]),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1),
        log=default_log(name=name),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
    recipe.trainer.strategy.context_parallel_size = 2
    if performance_mode:
        recipe = faster(recipe)
    return recipe

def faster(recipe):
    recipe.trainer.plugins = bf16_with_fp8_current_scaling_mixed()
    overlap = run.Config(MegatronCommOverlapCallback, tp_comm_overlap=True)
    recipe.trainer.callbacks.extend([overlap])
    return recipe

def finetune_recipe(peft_scheme="lora", num_nodes=None):
    if num_nodes is None:
        if peft_scheme is None or peft_scheme.lower() == "none":
            num_nodes = 8
        else:
            num_nodes = 4
    recipe = pretrain_recipe(num_nodes=num_nodes)
    if peft_scheme is not None and peft_scheme.lower() in ["lora", "dora"]:
        recipe.peft = run.Config(PEFT_STR2CLS[peft_scheme.lower()])
    return recipe
"""
TRAINERS = """
def trainer(tensor_parallelism=1, pipeline_parallelism=4, virtual=5, num_nodes=1, devices=8, callbacks=None):
    strategy = run.Config(
        nl.MegatronStrategy,
        tensor_model_parallel_size=tensor_parallelism,
        pipeline_model_parallel_size=pipeline_parallelism,
        virtual_pipeline_model_parallel_size=virtual,
        sequence_parallel=True,
        ddp=run.Config(DistributedDataParallelConfig, grad_reduce_in_fp32=True, overlap_grad_reduce=True),
    )
    return run.Config(nl.Trainer, callbacks=callbacks, devices=devices, num_nodes=num_nodes, plugins=bf16_mixed(),
                      strategy=strategy)
"""


def nemo(recipe: str) -> Launch:
    return read_launch(NEMO, f"llama3_70b.py::{recipe}", beside={"lib/trainers.py": TRAINERS}.get)


def test_a_recipe_of_nemo_is_a_plan() -> None:
    launch = nemo("pretrain_recipe")
    assert dict(launch.words) == {
        "phase": "train", "model": "llama-3.1-70b", "stack": "megatron-core", "tp": 4, "sp": True, "pp": 4, "vpp": 5,
        "cp": 2, "cp_method": "ring", "seq": 8192, "gbs": 512, "mbs": 1, "gpus": 32, "zero": 1, "dtype": "bf16",
    }  # fmt: skip
    assert not launch.left_out


def test_a_recipe_is_called_with_arguments() -> None:
    launch = nemo("pretrain_recipe(num_nodes=8, performance_mode=True)")
    found = {name: launch.words.get(name) for name in ("gpus", "precision", "bf16_first", "bf16_last", "async_tp")}
    assert found == {"gpus": 64, "precision": "fp8", "bf16_first": 1, "bf16_last": 1, "async_tp": True}


def test_nodes_that_hold_no_copy_of_the_model_are_not_taken() -> None:
    launch = nemo("pretrain_recipe(num_nodes=1)")
    assert launch.words["gpus"] == 32
    assert any("8 GPUs, which are no multiple of the 32" in line for line in launch.assumed)


def test_adapters_and_full_finetuning_are_read() -> None:
    assert nemo("finetune_recipe").words["lora_rank"] == 32
    whole = nemo("finetune_recipe(peft_scheme=None)").words
    assert (whole["gpus"], whole.get("lora_rank")) == (64, None)
    with pytest.raises(UsageError, match="peft dora"):
        nemo("finetune_recipe(peft_scheme='dora')")


def test_an_adapter_that_is_spelled_out_is_read() -> None:
    text = NEMO.replace("PEFT_STR2CLS[peft_scheme.lower()]", "LoRA, dim=8, target_modules=['linear_qkv', 'linear_fc2']")
    launch = read_launch(text, "llama3_70b.py::finetune_recipe", beside={"lib/trainers.py": TRAINERS}.get)
    assert (launch.words["lora_rank"], launch.words["lora_modules"]) == (8, "q_proj,k_proj,v_proj,down_proj")
    later = NEMO.replace("    return recipe\n", "    recipe.peft.dim = 16\n    return recipe\n")
    assert (
        read_launch(later, "llama3_70b.py::finetune_recipe", beside={"lib/trainers.py": TRAINERS}.get).words[
            "lora_rank"
        ]
        == 16
    )


def test_a_degree_of_zero_is_refused() -> None:
    # Megatron divides by it.
    text = NEMO.replace("tensor_parallelism=4", "tensor_parallelism=0")
    with pytest.raises(ParseError, match="tensor_model_parallel_size: 0; give a whole number from 1"):
        read_launch(text, "llama3_70b.py::pretrain_recipe", beside={"lib/trainers.py": TRAINERS}.get)


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("pretrain_recipe(num_node=8)", r"takes no 'num_node'; did you mean 'num_nodes'\?"),
        ("pretrain_recipe(**{'num_nodes': 8})", r"takes no \*\*"),
        ("pretrain_recipe(num_nodes=os.getpid())", "num_nodes is no literal"),
    ],
)
def test_no_argument_of_a_user_is_lost(recipe: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        nemo(recipe)


DEEP = {
    "conditions": f"if {'(' * 80}num_nodes{' == 1)' * 80} == 1:\n        pass",
    "names": f"cfg{'.a' * 950} = 3",
    "calls": f"f{'()' * 900}",
    "functions": "f0()" + "".join(f"\n\n\ndef f{i}():\n    f{i + 1}()\n    f{i + 1}()" for i in range(19)),
}


@pytest.mark.parametrize("kind", DEEP)
def test_what_is_nested_without_end_ends(kind: str) -> None:
    text, start = f"def pretrain_recipe(num_nodes=1):\n    {DEEP[kind]}\n", time.process_time()
    with suppress(ParseError):
        read_launch(text, "x.py::pretrain_recipe")
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize("recipe", ["pretrain_recipe(8)", "os.system('x')", "pretrain_recipe(", "a.b"])
def test_only_names_and_calls_by_name_are_recipes(recipe: str) -> None:
    with pytest.raises(UsageError, match="no recipe"):
        nemo(recipe)
