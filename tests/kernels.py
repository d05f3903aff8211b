"""Where Triton kernels are tested: on a CUDA device, or in Triton's interpreter on the CPU."""

import os

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
# the interpreter computes bfloat16 as if it were integers
DTYPES = [torch.float32] if INTERPRETED else [torch.float32, torch.bfloat16, torch.float16]

if INTERPRETED:
    from triton.runtime import interpreter

    # The interpreter patches Triton's language again whenever a kernel calls a function, which is
    # half of its time. Once a launch is enough: only at its end is anything put back.
    _patch, _launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    _patched: set[str] = set()  # modules, by this launch

    def _patch_once(function):
        if function.__module__ in _patched:
            return None
        _patched.add(function.__module__)
        return _patch(function)

    def _launch_afresh(self, *args, **options):
        _patched.clear()
        return _launch(self, *args, **options)

    interpreter._patch_lang = _patch_once
    interpreter.GridExecutor.__call__ = _launch_afresh
