"""Trainers of transformers, Lightning and torchtitan: tiny runs on this CPU, with what they log."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from slipstick.ir.errors import NotBuiltError
from slipstick.watch.torchtitan import TitanTrainer, watch_trainer, words_of_config

from .nets_watched import Bigram, loss_of

NUMBERS = {"step_s", "predicted_step_s", "ratio", "mfu", "predicted_mfu", "predicted_memory"}


class Tokens(Dataset[dict[str, Tensor]]):
    """Random ids, which are their own labels."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = torch.full((16,), index % 64)
        return {"input_ids": ids, "labels": ids}


def test_a_trainer_of_transformers_logs_both(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers' Trainer needs it; install slipstick[transformers]")
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    from slipstick.watch.hf import TrainerWatch

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    said: list[str] = []
    watch = TrainerWatch("xeon-server", say=said.append)
    args = TrainingArguments(
        str(tmp_path), max_steps=5, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=2,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    trainer = Trainer(model, args, train_dataset=Tokens(), callbacks=[watch])
    trainer.train()
    logged = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["step"] for line in logged] == [2, 4]
    for line in logged:
        assert {name.removeprefix("slipstick/") for name in line if name.startswith("slipstick/")} == NUMBERS
        assert line["slipstick/ratio"] == pytest.approx(line["slipstick/step_s"] / line["slipstick/predicted_step_s"])
    assert watch.watch is not None
    assert watch.watch.prediction is not None, said
    plan, graph = watch.watch.prediction.answer.plan, watch.watch.prediction.answer.table.lowered.source
    assert (plan.micro_batch, plan.global_batch, plan.seq_len, plan.recompute) == (2, 4, 16, "full")
    assert graph.num_parameters == sum(p.numel() for p in model.parameters())


def test_a_trainer_of_lightning_logs_both(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="install slipstick[lightning]")
    from lightning.pytorch.loggers import CSVLogger

    from slipstick.watch.lightning import LightningWatch

    class Lit(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Bigram()

        def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
            logits = self.net(batch["input_ids"])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    said: list[str] = []
    watch = LightningWatch("xeon-server", say=said.append)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning warns of workers of loaders, and of what torch renames
        trainer = lightning.Trainer(
            max_steps=6, accelerator="cpu", logger=CSVLogger(str(tmp_path)), enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=2, accumulate_grad_batches=3,
            callbacks=[watch],
        )  # fmt: skip
        trainer.fit(Lit(), DataLoader(Tokens(), batch_size=4))
    assert watch.watch is not None
    assert watch.watch.prediction is not None, said
    plan, graph = watch.watch.prediction.answer.plan, watch.watch.prediction.answer.table.lowered.source
    assert (plan.micro_batch, plan.global_batch, plan.seq_len) == (4, 12, 16)
    assert graph.num_parameters == sum(p.numel() for p in Bigram().parameters())
    metrics = next(tmp_path.rglob("metrics.csv")).read_text(encoding="utf-8").splitlines()
    assert {f"slipstick/{name}" for name in NUMBERS} <= set(metrics[0].split(","))


def titan(net: nn.Module, *more: nn.Module, mode: str = "none", **parallelism: int) -> TitanTrainer:
    """A Trainer as torchtitan 0.1 has it, as far as it is read: its config, its ranks, its model."""
    config = {
        "training": {"local_batch_size": 4, "global_batch_size": -1, "seq_len": 8},
        "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 1, **parallelism},
        "activation_checkpoint": {"mode": mode},
    }
    made = SimpleNamespace(
        model_parts=[net, *more],
        parallel_dims=SimpleNamespace(world_size=8),
        job_config=SimpleNamespace(to_dict=lambda: config),
    )
    return cast(TitanTrainer, made)


def test_the_plan_of_torchtitan_is_that_of_its_config() -> None:
    words = words_of_config(titan(Bigram(), mode="full", tensor_parallel_degree=2))
    assert (words.num_gpus, words.tp, words.sp, words.zero, words.recompute) == (8, 2, True, 3, "full")
    assert (words.micro_batch, words.global_batch, words.seq_len) == (4, 16, 8)


class FullAC:
    """A policy as torchtitan 0.3 has it: by its class, its section without a `mode`."""

    class Config:
        """Fields that say nothing of the policy."""


class SelectiveAC:
    """The policy that saves the results of some operators."""

    class Config:
        """Fields that say nothing of the policy."""


@pytest.mark.parametrize(
    ("section", "policy"), [(FullAC.Config(), "full"), (SelectiveAC.Config(), "ops"), (None, "none")]
)
def test_a_policy_that_is_a_class_is_read(section: object, policy: str) -> None:
    trainer = titan(Bigram())
    tree = {"training": {"local_batch_size": 4, "seq_len": 8}, "activation_checkpoint": {"debug": False}}
    config = SimpleNamespace(to_dict=lambda: tree, activation_checkpoint=section)
    trainer = SimpleNamespace(
        model_parts=trainer.model_parts, parallel_dims=SimpleNamespace(world_size=8), config=config
    )
    assert words_of_config(cast(TitanTrainer, trainer)).recompute == policy


def test_a_loop_of_torchtitan_is_watched() -> None:
    net, said = Bigram(), list[str]()
    optimizer = torch.optim.AdamW(net.parameters())
    with watch_trainer(titan(net), "dgx-h100", every=1, say=said.append) as found:
        for _ in range(2):
            loss_of(net).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert found.prediction is not None, said
    assert found.prediction.answer.table.system.stack.name == "torchtitan"
    assert found.prediction.answer.plan.num_gpus == 8
    assert "Parameter containing" not in repr(found)


def test_a_pipeline_is_refused_with_what_to_do() -> None:
    with pytest.raises(NotBuiltError, match="slipstick import"):
        watch_trainer(titan(Bigram(), Bigram()), "dgx-h100")
    with pytest.raises(NotBuiltError, match="slipstick import"):
        watch_trainer(titan(Bigram(), pipeline_parallel_degree=2), "dgx-h100")
