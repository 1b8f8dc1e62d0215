"""The model card that lies beside every model."""

from __future__ import annotations

import json

from compress.artifact.provenance import Provenance
from compress.transformer.config import ModelConfig


def model_card(config: ModelConfig, provenance: Provenance) -> str:
    """A short README in Markdown: what the model is, what it keeps, how it was made, how it is used."""
    structure = config.structure
    kind = f"{structure.members} fused members" if structure.members > 1 else "one model"
    rows = [
        f"| {layer} | {total} | {' · '.join(', '.join(map(str, heads)) for heads in groups)} |"
        for layer, (total, groups) in enumerate(zip(structure.original_heads, structure.kept_heads, strict=True))
    ]
    about = [f"{len(config.labels)} classes"]
    if structure.members > 1 and structure.branch_layer:
        about.append(f"the members share layers 0 to {structure.branch_layer - 1}")
    lines = [
        "---",  # what a model hub sorts by
        "library_name: compress-transformers",
        f"pipeline_tag: {config.preprocessing.kind}-classification",
        "tags: [attention-head-pruning, uncertainty]",
        "---",
        "",
        f"# {config.backbone.architecture}, {kind}",
        "",
        f"Written by `compress {provenance.stage}`. {'; '.join(about)}.",
        "",
        "```python",
        "import compress",
        "",
        'model = compress.load("PATH OF THIS FOLDER")',
        "logits = model(inputs)           # (B, classes)",
        "members = model.members(inputs)  # (members, B, classes)",
        "```",
        "",
        "Heads kept (by their number in the original model; `·` separates members):",
        "",
        "| layer | original | kept |",
        "|---|---|---|",
        *rows,
        "",
        "How it was made:",
        "",
        "```json",
        json.dumps(json.loads(provenance.model_dump_json()), indent=2, sort_keys=True, ensure_ascii=False),
        "```",
        "",
    ]
    return "\n".join(lines)
