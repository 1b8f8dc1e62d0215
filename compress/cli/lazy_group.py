"""A click group whose commands are imported when they are called, so that help and errors stay fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import click

from compress.registry import nearest


@dataclass(frozen=True)
class CommandEntry:
    """A command that is not imported yet.

    Attributes:
        target: ``"module:attribute"`` of the click command.
        help: one line for the group's help page.
        section: heading that the line stands under.
    """

    target: str
    help: str
    section: str


class LazyGroup(click.Group):
    """A group over a table of ``CommandEntry``."""

    def __init__(self, *, entries: Mapping[str, CommandEntry], epilog: str, help: str) -> None:
        super().__init__(
            name="compress", epilog=epilog, help=help, context_settings={"help_option_names": ["-h", "--help"]}
        )
        self.entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the table's order."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None when there is none of this name."""
        if cmd_name not in self.entries:
            return None
        module, _, attribute = self.entries[cmd_name].target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.entries[cmd_name].target} is no click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name suggests the nearest one."""
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            raise click.UsageError(f"unknown command {args[0]!r}; {nearest(args[0], self.entries)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table by sections, without importing the commands."""
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [(name, entry.help) for name, entry in self.entries.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)
