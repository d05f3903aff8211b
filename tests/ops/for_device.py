"""python for_device.py CAPABILITY SHARED_BYTES: compile kernels for a GPU that is not there.

Everything is done but the launch itself, so that what the interpreter cannot run (16-bit types,
assembly) is compiled, and tiles that the device has no room for are found out.
"""

import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from lohe import ops, sphere
from lohe.ops import dispatch
from lohe.ops.triton import fitting

CAPABILITY, SHARED = map(int, sys.argv[1:])
CALLS = [  # dtype, d_h = d_v, d_osc, what else
    (torch.bfloat16, 64, 2, {"coupling": "softplus"}),
    (torch.float16, 128, 64, {"coupling": "relu", "sharpness": 4, "gain": 1.7}),
    (torch.float32, 64, 8, {"coupling": "relu"}),
][: 3 if CAPABILITY < 90 else 2]  # float32 takes long to compile


class Nothing:
    """Loads and launches nothing."""

    def __init__(self, *_):
        pass

    def __call__(self, *_):
        pass

    def load_binary(self, *_):
        return 1, 1, 128, 0, 1024

    def get_device_properties(self, _):
        return {"max_shared_mem": SHARED, "multiprocessor_count": 1, "warpSize": 32}


class Device:
    """What Triton asks its driver for."""

    utils, launcher_cls = Nothing(), Nothing

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", CAPABILITY, 32)


driver.set_active(Device())
dispatch.INTERPRETED = True  # tensors on the CPU will do
for dtype, width, d_osc, call in CALLS:
    f, g, v = (torch.randn(1, 2, 70, width, dtype=dtype).requires_grad_() for _ in range(3))
    anchors = sphere.uniform(2, 70, d_osc).requires_grad_()
    out = ops.oscillator_attention(f, g, v, anchors, causal=True, backend="triton", **call)
    torch.autograd.grad(out, [f, g, v, anchors], torch.ones_like(out))
print("tiles taken:", *sorted(fitting._FITS.values()))
