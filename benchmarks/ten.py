"""`lohe contest ten` on CPUs, in six tenths of the time where they have AMX.

Steps are those of quick.py: where the processor has AMX, products of the head of 10,000 words round
their operands to bfloat16 in training; sums and everything else are float32, and so is every score.
That was 0.04 % of perplexity at most after each of ten epochs (quick.json's model, LOG.md), where
seeds differ by 0.5. Elsewhere nothing is rounded. Records say which, and are otherwise those of the
command. Stopped at any moment, it continues; started twice, two processes share the work.

    OMP_NUM_THREADS=1 python benchmarks/ten.py --data ROOT      # records in results/
"""

import sys
from typing import Any

import quick
from lohe.cli import app
from lohe.experiments import runner


def main() -> None:
    if any(x.startswith("--device") for x in sys.argv):
        raise SystemExit("This is for CPUs. On a GPU: lohe contest ten --device cuda")
    quick.use()
    of_machine, head = runner.environment, "bfloat16" if quick.rounds() else "float32"

    def environment(device: str) -> dict[str, Any]:
        return of_machine(device) | {"head": f"products of {head} in training"}

    runner.environment = environment
    app(["contest", "ten", "--device", "cpu", *sys.argv[1:]], prog_name="lohe")


if __name__ == "__main__":
    main()
