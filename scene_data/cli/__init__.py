"""The `scene-data` command line."""

import sys
from collections.abc import Sequence

__all__ = ["main"]

_PIPE_WIDTH = 160


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `scene-data` with these arguments, the process's own by default.

    A mistake in them, in the model or in what is installed ends the process with status 2 and one line on standard
    error that says what to do. Pictures that differ by more than is tolerated end it with status 1.
    """
    # The libraries behind the commands are heavy: `--help` in one place, and an import error in another, come first.
    import warp as wp

    wp.config.log_level = wp.LOG_ERROR

    import tyro
    from rich.console import Console
    from rich.markup import escape

    from scene_data.cli.bench import Bench, run_bench
    from scene_data.cli.compare import Compare, run_compare
    from scene_data.cli.export import Export, run_export
    from scene_data.cli.info import Info, run_info
    from scene_data.cli.render import Render, run_render
    from scene_data.cli.view import View, run_view
    from scene_data.errors import SceneDataError

    # A pipe has no width of its own: names and paths should stay on their line there.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            {
                "render": Render,
                "view": View,
                "info": Info,
                "export": Export,
                "compare": Compare,
                "bench": Bench,
            },
            prog="scene-data",
            args=arguments,
            description=__doc__,
        )
        match command:
            case Render():
                run_render(command, console)
            case View():
                run_view(command, console)
            case Info():
                run_info(command, console)
            case Export():
                run_export(command, console)
            case Compare():
                if not run_compare(command, console):
                    sys.exit(1)
            case Bench():
                run_bench(command, console)
    except (SceneDataError, ValueError, OSError) as error:
        Console(stderr=True).print("[bold red]scene-data:[/]", escape(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
