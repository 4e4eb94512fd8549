"""``python -m portkern.cli``."""

from portkern.cli.main import main

if __name__ == "__main__":
    main()
