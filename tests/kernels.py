"""Where Triton kernels are tested: on a CUDA device, or in Triton's interpreter on the CPU."""

import os

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
# the interpreter computes bfloat16 as if it were integers
DTYPES = [torch.float32] if INTERPRETED else [torch.float32, torch.bfloat16, torch.float16]
