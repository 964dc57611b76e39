"""The `scene-data` command line."""


def main() -> None:
    """Entry point."""
