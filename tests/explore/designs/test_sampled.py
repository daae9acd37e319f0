"""Designs that an optimiser chooses: against all designs of the same space, and against each by itself."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from slipstick.explore.designs.designs import explore
from slipstick.explore.designs.sampled import TRIAL, Sampled, SampledDesigns, sample, system_text
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignSpace
from slipstick.explore.goals import Goal
from slipstick.explore.pareto import pareto
from slipstick.explore.trials.optimizer import CategoricalParameter, Range
from slipstick.explore.trials.optuna_study import OptunaStudy
from slipstick.ir.errors import UnknownNameError

pytestmark = pytest.mark.skipif(find_spec("optuna") is None, reason="needs slipstick[search]")

NODES = ("N7", "N5")
# Dies up to a field of lithography and beyond (26 mm x 33 mm = 858 mm2), which cannot be built.
SPACE = Sampled(
    DesignSpace(nodes=NODES, die_mm2=(100.0,), power_w=(0.3,), power_is_density=True),
    (
        CategoricalParameter(name="node", values=NODES),
        Range(name="die-area", first=100, last=1000, unit="mm2", is_whole=True),
        Range(name="power-density", first=0.3, last=1.5, unit="W/mm2"),
    ),
)
CHEAP = (Goal("fp16_flops_per_usd", -1.0),)
BOTH = (Goal("usd_per_gpu", 1.0), Goal("fp16_flop_per_s", -1.0))


def sampled(
    setting: DesignSetting, goals: tuple[Goal, ...], num: int, sampler: str = "tpe", path: Path | None = None,
    job: DesignJob | None = None, at_once: int = 16,
) -> SampledDesigns:  # fmt: skip
    study = OptunaStudy.open(SPACE.axes, [goal.sign for goal in goals], sampler, 0, path)
    return sample(SPACE, setting, job, goals, study, num, at_once)


def column(made: SampledDesigns, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A column of all designs, in the order of trials."""
    order = np.argsort(np.concatenate([designs.columns[TRIAL] for designs in made.found]))
    none = [designs.columns.get(name, designs.reason * np.nan) for designs in made.found]
    return np.asarray(np.concatenate(none)[order])


def test_few_trials_come_near_the_best_of_all_designs(setting: DesignSetting) -> None:
    grid = DesignSpace(
        nodes=NODES, die_mm2=tuple(np.linspace(100, 1000, 91)), power_w=tuple(np.linspace(0.3, 1.5, 61)),
        power_is_density=True,
    )  # fmt: skip
    best = max(np.nanmax(designs.columns["fp16_flops_per_usd"]) for designs in explore(grid, setting))
    # Eighty in place of 2 x 91 x 61 = 11,102.
    assert np.nanmax(column(sampled(setting, CHEAP, 80), "fp16_flops_per_usd")) > 0.97 * best


def test_each_is_what_it_is_by_itself(setting: DesignSetting, job: DesignJob) -> None:
    made = sampled(setting, (Goal("step_time_s", 1.0),), 8, "random", job=job)
    times = column(made, "step_time_s")
    for trial in made.trials[:3]:
        ((alone,),) = [list(explore(SPACE.point(trial), setting, job))]
        value = alone.columns.get("step_time_s", np.array([np.nan]))[0]
        assert times[trial.number] == pytest.approx(value, rel=1e-12, nan_ok=True)
        assert alone.columns["die_mm2"][0] == trial.values["die-area"]


def test_designs_that_cannot_be_built_are_counted_with_why(setting: DesignSetting) -> None:
    made = sampled(setting, CHEAP, 32, "random")
    beyond = sum(float(trial.values["die-area"]) > 26 * 33 for trial in made.trials)
    assert beyond
    assert made.infeasible["die beyond the field of lithography"] == beyond
    assert sum(made.infeasible.values()) == sum(np.isnan(column(made, "usd_per_gpu")))


def test_no_design_of_the_front_beats_another(setting: DesignSetting) -> None:
    made = sampled(setting, BOTH, 80, "nsga2")
    # Children may be as their parents are, and stand there once.
    assert len(column(made, TRIAL)) == len({tuple(trial.values.values()) for trial in made.trials}) < 80
    aims = np.stack([column(made, goal.name) * goal.sign for goal in BOTH], axis=1)
    front = aims[pareto(list(aims.T))]
    assert len(front) > 3
    for one in front:
        assert not ((front <= one).all(axis=1) & (front < one).any(axis=1)).any()
    # What is on no front is beaten by something on it.
    for one in aims[np.isfinite(aims).all(axis=1)]:
        assert (front <= one).all(axis=1).any()


def test_a_study_goes_on_with_the_same_designs(setting: DesignSetting, tmp_path: Path) -> None:
    path = tmp_path / "it.optuna"
    part = sampled(setting, BOTH, 20, "tpe", path)
    whole, other = (sampled(setting, BOTH, 40, "tpe", kept) for kept in (path, None))
    assert whole.trials == other.trials
    assert whole.trials[:20] == part.trials
    for name in ("die_mm2", "usd_per_gpu", "fp16_flop_per_s"):
        assert np.array_equal(column(whole, name), column(other, name), equal_nan=True)


def test_the_system_of_a_trial_is_that_of_its_design(setting: DesignSetting) -> None:
    made = sampled(setting, CHEAP, 16, "random")
    good = next(trial for trial in made.trials if float(trial.values["die-area"]) < 800)
    text = system_text(SPACE, good, setting)
    assert f"{good.values['node']}" in text
    fixed = replace(setting, num_gpus=8)
    assert system_text(SPACE, good, fixed) == text


def test_a_goal_that_is_no_column_is_told(setting: DesignSetting) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'usd_per_gpu'"):
        sampled(setting, (Goal("usd_per_gpus", 1.0),), 4)
