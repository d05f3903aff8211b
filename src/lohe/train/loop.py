"""The one training loop."""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lohe.tasks import Data
from lohe.train.pack import Pack, Parameters, cosine
from lohe.train.run import Run
from lohe.train.stepper import GraphStepper, Stepper

Metrics = dict[str, float]


@runtime_checkable
class Checkpoint(Protocol):
    """Where a run is kept between epochs, so that it can be killed at any moment; str names it."""

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None: ...

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None: ...


@dataclass
class Outcome:
    """What became of one seed: a line an epoch, and the metrics of the selected one by split.

    `parts` has the metrics that are many numbers, such as one for each article.
    """

    seed: int
    curve: list[Metrics] = field(default_factory=list)
    epoch: int = 0
    result: dict[str, Metrics] = field(default_factory=dict)
    parts: dict[str, dict[str, list[float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A pack at the end: the outcome of each seed, the selected parameters, the time it took."""

    run: Run
    outcomes: list[Outcome]
    parameters: Parameters  # (seeds, ...)
    seconds: float

    def weights(self, seed: int) -> dict[str, Tensor]:
        """The selected parameters of one seed, on the CPU."""
        n = [outcome.seed for outcome in self.outcomes].index(seed)
        return {name: p[n].cpu() for name, p in self.parameters.items()}

    def model(self, data: Data, seed: int) -> torch.nn.Module:
        """The trained model of one seed, on the CPU, in evaluation mode."""
        return assembled(self.run, data, self.weights(seed))


def assembled(run: Run, data: Data, weights: dict[str, Tensor]) -> torch.nn.Module:
    """A model of the run with these parameters, on the CPU, in evaluation mode."""
    model = run.model.build(data, torch.Generator())
    lacking = [name for name, _ in model.named_parameters() if name not in weights]
    model.to(next(iter(weights.values())).dtype)
    # buffers are made by `build`: weights have none
    unknown = model.load_state_dict(weights, strict=False).unexpected_keys
    if lacking or unknown:
        raise ValueError(
            f"The weights lack {', '.join(lacking) or 'nothing'} and have "
            f"{', '.join(unknown) or 'nothing'} besides what {type(model).__name__} has: they are "
            "of another model, or of other code. Assemble the run that they were trained by."
        )
    return model.eval()


def check_precision(precision: str, device: str | torch.device) -> None:
    """Refuses TF32 where it would be float32 under its name."""
    kind = torch.device(device).type
    if precision == "tf32" and kind != "cuda":
        raise ValueError(
            f"precision='tf32' is of NVIDIA GPUs; the {kind} would compute float32 under "
            "its name. Train on a GPU, or with precision='float32'."
        )


def train(
    run: Run,
    seeds: list[int],
    data: Data,
    *,
    device: str | torch.device = "cpu",
    checkpoint: Checkpoint | None = None,
    checkpoint_every: float = 0.0,
    report: Callable[[int, list[Metrics]], None] = lambda epoch, metrics: None,
) -> Trained:
    """Train all seeds at once and score the selected epoch on every split but `train`.

    After an epoch the pack is saved to `checkpoint`, if there is one and `checkpoint_every` seconds
    have passed; then (not where that is after every epoch) while training goes on. A run that finds
    its own continues from there and ends with the same numbers. `report` hears of every epoch.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"A pack needs at least one seed and each only once, got {seeds}.")
    device, data = torch.device(device), run.limited(data)
    check_precision(run.precision, device)
    started = time.perf_counter()
    pack = Pack(run, seeds, data, device)
    examples, steps = run.examples(data), run.steps(data)
    outcomes = [Outcome(seed) for seed in seeds]
    best = {name: p.detach().clone() for name, p in pack.parameters.items()}
    first, earlier, saved = 0, 0.0, time.perf_counter()
    found = checkpoint.load() if checkpoint else None
    if found:
        first, earlier = _resume(str(checkpoint), pack, outcomes, best, *found)
    stepper = (GraphStepper if device.type == "cuda" else Stepper)(pack, cosine(run, steps))
    with _one_at_a_time(wait=checkpoint_every == 0) as save:
        for epoch in range(first, run.epochs):
            if run.patience and all(epoch - 1 - o.epoch >= run.patience for o in outcomes):
                break
            losses = stepper.epoch(epoch * steps, pack.order(examples), run.batch)
            scores = stepper.score(data.valid)
            for n, outcome in enumerate(outcomes):
                line = {"loss": losses[n].item()} | {k: v[n].item() for k, v in scores.items()}
                outcome.curve.append(line)
            _select(run, pack, outcomes, best)
            if checkpoint and time.perf_counter() - saved >= checkpoint_every:
                seconds = earlier + time.perf_counter() - started
                save(checkpoint.save, *_state(pack, outcomes, best, seconds))
                saved = time.perf_counter()
            report(epoch, [outcome.curve[-1] for outcome in outcomes])
    scored: dict[int, dict[str, Tensor]] = {}  # one split may have two names
    for name, split in data.splits.items():
        if name != "train":
            if id(split) not in scored:
                scored[id(split)] = pack.score(split, best)
            for n, outcome in enumerate(outcomes):
                of_seed = {k: v[n] for k, v in scored[id(split)].items()}
                outcome.result[name] = {k: v.item() for k, v in of_seed.items() if not v.ndim}
                if parts := {k: v.tolist() for k, v in of_seed.items() if v.ndim}:
                    outcome.parts[name] = parts
    return Trained(run, outcomes, best, earlier + time.perf_counter() - started)


def _select(run: Run, pack: Pack, outcomes: list[Outcome], best: Parameters) -> None:
    """Keep the parameters of the seeds that have just become the ones to report."""
    latest = len(outcomes[0].curve) - 1
    better = []
    for outcome in outcomes:
        if run.select == "last":
            better.append(True)
        else:
            goal, metric = run.select.split(" ")
            if metric not in outcome.curve[-1]:
                known = ", ".join(outcome.curve[-1])
                raise ValueError(f"select={run.select!r}: an epoch has {known}, no {metric}.")
            sign = 1 if goal == "lowest" else -1
            values = [sign * line[metric] for line in outcome.curve]
            values = [math.inf if math.isnan(value) else value for value in values]
            better.append(latest == 0 or values[latest] < values[outcome.epoch])
        if better[-1]:
            outcome.epoch = latest
    chosen = torch.tensor(better, device=pack.device)
    for name, parameter in pack.parameters.items():
        mask = chosen.view(-1, *(1,) * (parameter.ndim - 1))
        best[name].copy_(torch.where(mask, parameter.detach(), best[name]))


@contextmanager
def _one_at_a_time(*, wait: bool) -> Iterator[Callable[..., None]]:
    """Work in a thread of its own. What goes wrong is raised by the next call, or at the end; if
    it is waited for, at once."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        last: Future[None] | None = None

        def begin(work: Callable[..., None], *args: Any) -> None:
            nonlocal last
            if last is not None:
                last.result()
            last = thread.submit(work, *args)
            if wait:
                last.result()

        yield begin
        if last is not None:
            last.result()


def _state(
    pack: Pack, outcomes: list[Outcome], best: Parameters, seconds: float
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that a run continues from, as it is now: training goes on meanwhile."""
    tensors = pack.tensors() | {f"best.{name}": p for name, p in best.items()}
    state = {
        "seconds": seconds,
        "examples": pack.examples,
        "outcomes": [{"seed": o.seed, "epoch": o.epoch, "curve": [*o.curve]} for o in outcomes],
    }
    here = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    return here, state


def _resume(
    where: str,
    pack: Pack,
    outcomes: list[Outcome],
    best: Parameters,
    tensors: dict[str, Tensor],
    state: dict[str, Any],
) -> tuple[int, float]:
    """Put everything back; the next epoch and the seconds spent before."""
    seeds = [kept["seed"] for kept in state["outcomes"]]
    if seeds != pack.seeds:
        raise ValueError(
            f"{where} is of seeds {seeds}, the run asks for {pack.seeds}. Train the same pack, or "
            "delete it to start again."
        )
    if state["examples"] != pack.examples:
        raise ValueError(
            f"{where} was trained on data with checksum {state['examples']}, which now is "
            f"{pack.examples}. Bring the data back, or delete it to start again."
        )
    try:
        pack.restore(tensors)
        for name, tensor in best.items():
            tensor.copy_(tensors[f"best.{name}"])
    except (KeyError, RuntimeError) as reason:
        raise ValueError(
            f"{where} was written by other code ({reason}). Continue with that, or delete it to "
            "start again."
        ) from reason
    for outcome, kept in zip(outcomes, state["outcomes"], strict=True):
        outcome.curve, outcome.epoch = kept["curve"], kept["epoch"]
    return len(outcomes[0].curve), state["seconds"]
