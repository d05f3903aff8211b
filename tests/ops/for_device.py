"""python for_device.py CAPABILITY SHARED_BYTES: compile kernels for a GPU that is not there.

Everything is done but the launch itself, so that what the interpreter cannot run (16-bit types,
assembly) is compiled, and tiles that the device has no room for are found out. The widest of
float32 are compiled until their shared memory is known, and no further: the rest takes longest.
"""

import os
import sys
import tempfile

import torch
from triton._C.libtriton import ir, nvidia, passes
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend, get_ptx_version_from_options
from triton.runtime import driver

from lohe import ops, sphere
from lohe.ops import dispatch
from lohe.ops.triton import fitting

CAPABILITY, SHARED = map(int, sys.argv[1:])
CALLS = [  # dtype, d_h = d_v, d_osc, what else
    (torch.bfloat16, 64, 2, {"coupling": "softplus"}),
    (torch.float16, 128, 64, {"coupling": "relu", "sharpness": 4, "gain": 1.7}),
][: 0 if CAPABILITY == 80 else 2]
WIDEST = [  # of float32; of what a device has no room for it is said so
    (torch.float32, 256, 64, {"coupling": "relu"}),
    (torch.float32, 256, 32, {"coupling": "relu"}),
    (torch.float32, 128, 32, {"coupling": "relu"}),
]


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


def compile_both(dtype, width, d_osc, call):
    """The kernels of a forward and a backward pass."""
    f, g, v = (torch.randn(1, 2, 70, width, dtype=dtype).requires_grad_() for _ in range(3))
    anchors = sphere.uniform(2, 70, d_osc).requires_grad_()
    out = ops.oscillator_attention(f, g, v, anchors, causal=True, backend="triton", **call)
    torch.autograd.grad(out, [f, g, v, anchors], torch.ones_like(out))


def memory_only(self, module, metadata, options, capability):
    """The first passes of Triton's own make_llir, up to the one that allocates shared memory."""
    version = get_ptx_version_from_options(options, self.target.arch)
    first = ir.pass_manager(module.context)
    passes.ttgpuir.add_combine_tensor_select_and_if(first)
    try:
        passes.ttgpuir.add_allocate_warp_groups(first, False)
    except TypeError:  # Triton up to 3.7 takes no flag
        passes.ttgpuir.add_allocate_warp_groups(first)
    passes.convert.add_scf_to_cf(first)
    passes.gluon.add_inliner(first)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(first, capability, version)
    first.run(module, "memory_only")
    metadata |= {"shared": module.get_int_attr("ttg.shared"), "tmem_size": 0, "name": "nothing"}
    for kind in ("global", "profile"):
        metadata |= {f"{kind}_scratch_size": 0, f"{kind}_scratch_align": 1}
    return ""


driver.set_active(Device())
dispatch.INTERPRETED = True  # tensors on the CPU will do
dispatch.shared_memory = lambda _: SHARED
for call in CALLS:
    compile_both(*call)
if CAPABILITY == 80:
    CUDABackend.make_llir = memory_only
    CUDABackend.make_ptx, CUDABackend.make_cubin = lambda *_: "", lambda *_: b""
    with tempfile.TemporaryDirectory() as folder:  # nobody else is to find kernels without code
        os.environ["TRITON_CACHE_DIR"] = folder
        for call in WIDEST:
            try:
                compile_both(*call)
            except ValueError as refused:
                print(refused)
            else:
                break  # those that are narrower have more room
print("tiles taken:", *sorted(fitting._FITS.values()))
