"""A callback for Lightning: `Trainer(callbacks=[LightningWatch("dgx-h100")])`."""

from __future__ import annotations

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from .observed import ObservedRun
from .session import CallbackWatch

# Precisions of a Trainer that compute in another type than that of the parameters.
_MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class LightningWatch(CallbackWatch, Callback):
    """Predicts the step that a Trainer runs, and hands both to its loggers, as `slipstick/...`.

    What is recorded is `training_step` of the module, with its loss; precision, accumulation and ranks are those of the
    Trainer. The rest of the plan is given, see `slipstick.watch`.
    """

    _steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start to watch."""
        run = ObservedRun.of(pl_module)
        run.calls, run.compute_dtype = "training_step", _MIXED.get(str(trainer.precision))
        self.watching(pl_module).start(run, forwards=False, steps=False)
        self._steps = trainer.global_step

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        """Note a batch."""
        if self.watch is not None:
            self.watch.passed({"batch": batch})

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Note a step where optimizers have stepped, and log what was measured as often as the Trainer logs."""
        if self.watch is None or trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        self.watch.step(trainer.optimizers[0] if trainer.optimizers else None)
        # Set on a Trainer by what connects its loggers.
        every = max(int(getattr(trainer, "log_every_n_steps", 50)), 1)
        if self.watch.num_steps > 1 and self.watch.num_steps % every == 0:
            reading = self.watch.read()
            for logger in trainer.loggers if reading is not None else ():
                logger.log_metrics(dict(reading.numbers()) if reading is not None else {}, step=trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read once more."""
        if self.watch is not None:
            self.watch.stop()
