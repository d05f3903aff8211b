"""Many seeds of one run as one set of tensors: parameters with a leading seed axis.

Each seed has its own initialisation, batch order, dropout, gradient clipping and optimiser state,
as if it were trained alone; vmap turns the models into batched matrix products.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call, vmap

from lohe.models import set_generator
from lohe.tasks import Data, Split, Sums, total
from lohe.train.run import Run

SCORED = 256  # examples at a time
FEW_SLICES = 512  # of a step's gradients, one for each seed and parameter

Parameters = dict[str, Tensor]


class Pack:
    """Models of several seeds, stacked, with one optimiser for all of them."""

    def __init__(self, run: Run, seeds: list[int], data: Data, device: torch.device):
        self.run, self.seeds, self.device = run, seeds, device
        self.task, self.examples = run.task, data.checksum
        self.train_split = data.train.to(device)
        self.dtype = torch.float64 if run.precision == "float64" else torch.float32
        # one generator a seed: it draws the parameters, then the order of each epoch
        self.orders = [torch.Generator().manual_seed(seed) for seed in seeds]
        models = [run.model.build(data, g).to(self.dtype) for g in self.orders]
        if run.paired:  # another model has drawn more or fewer numbers by now
            self.orders = [torch.Generator().manual_seed(_order(seed)) for seed in seeds]
        self.parameters, self.buffers = _stack(models, device)
        self.trained = [p for p in self.parameters.values() if p.requires_grad]
        self.dropout = torch.Generator(device).manual_seed(_name(run, seeds))
        self.model = models[0].to(device)
        set_generator(self.model, self.dropout)
        # on CUDA the rate is a tensor, so that a captured step can follow the schedule
        cuda = device.type == "cuda"
        rate = torch.tensor(run.optimizer.lr, device=device) if cuda else run.optimizer.lr
        self.optimizer = run.optimizer.build(self.trained, rate, fused=True, capturable=cuda)

    def order(self, examples: int) -> Int[Tensor, "seeds examples"]:
        """The next epoch's order of each seed, from its own generator."""
        return torch.stack([torch.randperm(examples, generator=g) for g in self.orders])

    def set_rate(self, lr: Float[Tensor, ""]) -> None:
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(lr)
        else:
            group["lr"] = lr.item()

    def step(self, index: Int[Tensor, "seeds batch"]) -> Float[Tensor, " seeds"]:
        """One optimiser step of every seed on its own batch; the losses before it."""
        batch = self.train_split.take(index)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision():
            losses = vmap(self._loss, randomness="different")(
                self.parameters, self.buffers, self._cast(batch.inputs), batch.targets
            )
            losses.sum().backward()
        self._clip()
        self.optimizer.step()
        return losses.detach()

    def _loss(
        self, parameters: Parameters, buffers: Parameters, inputs: dict, targets: dict
    ) -> Tensor:
        outputs = functional_call(self.model, (parameters, buffers), (), inputs)
        return self.task.loss(outputs.to(self.dtype), targets)

    def _clip(self) -> None:
        """As clip_grad_norm_ does, seed by seed."""
        gradients = [p.grad for p in self.trained if p.grad is not None]
        of_seeds = self.device.type == "cuda" and len(self.seeds) * len(gradients) <= FEW_SLICES
        (clip_by_slices if of_seeds else clip)(gradients, self.run.clip)

    def score(
        self, split: Split, parameters: Parameters | None = None
    ) -> dict[str, Float[Tensor, "seeds ..."]]:
        """The task's metrics of every seed on one split."""
        return self.scored(split, partial(self.tally, parameters=parameters))

    def scored(
        self, split: Split, tally: Callable[[Split], Sums]
    ) -> dict[str, Float[Tensor, "seeds ..."]]:
        """The metrics, from what `tally` makes of a few hundred examples at a time."""
        split = split.to(self.device)
        parts = (split.take(slice(n, n + SCORED)) for n in range(0, len(split), SCORED))
        return self.task.score(total(map(tally, parts)))

    @torch.no_grad()
    def tally(self, part: Split, parameters: Parameters | None = None) -> Sums:
        """The task's sums of every seed over some examples."""
        parameters = self.parameters if parameters is None else parameters
        self.model.eval()
        with self.precision():
            return vmap(self._tally, in_dims=(0, 0, None, None))(
                parameters, self.buffers, self._cast(part.inputs), part.targets
            )

    def _tally(
        self, parameters: Parameters, buffers: Parameters, inputs: dict, targets: dict
    ) -> dict:
        outputs = functional_call(self.model, (parameters, buffers), (), inputs)
        return self.task.tally(outputs.to(self.dtype), targets)

    def _cast(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: x.to(self.dtype) if x.is_floating_point() else x for n, x in inputs.items()}

    @contextmanager
    def precision(self) -> Iterator[None]:
        """float32 means float32: TF32 only where the run says so. By PyTorch's newest switch, which
        can be read whichever of them was set before."""
        matmul = torch.backends.cuda.matmul
        before, matmul.fp32_precision = (
            matmul.fp32_precision,
            "tf32" if self.run.precision == "tf32" else "ieee",
        )
        half = self.run.precision == "bf16"
        try:
            with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
                yield
        finally:
            matmul.fp32_precision = before

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, for a checkpoint."""
        state = {f"parameters.{n}": p.detach() for n, p in self.parameters.items()}
        for n, values in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{n}.{k}": v for k, v in values.items()}
        state |= {f"order.{n}": g.get_state() for n, g in enumerate(self.orders)}
        return state | {"dropout": self.dropout.get_state()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue exactly where `tensors` were taken."""
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"parameters.{name}"])
        held = self.optimizer.state_dict()
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, n, key = name.split(".")
                states.setdefault(int(n), {})[key] = value
        self.optimizer.load_state_dict({"state": states, "param_groups": held["param_groups"]})
        for n, generator in enumerate(self.orders):
            generator.set_state(tensors[f"order.{n}"].cpu())
        wanted, found = (len(s) for s in (self.dropout.get_state(), tensors["dropout"]))
        if wanted != found:
            raise ValueError(
                f"The checkpoint's generator has {found} bytes, one on {self.device} has {wanted}: "
                "it was saved on another kind of device (CPU or CUDA). Continue there, or delete "
                "the checkpoint to start again."
            )
        self.dropout.set_state(tensors["dropout"].cpu())


