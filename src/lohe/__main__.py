"""`python -m lohe` is the command `lohe`."""

from lohe.cli import main

if __name__ == "__main__":
    main()
