"""A small payload for each kind of op that is tuned on CUDA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def contraction(inputs: str, m: int, n: int, k: int) -> str:
    return f"""
func.func @f(%a: tensor<{m}x{k}x{inputs}>, %b: tensor<{k}x{n}x{inputs}>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %c = linalg.matmul ins(%a, %b : tensor<{m}x{k}x{inputs}>, tensor<{k}x{n}x{inputs}>)
                     outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %c : tensor<{m}x{n}xf32>
}}
"""


def batch_matmul(inputs: str, b: int, m: int, n: int, k: int, result: str = "f32") -> str:
    left, right, out = f"tensor<{b}x{m}x{k}x{inputs}>", f"tensor<{b}x{k}x{n}x{inputs}>", f"tensor<{b}x{m}x{n}x{result}>"
    return f"""
func.func @f(%a: {left}, %b: {right}) -> {out} {{
  %zero = arith.constant 0.0 : {result}
  %empty = tensor.empty() : {out}
  %init = linalg.fill ins(%zero : {result}) outs(%empty : {out}) -> {out}
  %c = linalg.batch_matmul ins(%a, %b : {left}, {right}) outs(%init : {out}) -> {out}
  return %c : {out}
}}
"""


def elementwise(shape: str) -> str:
    tensor, dims = f"tensor<{shape}xf32>", ", ".join(f"d{i}" for i in range(shape.count("x") + 1))
    kinds = ", ".join(['"parallel"'] * (shape.count("x") + 1))
    return f"""
#all = affine_map<({dims}) -> ({dims})>
func.func @f(%a: {tensor}, %b: {tensor}) -> {tensor} {{
  %empty = tensor.empty() : {tensor}
  %c = linalg.generic {{indexing_maps = [#all, #all, #all], iterator_types = [{kinds}]}}
      ins(%a, %b : {tensor}, {tensor}) outs(%empty : {tensor}) {{
  ^bb0(%x: f32, %y: f32, %out: f32):
    %sum = arith.addf %x, %y : f32
    linalg.yield %sum : f32
  }} -> {tensor}
  return %c : {tensor}
}}
"""


def summed(shape: str, *kinds: str) -> str:
    """A sum along the loops that are `reduction`, not `parallel`."""
    sizes = shape.split("x")
    whole = f"tensor<{shape}xf32>"
    left = "".join(f"{size}x" for size, kind in zip(sizes, kinds, strict=True) if kind == "parallel")
    dims = ", ".join(str(index) for index, kind in enumerate(kinds) if kind == "reduction")
    return f"""
func.func @f(%a: {whole}) -> tensor<{left}f32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{left}f32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{left}f32>) -> tensor<{left}f32>
  %c = linalg.reduce ins(%a : {whole}) outs(%init : tensor<{left}f32>) dimensions = [{dims}]
    (%x: f32, %so_far: f32) {{
      %sum = arith.addf %x, %so_far : f32
      linalg.yield %sum : f32
    }}
  return %c : tensor<{left}f32>
}}
"""


MATMUL_BIAS_GELU = """
#row = affine_map<(i, j) -> (j)>
#all = affine_map<(i, j) -> (i, j)>
func.func @f(%a: tensor<64x128xf16>, %b: tensor<128x64xf16>, %bias: tensor<64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %scale = arith.constant 0.70710677 : f32
  %empty = tensor.empty() : tensor<64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = linalg.matmul ins(%a, %b : tensor<64x128xf16>, tensor<128x64xf16>)
                     outs(%init : tensor<64x64xf32>) -> tensor<64x64xf32>
  %gelu = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<64x64xf32>, tensor<64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%x: f32, %add: f32, %out: f32):
    %sum = arith.addf %x, %add : f32
    %scaled = arith.mulf %sum, %scale : f32
    %erf = math.erf %scaled : f32
    %shifted = arith.addf %erf, %one : f32
    %product = arith.mulf %sum, %shifted : f32
    %result = arith.mulf %product, %half : f32
    linalg.yield %result : f32
  } -> tensor<64x64xf32>
  return %gelu : tensor<64x64xf32>
}
"""


def convolution(inputs: str, size: int = 16, channels: int = 32) -> str:
    image, filters = f"tensor<1x{size + 2}x{size + 2}x{channels}x{inputs}>", f"tensor<3x3x{channels}x32x{inputs}>"
    out = f"tensor<1x{size}x{size}x32xf32>"
    return f"""
