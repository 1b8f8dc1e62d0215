"""The two ways to compute chosen heads only, row by row and head by head, against all heads, in turns:

    python benchmarks/skipping_kernels.py

One attention per line, 3 of 12 heads per row, every row its own; time over that of the same attention with all heads,
median of the rounds' ratios with quartiles. ``compress/attention/skipping.py`` takes one or the other by the number of
tokens and rows, and its thresholds come from this table.
"""

from __future__ import annotations

import click
import torch
from taking_turns import circumstances, ratios, seconds
from torch import Tensor

from compress.allocator import keep_memory
from compress.attention.attention import Attention
from compress.attention.skipping import Work, attend_by_head, attend_by_row

HEADS, CHOSEN = 12, 3
# Width, tokens and rows: ViT-B at 224 pixels, MiniLM on texts, short sentences.
CASES = ((768, 197, 1), (768, 197, 8), (384, 128, 8), (384, 20, 1), (384, 20, 8), (384, 20, 64))


def random_attention(width: int) -> Attention:
    """All heads, with random weights."""
    attention = Attention(width, width // HEADS, [tuple(range(HEADS))], original_heads=HEADS)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return attention.eval()


def random_work(x: Tensor) -> Work:
    """Every row with heads of its own."""
    chosen = torch.zeros(len(x), HEADS, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(HEADS)[:CHOSEN]] = True
    return Work(x, x, None, False, chosen, torch.ones(len(x), HEADS))


@click.command(help=__doc__)
@click.option("--rounds", default=21, show_default=True)
@click.option("--threads", default=1, show_default=True, help="CPU threads of one operation.")
def main(rounds: int, threads: int) -> None:
    keep_memory()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    for width, tokens, rows in CASES:
        attention, x = random_attention(width), torch.randn(rows, tokens, width)
        work = random_work(x)
        with torch.inference_mode():
            times = seconds(
                {
                    "all": lambda attention=attention, x=x: attention(x),
                    "by row": lambda attention=attention, work=work: attend_by_row(attention, work),
                    "by head": lambda attention=attention, work=work: attend_by_head(attention, work),
                },
                rounds,
            )
        for way in ("by row", "by head"):
            print(f"width {width}, {tokens:3} tokens, {rows:2} rows, {way:7}: {ratios(times[way], times['all'])}")
    print(circumstances("float32", torch.device("cpu")))


if __name__ == "__main__":
    main()