def clip(gradients: list[Float[Tensor, "seeds ..."]], most: float) -> None:
    """Scale each seed's gradient to a norm of at most `most`, in place."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients])
    factor = _factor(norms.norm(dim=0), most)
    for g in gradients:
        g.mul_(factor.view(-1, *(1,) * (g.ndim - 1)))


def clip_by_slices(gradients: list[Float[Tensor, "seeds ..."]], most: float) -> None:
    """The same in a handful of kernels, not two for each parameter: a seed's slice is a tensor."""
    slices = [list(parts) for parts in zip(*(g.unbind(0) for g in gradients), strict=True)]
    every = [x for parts in slices for x in parts]
    # these two have no public name
    norms = torch.stack(torch._foreach_norm(every))  # pyright: ignore
    factor = _factor(norms.view(len(slices), -1).norm(dim=1), most)
    for seed, parts in enumerate(slices):
        torch._foreach_mul_(parts, factor[seed])  # pyright: ignore


def _factor(norm: Float[Tensor, " seeds"], most: float) -> Float[Tensor, " seeds"]:
    return (most / (norm + 1e-6)).clamp(max=1.0)


def cosine(run: Run, steps_per_epoch: int) -> Float[Tensor, " steps"]:
    """Learning rate at every step of the run, in float64: lr (1 + cos(π s / S)) / 2."""
    steps = torch.arange(run.epochs * steps_per_epoch, dtype=torch.float64)
    done = steps / len(steps)
    if run.schedule == "epoch":
        done = (steps // steps_per_epoch) / run.epochs
    return run.optimizer.lr * (1 + torch.cos(math.pi * done)) / 2


def _stack(models: list[torch.nn.Module], device: torch.device) -> tuple[Parameters, Parameters]:
    first = models[0]
    parameters = {
        name: torch.stack([m.get_parameter(name).detach() for m in models])
        .to(device)
        .requires_grad_(p.requires_grad)
        for name, p in first.named_parameters()
    }
    buffers = {
        name: torch.stack([m.get_buffer(name) for m in models]).to(device)
        for name, _ in first.named_buffers()
    }
    return parameters, buffers


def _name(run: Run, seeds: list[int]) -> int:
    """A number for the pack's dropout that only the run and its seeds decide."""
    return int(hashlib.sha256(repr((run.recipe(), seeds)).encode()).hexdigest()[:15], 16)


def _order(seed: int) -> int:
    """A number for the order of a seed's examples, whatever its model; apart from the seeds."""
    return int(hashlib.sha256(f"order {seed}".encode()).hexdigest()[:15], 16)
