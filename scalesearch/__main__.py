"""``scalesearch`` and ``python -m scalesearch``: the command line."""

import os
import signal


def main() -> None:
    """Run the command line, whose imports may be slow: Ctrl-C during them ends the process."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from scalesearch.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
