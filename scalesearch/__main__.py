"""``python -m scalesearch`` is the ``scalesearch`` command."""

from scalesearch.cli.main import main

if __name__ == "__main__":
    main()
