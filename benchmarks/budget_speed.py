"""What skipping heads saves: a vision transformer with budgets against the dense one, in the same run, taking turns.

    python benchmarks/budget_speed.py

ViT-B/16 shape with random weights; the predictors run, and give every image the same share of the heads. Targets on
two cores: at 0.25 the attention sub-layers take at most 0.40 of their dense time and the whole model's time is within
10 % of its share of the FLOPs; at 1.0, fixed by the user, at most 1.03. Each round times every model once; the figures
are medians of the rounds' ratios with quartiles, on the clock and in processor time, which other programs disturb
less. The attention sub-layers are timed by themselves, on what the dense model feeds them. Some three minutes on a
quiet machine; the load average is printed, because a busy one measures itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

import click
import torch
from profiling import profiled
from taking_turns import SHAPE, Call, circumstances, dense_model, milliseconds, random_images, ratios, seconds
from torch import Tensor

from compress.allocator import keep_memory
from compress.attention.attention import Attention
from compress.attention.budget_config import BudgetConfig
from compress.attention.head_chooser import FRESH_LOGIT
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions, with_budgets
from compress.transformer.executed_flops import executed_flops
from compress.transformer.model import Transformer


def budgeted_model(dense: Transformer, share: float) -> Transformer:
    """The same weights; predictors that say ``share``, scorers that rank at random."""
    model = with_budgets(dense, BudgetConfig()).eval()
    generator = torch.Generator().manual_seed(0)
    for _, attention in budgeted_attentions(model):
        chooser = attention.chooser
        chooser.start(generator)
        with torch.no_grad():
            weight = chooser.scorer.weight
            weight.copy_(torch.randn(weight.shape, generator=generator))
        if share < 1:
            exact = share + 0.5 / SHAPE["num_heads"]  # between two numbers of heads
            chooser.shift(math.log(exact / (1 - exact)) - FRESH_LOGIT)
    if share == 1:
        model.budget(1.0)
    return model


def attention_inputs(dense: Transformer, images: Tensor) -> list[tuple[Tensor, int | Tensor | None]]:
    """What every attention of the dense model reads, and which tokens ask."""
    found = []
    hidden = dense.embed(images)
    for number, layer in enumerate(dense.layers):
        last = number == len(dense.layers) - 1
        found.append((layer.attention_input(hidden.states), hidden.pooled if last else None))
        hidden = layer(hidden, last=last)
    return found


def attentions_call(model: Transformer, inputs: list[tuple[Tensor, int | Tensor | None]]) -> Call:
    """All attention sub-layers, one after the other."""
    attentions: list[Attention] = [layer.attention for layer in model.layers]

    def run() -> None:
        for attention, (states, pooled) in zip(attentions, inputs, strict=True):
            attention(states, pooled=pooled)

    return run


def compare(models: Mapping[str, Transformer], images: Tensor, rounds: int, *, shares: bool) -> None:
    """Print the figures of one batch; ``shares``: and where the attention sub-layers spend their time."""
    inputs = attention_inputs(models["dense"], images)
    times = seconds({name: attentions_call(model, inputs) for name, model in models.items()}, rounds)
    whole = seconds({name: _forward(model, images) for name, model in models.items()}, rounds)
    full = executed_flops(models["dense"], None, [None])
    print(f"batch {len(images)}: dense attention {milliseconds(times['dense'])}, model {milliseconds(whole['dense'])}")
    for name, model in models.items():
        if name == "dense":
            continue
        counted = executed_flops(model, model.usage, [None] * len(images))
        for what, part, own, all_heads in (
            ("attention", times, counted.attention, full.attention),
            ("model", whole, counted.total, full.total),
        ):
            flops = float(own.mean() / all_heads[0])
            print(f"  {name} {what}: of dense: {ratios(part[name], part['dense'])}; FLOPs {flops:.3f}")
    for name, model in models.items() if shares else ():
        print(f"  {name} attention: {profiled(attentions_call(model, inputs))}")


def _forward(model: Transformer, images: Tensor) -> Call:
    return lambda: model(images)


@click.command(help=__doc__)
@click.option("--share", "shares", multiple=True, type=float, default=(0.25, 1.0), show_default=True)
@click.option("--batch", "batches", multiple=True, type=int, default=(1, 8), show_default=True)
@click.option("--rounds", default=15, show_default=True)
@click.option("--threads", type=int, help="Threads of one operation (default: torch's own).")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--profile", is_flag=True, help="Print where the attention sub-layers spend their time.")
def main(
    shares: Sequence[float],
    batches: Sequence[int],
    rounds: int,
    threads: int | None,
    dtype: str,
    device: str,
    profile: bool,
) -> None:
    keep_memory()
    torch.set_num_threads(threads or torch.get_num_threads())
    runtime = Runtime.model_validate({"device": device, "dtype": dtype})
    place, form = runtime.torch_device(), runtime.torch_dtype()
    dense = dense_model()
    models = {"dense": dense, **{f"{share:g}": budgeted_model(copy.deepcopy(dense), share) for share in shares}}
    models = {name: model.to(place, form) for name, model in models.items()}
    with torch.inference_mode():
        for batch in batches:
            compare(models, random_images(batch).to(place, form), rounds, shares=profile)
    print(circumstances(dtype, place))


if __name__ == "__main__":
    main()
