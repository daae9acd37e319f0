"""Technology nodes from N12 to N1: shares of the chip and plan optimised for a 7B GPT on 1024 accelerators.

Each chip has 826 mm2 and 400 W and is made of units of A100, with HBM beside it; nodes of eight are joined by one port
of InfiniBand a chip. On each node the shares of area, power and edge are those of A100, or the best; both under the
best plan for them. How logic, caches and power scale is our reading of published studies (`docs/technology.md`), not
their numbers, and so are no results of theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from bounds import STEP_BOUNDS, step_bounds
from drawing import plain_ticks, stacked
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from picture import BLACK, COLOURS
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, Design
from slipstick.backends.technology.speeds import rated_speeds
from slipstick.driver.estimate import estimate
from slipstick.explore.designs.machines import machine_of
from slipstick.explore.designs.optimise import Optimum, optimise
from slipstick.explore.designs.plans import PlanFinder
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignForm
from slipstick.explore.goals import Goal
from slipstick.explore.plans.degrees import Degrees
from slipstick.explore.plans.job import PlanJob, PlanMachine
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.frontend import config_of, load_config

CACHE = slipstick.GraphCache.default()
GPUS, NODE, SEQ_LEN = 1024, 8, 2048
AREA_MM2, POWER_W, UNIT, LINK = 826.0, 400.0, "a100", "nvlink3"
# One port a chip, one direction: NDR, XDR, and the step after it.
PORTS = {"NDR": "400Gbit/s", "XDR": "800Gbit/s", "GDR": "1600Gbit/s"}
MEMORIES = ("hbm2", "hbm2e", "hbm3", "hbm4")
TECHNOLOGY = load_technology()
REDUCED = ("N12", "N5", "N1")
USUAL, BEST = "of A100", "optimised"
TIME = Goal("step_time_s")
# 6.7B of GPT-3: table 2.1 of arXiv 2005.14165.
GPT_7B = {
    "model_type": "gpt2", "n_embd": 4096, "n_inner": 16384, "n_layer": 32, "n_head": 32, "n_positions": SEQ_LEN,
    "vocab_size": 51200,
}  # fmt: skip
SPACE = PlanSpace(
    degrees=Degrees(
        num_gpus=(GPUS,), global_batch=(GPUS,), tp=(1, 2, 4, 8), pp=(1, 2, 4), cp=(1,), vpp=(1,), micro_batch=(1, 2, 4)
    ),
    choices=Choices(sp=(True,), zero=(1,), recompute=("none", "full"), schedule=("1f1b",)),
    seq_len=SEQ_LEN,
)


def finder_in(folder: Path) -> PlanFinder:
    """Return what searches the plans of the model on machines whose files go to a folder."""
    graph = load_config(config_of("gpt-7b", GPT_7B), cache=CACHE)
    machine = PlanMachine(name="of the design", bases=(slipstick.Family(kernels="fused"),), stack="megatron-core")
    return PlanFinder(PlanJob(graph=graph, space=SPACE, machines=(machine,), goals=(TIME,)), folder)


def optima(finder: PlanFinder, memory: str, port: str, nodes: Sequence[str]) -> tuple[DesignSetting, list[Optimum]]:
    """Optimise a chip for each node, with one memory and one network."""
    (machine,) = finder.job.machines
    setting = DesignSetting(
        technology=TECHNOLOGY, prices=load_prices(), num_packages=NODE, stack=machine.stack,
        overrides=(f"network.infiniband.bandwidth={PORTS[port]}",),
    )  # fmt: skip
    finder.job = replace(finder.job, machines=(replace(machine, overrides=tuple(setting.overrides)),))
    limits = {
        DesignForm(node=node, unit=UNIT, memory=memory, link=LINK): Budget(node, AREA_MM2, POWER_W, UNIT, memory, LINK)
        for node in nodes
    }
    return setting, optimise(limits, setting, finder, TIME)


def row_of(
    setting: DesignSetting, port: str, shares: str, form: DesignForm, design: Design, job: DesignJob, joules: float
) -> list[Cell]:
    """Return a step on such chips: its plan, what it waits for, and the energy of a token."""
    found = estimate(job.lowered.source, machine_of(form, design, setting), job.plan, lowered=job.lowered)
    plan, chip = job.plan, design.compute
    how = f"{plan.degrees} mbs{plan.micro_batch}"
    speeds = rated_speeds(design, TECHNOLOGY)
    return [
        f"{form.memory} {port}", form.node, shares, how, int(chip.num_sms), float(chip.at.voltage_v),
        float(speeds["matrix"]), float(chip.flop_per_s) / 1e12, int(design.memory.num_stacks), float(speeds["memory"]),
        float(design.memory.bytes_per_s) / 1e12, float(design.network.bytes_per_s) / 1e9, float(design.used_w),
        found.metrics["step_time_s"], *step_bounds(found).values(), joules,
    ]  # fmt: skip


def make(full: bool) -> Table:
    """Optimise every chip; the reduced grid has three nodes, the oldest and the newest memory, and one network."""
    grid = product(MEMORIES, PORTS) if full else [("hbm2", "NDR"), ("hbm4", "NDR")]
    rows: list[list[Cell]] = []
    with TemporaryDirectory() as folder:
        finder = finder_in(Path(folder))
        for memory, port in grid:
            setting, found = optima(finder, memory, port, TECHNOLOGY.node_names if full else REDUCED)
            for one in found:
                if one.usual_design is not None and one.usual_job is not None:
                    joules = one.usual["j_per_token"]
                    rows.append(row_of(setting, port, USUAL, one.form, one.usual_design, one.usual_job, joules))
                rows.append(row_of(setting, port, BEST, one.form, one.design, one.job, one.columns["j_per_token"]))
    chip = ["SMs", "voltage (V)", "clock of rated", "peak (TFLOP/s)", "stacks", "memory of rated", "memory (TB/s)"]
    columns = ["memory and network", "node", "shares", "plan", *chip, "links (GB/s)", "power (W)", "step (s)"]
    return Table([*columns, *(f"waits for {bound} (s)" for bound in STEP_BOUNDS), "energy (J/token)"], rows, [
        f"bf16, {GPUS} sequences of {SEQ_LEN} tokens, kernels and software as Megatron Core on A100, ZeRO 1; a plan "
        "for each chip of all degrees of tensor and pipeline parallelism, micro-batches and recomputation.",
        f"{AREA_MM2:g} mm2 and {POWER_W:g} W a chip at most, of which each part owns its rate x joules + leakage.",
        "A part of a step waits for what its kernels wait for most; energy is of machines, hosts and network.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what nodes, shares, memory and energy bring, on the first and the last memory and network."""
    groups = list(table.groups("memory and network"))
    oldest, newest = groups[0], groups[-1]
    nodes = list(table.groups("node"))
    first, last = nodes[0], nodes[-1]

    def at(name: str, group: str, node: str, shares: str = BEST) -> float:
        return table.number(name, {"memory and network": group, "node": node, "shares": shares})

    usual, best = (at("step (s)", newest, first, s) / at("step (s)", newest, last, s) for s in (USUAL, BEST))
    yield say(
        "From {first} to {last} with {newest} a step shrinks {usual:.1f} times with the shares of the old chip and "
        "{best:.1f} times with the best",
        best > 1 and usual > 1, first=first, last=last, newest=newest, usual=usual, best=best,
    )  # fmt: skip
    gains = {
        group: [1 - at("step (s)", group, node) / at("step (s)", group, node, USUAL) for node in nodes]
        for group in (oldest, newest)
    }
    yield say(
        "Shares and a plan of its own take {a:.0%} to {b:.0%} off a step of each node with {oldest} and {c:.0%} to "
        "{d:.0%} with {newest}",
        min(map(min, gains.values())) >= 0, a=min(gains[oldest]), b=max(gains[oldest]), c=min(gains[newest]),
        d=max(gains[newest]), oldest=oldest, newest=newest,
    )  # fmt: skip
    old, new = (
        [at(name, newest, last, shares) for name in ("stacks", "memory of rated", "memory (TB/s)")]
        for shares in (USUAL, BEST)
    )
    yield say(
        "With {newest} at {last} the power that the old chip has for memory runs {old:g} stacks at {old_speed:.0%} of "
        "their rated speed, {old_rate:.1f} TB/s; the best chip runs {new:g} at {new_speed:.0%}, {new_rate:.1f} TB/s",
        new[1] > old[1], newest=newest, last=last, old=old[0], old_speed=old[1], old_rate=old[2], new=new[0],
        new_speed=new[1], new_rate=new[2],
    )  # fmt: skip
    waits = {node: {b: at(f"waits for {b} (s)", newest, node) for b in STEP_BOUNDS} for node in (first, last)}
    shares = {node: {b: s / sum(parts.values()) for b, s in parts.items()} for node, parts in waits.items()}
    yield say(
        "The wait moves from compute, {a:.0%} of a step at {first} and {b:.0%} at {last}, to the network, {c:.0%} and "
        "{d:.0%}",
        shares[first]["compute"] > shares[last]["compute"] and shares[first]["network"] < shares[last]["network"],
        a=shares[first]["compute"], b=shares[last]["compute"], c=shares[first]["network"], d=shares[last]["network"],
        first=first, last=last,
    )  # fmt: skip
    saved = {group: at("energy (J/token)", group, first) / at("energy (J/token)", group, last) for group in groups}
    yield say(
        "A token takes {a:.1f} to {b:.1f} times less energy at {last} than at {first}, where chips are held to equal "
        "power: it falls with the time",
        min(saved.values()) > 1, a=min(saved.values()), b=max(saved.values()), first=first, last=last,
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw steps on the best chips of every memory and network, what the last of these wait for, and energies."""
    groups = table.only({"shares": BEST}).groups("memory and network")
    by_group(panels[0], groups, "step (s)")
    newest = list(table.groups("memory and network").values())[-1].groups("shares")
    nodes = [str(node) for node in newest[BEST].column("node")]
    stacked(panels[1], nodes, {bound: newest[BEST].numbers(f"waits for {bound} (s)") for bound in STEP_BOUNDS})
    panels[1].plot(nodes, newest[USUAL].numbers("step (s)"), "k_", markersize=9, label="shares of A100")
    panels[1].set(ylabel="step (s), " + list(groups)[-1])
    panels[1].legend(ncols=2)
    by_group(panels[2], groups, "energy (J/token)")


def by_group(axes: Axes, groups: Mapping[str, Table], column: str) -> None:
    """Draw a curve over nodes for each memory, by colour, and each network, by its dashes."""
    memories, ports = (list(dict.fromkeys(key.split()[k] for key in groups)) for k in (0, 1))
    colours, dashes = dict(zip(memories, COLOURS, strict=False)), dict(zip(ports, ("-", "--", ":"), strict=False))
    for key, rows in groups.items():
        memory, port = key.split()
        axes.plot(
            [str(node) for node in rows.column("node")], rows.numbers(column), dashes[port], color=colours[memory]
        )
    handles = [Line2D([], [], color=colour, label=memory) for memory, colour in colours.items()]
    handles += [Line2D([], [], color=BLACK, linestyle=dash, label=port) for port, dash in dashes.items()]
    axes.set(ylabel=f"{column}, shares optimised", yscale="log")
    plain_ticks(axes.yaxis)
    axes.legend(handles=handles, ncols=2)


if __name__ == "__main__":
    run(__doc__, make, draw, panels=3, conclude=conclude)
