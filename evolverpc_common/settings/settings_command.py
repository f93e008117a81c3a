"""Make the flags of a typer command from settings, and its help by groups."""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from evolverpc_common.settings.definition import Setting, flag_of

USAGE_WIDTH = 30
"""Columns for a flag and its value; the description of a longer one begins on the next line."""

TITLE_WIDTH = 15
"""Columns for the title of a group before the names of its flags."""

LONG_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
"""The name of a setting that is no ordinary word."""


class SettingsCommand(TyperCommand):
    """A command whose flags are settings; its help has one section for each group. Use `settings_command`."""

    settings: Mapping[str, Setting] = {}
    refused: Mapping[str, str] = {}
    unlisted: Collection[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; fail for a flag in `refused`, with the reason.

        `--no-NAME` is `--NAME off` for a setting that has this choice.
        """
        off = {f"--no-{each.flag[2:]}": (each.flag, "off") for each in self.settings.values() if each.has_off}
        args = [part for argument in args for part in off.get(argument, (argument,))]
        for argument in args:
            flag = argument.partition("=")[0]
            name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
            if flag.startswith("--") and name in self.refused:
                ctx.fail(f"{flag} cannot be set: {self.refused[name]}")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections: arguments, everyday flags, then each group: in full, or the names of its usual flags.

        A flag that is no setting is an everyday one unless it has a panel, which is its group.
        """
        every = ctx.meta.get(__name__, False)
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        named: dict[str, list[str]] = {}
        own: list[tuple[str, str]] = []
        hidden = 0
        for param in self.get_params(ctx):
            found = self.settings.get(param.name or "")
            if found is not None and found.name in self.unlisted:
                continue
            if found is not None and not isinstance(param, TyperArgument):
                if not every and not found.everyday:
                    named.setdefault(found.group, []).extend([] if found.rare else [found.flag])
                    hidden += found.rare
                else:
                    section = "Options" if found.everyday else found.group
                    default = "" if found.default_text == "none" else f" [default: {found.default_text}]"
                    sections.setdefault(section, []).append(
                        (found.usage, self._with_flags(found.description) + default)
                    )
            elif (record := param.get_help_record(ctx)) is not None:
                panel = getattr(param, "rich_help_panel", None)
                if isinstance(param, TyperArgument):
                    sections["Arguments"].append((str(param.metavar or record[0]), record[1]))
                elif panel is None:
                    own.append((record[0], record[1]))
                elif every:
                    sections.setdefault(panel, []).append((record[0], record[1]))
                else:
                    named.setdefault(panel, []).extend(param.opts)
        sections["Options"] += own
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(usage.ljust(USAGE_WIDTH), text) for usage, text in rows], USAGE_WIDTH)
        if not named:
            return
        with formatter.section("More flags"):
            for title, flags in named.items():
                head = " " * formatter.current_indent + title.ljust(TITLE_WIDTH)
                wrapped = textwrap.wrap(  # the formatter's own method would break flags at their hyphens
                    " ".join(flags),
                    formatter.width,
                    initial_indent=head,
                    subsequent_indent=" " * len(head),
                    break_on_hyphens=False,
                )
                formatter.write("".join(f"{text}\n" for text in wrapped))
        others = f", and {hidden} that are rarely used" if hidden else ""
        formatter.write_paragraph()
        formatter.write_text(f"What these do{others}: {ctx.command_path} --help-all")

    def _with_flags(self, text: str) -> str:
        """Return a description that names other settings, such as `max_seconds`, with their flags in their place."""
        return LONG_NAME.sub(lambda name: found.flag if (found := self.settings.get(name[0])) else name[0], text)


def settings_command(
    settings: Mapping[str, Setting], refused: Mapping[str, str] | None = None, unlisted: Collection[str] = ()
) -> type[SettingsCommand]:
    """Return a command class for these settings. `refused`: flags that cannot be set, each with the reason.

    `unlisted`: settings whose flags the help leaves out.
    """
    return type("Command", (SettingsCommand,), {"settings": settings, "refused": refused or {}, "unlisted": unlisted})


def with_flags(
    action: Callable[..., None], own: Mapping[str, tuple[Any, Any]], settings: Iterable[Setting] = ()
) -> Callable[..., None]:
    """Return `action`, which takes keyword arguments, with the signature that typer reads flags from.

    `own`: annotation and default of parameters that are no settings. The text of each flag arrives unparsed, None if it
    was not given.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, annotation=annotation, default=default)
        for name, (annotation, default) in own.items()
    ]
    parameters += [
        inspect.Parameter(each.name, keyword, annotation=Annotated[_type(each) | None, _option(each)], default=None)
        for each in settings
        if each.name not in own
    ]
    if len(parameters) > len(own):
        help_all = typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show every flag and exit.")
        parameters.append(inspect.Parameter("help_all", keyword, annotation=Annotated[bool, help_all], default=False))

    @functools.wraps(action)
    def command(help_all: bool = False, **given: Any) -> None:  # noqa: ARG001  # its callback did all
        action(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    return command


def _type(setting: Setting) -> Any:
    return bool if setting.kind is bool else list[str] if setting.repeatable else str


def _option(setting: Setting) -> Any:
    names = [setting.flag if setting.negation is None else f"{setting.flag}/{setting.negation}"]
    names += [flag_of(setting.name)] if setting.short is not None else []
    names += [f"--{setting.name}"] if "_" in setting.name else []  # as messages name it
    return typer.Option(*names, help=setting.description, show_default=False, metavar=setting.placeholder)


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[__name__] = True
        typer.echo(ctx.get_help())
        raise typer.Exit
