"""The command `lohe`, called in this process."""

from typer.testing import CliRunner

from lohe import cli


def lohe(*arguments: object):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], prog_name="lohe")
