"""A callback for `transformers.Trainer`: `Trainer(..., callbacks=[TrainerWatch("dgx-h100")])`."""

from __future__ import annotations

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .observed import ObservedRun
from .session import CallbackWatch


class TrainerWatch(CallbackWatch, TrainerCallback):
    """Predicts the step that a Trainer runs, and adds both to what it logs, as `slipstick/...`.

    The types of `bf16` and `fp16`, gradient checkpointing, accumulation, ranks and ZeRO of DeepSpeed are read from the
    arguments and the model; the rest of the plan is given, see `slipstick.watch`.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Hook into forward passes of the model."""
        model = kwargs["model"]
        assert isinstance(model, nn.Module)
        run = ObservedRun.of(model)
        # Accelerate turns autocast on inside of forward, where no hook looks.
        run.compute_dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
        if (stage := _zero_of_deepspeed(args)) is not None:
            run.words["zero"] = stage
        self.watching(model).start(run, steps=False)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Note a step."""
        if self.watch is not None:
            optimizer = kwargs.get("optimizer")
            self.watch.step(optimizer if isinstance(optimizer, torch.optim.Optimizer) else None)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Add the prediction and what was measured since the last log to the logs of a training step."""
        logs = kwargs.get("logs")
        if self.watch is None or not isinstance(logs, dict) or "loss" not in logs:
            return
        reading = self.watch.read()
        if reading is not None:
            logs.update(reading.numbers())
            # The state keeps a copy that it made before any callback was asked.
            state.log_history[-1].update(reading.numbers())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Unhook."""
        if self.watch is not None:
            self.watch.stop()


def _zero_of_deepspeed(args: TrainingArguments) -> int | None:
    config = getattr(getattr(args, "hf_deepspeed_config", None), "config", None)
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    stage = zero.get("stage") if isinstance(zero, dict) else None
    return stage if isinstance(stage, int) else None