func.func @f(%image: {image}, %filter: {filters}) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {out}
  %init = linalg.fill ins(%zero : f32) outs(%empty : {out}) -> {out}
  %c = linalg.conv_2d_nhwc_hwcf ins(%image, %filter : {image}, {filters}) outs(%init : {out}) -> {out}
  return %c : {out}
}}
"""


SOFTMAX = """
func.func @f(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %empty = tensor.empty() : tensor<64x256xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<64x256xf32>) outs(%empty : tensor<64x256xf32>) -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}
"""

RMSNORM = """
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @f(%x: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %zero = arith.constant 0.0 : f32
  %length = arith.constant 512.0 : f32
  %epsilon = arith.constant 1.0e-5 : f32
  %rows = tensor.empty() : tensor<64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%rows : tensor<64xf32>) -> tensor<64xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x512xf32>) outs(%init : tensor<64xf32>) {
  ^bb0(%in: f32, %sum: f32):
    %square = arith.mulf %in, %in : f32
    %next = arith.addf %square, %sum : f32
    linalg.yield %next : f32
  } -> tensor<64xf32>
  %empty = tensor.empty() : tensor<64x512xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %squares : tensor<64x512xf32>, tensor<64xf32>) outs(%empty : tensor<64x512xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %mean = arith.divf %sum, %length : f32
    %safe = arith.addf %mean, %epsilon : f32
    %scale = math.rsqrt %safe : f32
    %result = arith.mulf %in, %scale : f32
    linalg.yield %result : f32
  } -> tensor<64x512xf32>
  return %y : tensor<64x512xf32>
}
"""

# Scores, softmax and weighted sum as ops of their own: three tasks.
ATTENTION = """
#scores = affine_map<(b, m, n, k) -> (b, m, n)>
func.func @f(%q: tensor<4x64x64xf32>, %k: tensor<4x64x64xf32>, %v: tensor<4x64x64xf32>) -> tensor<4x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %scores = linalg.generic {
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x64x64xf32>, tensor<4x64x64xf32>) outs(%init : tensor<4x64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %product = arith.mulf %x, %y : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<4x64x64xf32>
  %weights = linalg.softmax dimension(2)
      ins(%scores : tensor<4x64x64xf32>) outs(%empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %out = linalg.batch_matmul ins(%weights, %v : tensor<4x64x64xf32>, tensor<4x64x64xf32>)
                             outs(%init : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  return %out : tensor<4x64x64xf32>
}
"""


def attention_op(inputs: str) -> str:
    tensor = f"tensor<4x128x64x{inputs}>"
    return f"""
#q = affine_map<(b, m, n, k, s) -> (b, m, k)>
#k = affine_map<(b, m, n, k, s) -> (b, s, k)>
#v = affine_map<(b, m, n, k, s) -> (b, s, n)>
#scale = affine_map<(b, m, n, k, s) -> ()>
#o = affine_map<(b, m, n, k, s) -> (b, m, n)>
func.func @f(%q: {tensor}, %k: {tensor}, %v: {tensor}) -> {tensor} {{
  %scale = arith.constant 0.125 : {inputs}
  %empty = tensor.empty() : {tensor}
  %r = iree_linalg_ext.attention <{{indexing_maps = [#q, #k, #v, #scale, #o]}}>
      ins(%q, %k, %v, %scale : {tensor}, {tensor}, {tensor}, {inputs})
      outs(%empty : {tensor}) {{
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  }} -> {tensor}
  return %r : {tensor}
}}
"""


OPS = {
    "matmul f16": contraction("f16", 128, 128, 128),
    "matmul bf16": contraction("bf16", 128, 128, 128),
    "matmul f32": contraction("f32", 128, 128, 64),
    "odd matmul f16": contraction("f16", 731, 1023, 137),
    "batch matmul f16": batch_matmul("f16", 4, 64, 64, 64),
    "batch matmul f16 in f16": batch_matmul("f16", 4, 64, 64, 64, "f16"),
    "matmul bias GELU f16": MATMUL_BIAS_GELU,
    "conv2d f16": convolution("f16"),
    "conv2d f32": convolution("f32"),
    "softmax": SOFTMAX,
    "RMSNorm": RMSNORM,
    "attention": ATTENTION,
    "attention op f16": attention_op("f16"),
    "attention op bf16": attention_op("bf16"),
    "attention op f32": attention_op("f32"),
}

ARCHITECTURES = ("sm_80", "sm_90")


def in_turn(ops: Iterable[str], architectures: Sequence[str]) -> list[tuple[str, str]]:
    """Each op with one of the architectures: first, second, first, ..."""
    return [(op, architectures[place % len(architectures)]) for place, op in enumerate(ops)]
