"""How an epoch's steps are run: one after the other, or replayed from a CUDA graph."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lohe.tasks import Split, Sums
from lohe.train.pack import Pack

WARM_UP = 3  # steps before a capture, so that every buffer of the optimiser exists


class Stepper:
    """Runs the steps of an epoch eagerly: the CPU, and what a graph cannot hold."""

    def __init__(self, pack: Pack, rates: Float[Tensor, " steps"]):
        self.pack, self.rates = pack, rates.to(pack.device)

    def epoch(
        self, first_step: int, order: Int[Tensor, "seeds examples"], batch: int
    ) -> Float[Tensor, " seeds"]:
        """All batches of one order; the mean loss of each seed over its examples."""
        total = torch.zeros(len(self.pack.seeds), device=self.pack.device, dtype=torch.float64)
        for n, index in enumerate(order.to(self.pack.device).split(batch, dim=1)):
            self.pack.set_rate(self.rates[first_step + n])
            total += self.pack.step(index) * index.shape[1]
        return (total / order.shape[1]).cpu()

    def score(self, split: Split) -> dict[str, Float[Tensor, "seeds ..."]]:
        """The metrics of every seed, as it is now."""
        return self.pack.score(split)


class GraphStepper(Stepper):
    """Replays whole steps from one captured graph: no launch is paid for twice.

    Batch, rate and losses live in tensors that the graph reads and advances itself. The first few
    steps, and a smaller last batch, run eagerly on the same parameters and optimiser state. Scores
    come from a graph of their own.
    """

    def __init__(self, pack: Pack, rates: Float[Tensor, " steps"]):
        super().__init__(pack, rates)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.part: Split | None = None  # examples that the graph of the scores reads
        self.scoring: torch.cuda.CUDAGraph | None = None
        self.total = torch.zeros(len(pack.seeds), device=pack.device, dtype=torch.float64)
        self.at = torch.zeros((), dtype=torch.long, device=pack.device)  # batch of the epoch
        self.now = torch.zeros((), dtype=torch.long, device=pack.device)  # step of the run

    def epoch(
        self, first_step: int, order: Int[Tensor, "seeds examples"], batch: int
    ) -> Float[Tensor, " seeds"]:
        whole, rest = divmod(order.shape[1], batch)
        if self.graph is None:
            self.order = torch.empty_like(order, device=self.pack.device)
        self.order.copy_(order)
        self.total.zero_()
        self.at.zero_()
        self.now.fill_(first_step)
        done = 0
        if self.graph is None and whole > WARM_UP:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self._one(batch)
            torch.cuda.current_stream().wait_stream(side)
            done = WARM_UP
            self.graph = torch.cuda.CUDAGraph()
            self.graph.register_generator_state(self.pack.dropout)
            with torch.cuda.graph(self.graph):
                self._one(batch)
        for _ in range(done, whole):
            self._one(batch) if self.graph is None else self.graph.replay()
        if rest:
            self._one(rest, start=whole * batch)
        return (self.total / order.shape[1]).cpu()

    def _one(self, size: int, start: int | None = None) -> None:
        """The next step of the epoch, from tensors alone."""
        offset = torch.arange(size, device=self.pack.device)
        columns = offset + (self.at * size if start is None else start)
        self.pack.set_rate(self.rates.index_select(0, self.now[None])[0])
        self.total += self.pack.step(self.order.index_select(1, columns)) * size
        self.at += 1
        self.now += 1

    def score(self, split: Split) -> dict[str, Float[Tensor, "seeds ..."]]:
        return self.pack.scored(split, self._tally)

    def _tally(self, part: Split) -> Sums:
        """The first is made eagerly, those of its size after it from a graph."""
        if self.part is None:
            self.part = part.each(torch.clone)
        elif len(part) == len(self.part):
            for kept, new in zip(self.part.tensors(), part.tensors(), strict=True):
                kept.copy_(new)
            if self.scoring is None:
                self.scoring = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.scoring):
                    self.sums = self.pack.tally(self.part)
            self.scoring.replay()
            return self.sums
        return self.pack.tally(part)
