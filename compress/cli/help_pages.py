"""Help pages whose options stand under headings and whose examples keep their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
HELP_SECTION = "Messages and help"


class SectionedOption(click.Option):
    """An option that knows the heading it stands under."""

    def __init__(self, *args: Any, section: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def section_option(section: str, *declarations: str, **attributes: Any) -> Callable[[F], F]:
    """``click.option`` under the heading ``section``."""
    return click.option(*declarations, cls=SectionedOption, section=section, **attributes)


class SectionedCommand(click.Command):
    """A command with headings; options of click itself (``--help``) come last.

    Args:
        examples: command lines, shown unchanged at the end of the help page.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        attributes.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100})
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, in the order in which headings first appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                heading = parameter.section if isinstance(parameter, SectionedOption) else HELP_SECTION
                sections.setdefault(heading, []).append(record)
        sections[HELP_SECTION] = sections.pop(HELP_SECTION, [])
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
