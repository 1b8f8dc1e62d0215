"""The base of every schema: frozen, strict about names, and the one source of recipe keys and command options."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A frozen set of named values; an unknown name is an error.

    Every field carries ``Field(description=...)``, which is also the help of the command's option.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
