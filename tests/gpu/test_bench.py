"""`lohe bench` on a CUDA device, at sizes that are over in seconds."""

import pytest
import torch

from commands import lohe
from lohe.bench import clock, decode, rows
from lohe.bench.contest import Setup
from lohe.bench.sets import MECHANISMS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("default"),  # those of torch.compile, which FlexAttention needs
]
CUDA = torch.device("cuda")


def test_every_kernel_is_timed_and_its_memory_told(tmp_path):
    path = tmp_path / "a.jsonl"
    options = ["--tokens", "256", "--seconds", "0.01", "--backend", "triton", "--json", path]
    result = lohe("bench", "--set", "table", *options)
    assert result.exit_code == 0, result.output
    header, found = rows.read(path)
    assert header["gpu"] == torch.cuda.get_device_name()
    assert header["driver"]
    both = {row.name: row for row in found if row.measure == "both"}
    assert both.keys() >= {*MECHANISMS, "flash", "efficient", "flex"}
    # at least the output and a gradient for each of f, g and v
    least = 4 * 16384 * 32 * 64 * 2
    assert not [
        (name, row.peak_bytes) for name, row in both.items() if (row.peak_bytes or 0) < least
    ]


@pytest.mark.alone
def test_events_agree_with_the_host():
    x = torch.randn(4096, 4096, device=CUDA)

    def work():
        for _ in range(20):
            torch.mm(x, x)

    work()
    (gpu,) = clock.in_turns([(work,)], clock.clock(CUDA), 5)
    (host,) = clock.in_turns([(lambda: (work(), torch.cuda.synchronize()),)], clock.HostClock(), 5)
    assert 0.7 < gpu.min() / host.min() < 1.05


def test_decoding_from_a_graph():
    rng = torch.Generator(CUDA).manual_seed(0)
    setup = Setup("test", CUDA, torch.bfloat16, "triton", 0.01, rng)
    case = setup.case(2, 4, 1024, 64, causal=True)
    found = list(decode.compare(setup, case, {"relu": MECHANISMS["relu"]}, flex=True))
    timed = {(row.name, row.measure) for row in found if row.status == "timed"}
    assert {("relu", "decode"), ("relu", "decode eager"), ("flash", "decode")} <= timed
    assert not any(row.note for row in found if row.name == "relu")  # it was captured
