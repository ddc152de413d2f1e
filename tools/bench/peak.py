"""How many FLOPs one core does at most, measured: a kernel of nothing but fused multiply-adds in registers.

Each element of a tensor goes through `CHAINS` independent chains of `STEPS` multiply-adds. Two per cycle with four
cycles of latency, as AVX-512 and AVX2 cores have it, need eight chains in flight; twelve and the two factors fit
AVX2's 16 registers. On a Zen 5 core 95 % of the loop's instructions are `vfmadd213ps` on zmm registers, and it reached
268 GFLOP/s, 16 chains (too many for registers and constants) only 180.
"""

from __future__ import annotations

from mlsearch.candidate import Signature, TensorSpec

CHAINS, STEPS, ELEMENTS = 12, 64, 65536
FLOPS = ELEMENTS * (2 * CHAINS * STEPS + 2 * CHAINS - 1)
"""Of one call: the chains, and the additions that start and join them."""

SIGNATURE = Signature(
    "peak", (TensorSpec((ELEMENTS,), "f32"),), (TensorSpec((ELEMENTS,), "f32"),), (), reduction_length=STEPS
)


def payload_text() -> str:
    """An `.mlir` payload with the kernel as its only function."""
    tensor, chains = f"tensor<{ELEMENTS}xf32>", range(CHAINS)
    starts = [f"    %v{i}_0 = arith.addf %v, %c{i} : f32" for i in chains]
    steps = [f"    %v{i}_{s + 1} = math.fma %v{i}_{s}, %a, %b : f32" for s in range(STEPS) for i in chains]
    sums = [
        f"    %s{i} = arith.addf %{f's{i - 1}' if i > 1 else f'v0_{STEPS}'}, %v{i}_{STEPS} : f32" for i in chains[1:]
    ]
    lines = [
        f"func.func @peak(%x: {tensor}) -> {tensor} {{",
        f"  %e = tensor.empty() : {tensor}",
        # Towards 1, so that nothing overflows and nothing becomes denormal.
        "  %a = arith.constant 0.999 : f32",
        "  %b = arith.constant 0.001 : f32",
        # Different starts: equal chains would be one.
        *(f"  %c{i} = arith.constant {(i + 1) / 16} : f32" for i in chains),
        "  %r = linalg.generic {",
        "      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],",
        '      iterator_types = ["parallel"]}',
        f"      ins(%x : {tensor}) outs(%e : {tensor}) {{",
        "  ^bb0(%v: f32, %out: f32):",
        *(*starts, *steps, *sums),
        f"    linalg.yield %s{CHAINS - 1} : f32",
        f"  }} -> {tensor}",
        f"  return %r : {tensor}",
        "}",
    ]
    return "\n".join(lines) + "\n"
