"""``python -m fkge``."""

from fkge.cli import main

if __name__ == "__main__":  # owners' processes import this module, and must not start another program
    main()
