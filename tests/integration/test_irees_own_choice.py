"""IREE's own choice for each kind of op is a point of the space, not only the untuned build: a search can walk around it.

The proof is the code: the assignment is in the space, and compiles to the PTX of the untuned build, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cuda_ops import ATTENTION, BATCH_MATMUL, MATMUL_BIAS_GELU, RMSNORM, SOFTMAX, attention_op, contraction, convolution

from mlsearch.builder import LocalBuilder
from mlsearch.candidate import BuildRequest, Built, Candidate
from mlsearch.cuda.executable import read_kernels
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import resolve
from mlsearch.task import cut
