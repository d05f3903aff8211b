"""`python -m lohe` and the command `lohe`."""

import os
import signal


def main() -> None:
    """Ctrl-C ends it quietly also in the second or two that it imports."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if heard:  # an exception in the middle of an import may be caught by whoever imports
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from lohe import cli

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
