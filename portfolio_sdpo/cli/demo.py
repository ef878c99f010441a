"""`portfolio-sdpo demo`: a safe policy learns while one watches."""

from typing import Annotated

import typer


def demo(
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time: PPO and SDPO are two.")] = 2,
) -> None:
    """Train PPO and SDPO on a small random CMDP and tell what they learned (about a minute)."""
    from rich.console import Console

    from portfolio_sdpo.experiments.demo import introduce, run_demo, tell
    from portfolio_sdpo.experiments.presets import DEMO
    from portfolio_sdpo.rl.progress import Board

    console = Console()
    console.print(introduce(DEMO))
    board = Board(DEMO.problem.constraints)
    with board.shown(console):
        story = run_demo(DEMO, jobs=jobs, board=board)
    console.print(tell(story))
    # Paths are not wrapped, so that they can be clicked and copied.
    typer.echo(f"\nLogs and checkpoints   {story.folder}\nLearning curves        {story.picture}")


def register(root: typer.Typer) -> None:
    """Hang the command onto the application."""
    root.command("demo")(demo)
