"""The one family of errors that a user can cause, each a single sentence: what is wrong, where, how to mend it."""

from __future__ import annotations


class CompressError(Exception):
    """A user error.

    Args:
        what: what is wrong, without a final full stop.
        where: the place: ``file:line``, an option such as ``--keep``, a tensor, a row.
        fix: how to mend it, as an imperative.

    ``str(error)`` is one printable line; the command line prints it and ends with ``exit_code``.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(f"{where}: {what}" if where else what)

    def __str__(self) -> str:
        place = f"{printable(self.where)}: " if self.where else ""
        mend = f"; {self.fix}" if self.fix else ""
        said = " ".join(f"{self.what}{mend}".split("\n"))  # one line, whatever a library wrote
        return place + printable(said)


def printable(text: str) -> str:
    """The text with whatever is not printable escaped: a terminal obeys control characters in strangers' names."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def first_line(said: BaseException | str, most: int = 200) -> str:
    """The first line in which a library says something, cut after so many characters; printable.

    An error without words gives the name of its type.
    """
    lines = (line.strip() for line in str(said).splitlines())
    found = next((line for line in lines if line), "no reason given" if isinstance(said, str) else type(said).__name__)
    return printable(found[:most])


class UsageError(CompressError):
    """A command-line option or a function argument has a value that cannot work."""


class ModelError(CompressError):
    """A model or its weights cannot be opened, or do not fit each other."""


class UnsupportedModelError(ModelError):
    """The model has a part that the project cannot represent exactly."""


class DataError(CompressError):
    """A data set cannot be read, or does not fit the model."""


class ArtifactError(CompressError):
    """An artifact folder is incomplete, damaged, too new or cannot be written."""


class RecipeError(CompressError):
    """A recipe file has an unknown key, a wrong value or a broken syntax."""


class SelfCheckError(CompressError):
    """A stage's result does not agree with what it must equal; nothing was written."""


class GateFailed(CompressError):
    """A ``--fail-if`` gate of an evaluation failed."""

    exit_code = 3


def out_of_memory(error: Exception) -> bool:
    """Whether Python, torch's allocator of the CPU or that of an accelerator had no memory left."""
    allocator = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return allocator or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
