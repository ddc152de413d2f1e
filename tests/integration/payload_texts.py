"""Small payloads as text."""

from __future__ import annotations


def matmul(m: int = 61, n: int = 67, k: int = 53, *, name: str = "main", then: str = "", constants: str = "") -> str:
    """A matmul; `then` turns %x into %y in an elementwise op behind it."""
    a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    epilogue = ""
    if then:
        epilogue = f"""
  %o = tensor.empty() : {c}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                        iterator_types = ["parallel", "parallel"]}} ins(%mm : {c}) outs(%o : {c}) {{
  ^bb0(%x: f32, %unused: f32):
    {then}
    linalg.yield %y : f32
  }} -> {c}"""
    return f"""
func.func @{name}(%a: {a}, %b: {b}) -> {c} {{
  {constants}
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {c}
  %f = linalg.fill ins(%zero : f32) outs(%e : {c}) -> {c}
  %mm = linalg.matmul ins(%a, %b : {a}, {b}) outs(%f : {c}) -> {c}{epilogue}
  return {"%r" if then else "%mm"} : {c}
}}
"""


GELU = """%h = arith.mulf %x, %half : f32
    %s = arith.mulf %x, %scale : f32
    %e0 = math.erf %s : f32
    %e1 = arith.addf %e0, %one : f32
    %y = arith.mulf %h, %e1 : f32"""


def gelu_constants(scale: str) -> str:
    return f"""%half = arith.constant 0.5 : f32
  %scale = arith.constant {scale} : f32
  %one = arith.constant 1.0 : f32"""


ACCUMULATE = """
func.func @main(%a: tensor<31x9xf32>, %b: tensor<9x17xf32>, %c: tensor<31x17xf32>) -> tensor<31x17xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<31x9xf32>, tensor<9x17xf32>) outs(%c : tensor<31x17xf32>) -> tensor<31x17xf32>
  return %r : tensor<31x17xf32>
}
"""

DYNAMIC = """
func.func @main(%a: tensor<?x9xf32>, %b: tensor<9x17xf32>, %c: tensor<?x17xf32>) -> tensor<?x17xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x9xf32>, tensor<9x17xf32>) outs(%c : tensor<?x17xf32>) -> tensor<?x17xf32>
  return %r : tensor<?x17xf32>
}
"""

STABLEHLO = """
func.func @main(%a: tensor<24x40xf32>, %b: tensor<40x32xf32>) -> tensor<24x32xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<24x40xf32>, tensor<40x32xf32>) -> tensor<24x32xf32>
  %1 = stablehlo.tanh %0 : tensor<24x32xf32>
  return %1 : tensor<24x32xf32>
}
"""

TOSA = """
func.func @main(%a: tensor<1x24x40xf32>, %b: tensor<1x40x32xf32>) -> tensor<1x24x32xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.matmul %a, %b, %z, %z
    : (tensor<1x24x40xf32>, tensor<1x40x32xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x24x32xf32>
  return %0 : tensor<1x24x32xf32>
}
"""

ODD_NAME = 'tf2onnx$a "b" c\\d é'
"""As a person gives it to `--function`."""

# As an importer of ONNX models writes it: torch tensors, an async ABI with fences.
ASYNC = """
module {
  func.func @"tf2onnx$a \\22b\\22 c\\\\d \\C3\\A9"(%a: !torch.vtensor<[24,40],f32>, %b: !torch.vtensor<[40,32],f32>)
      -> !torch.vtensor<[24,32],f32> attributes {torch.onnx_meta.opset_version = 17 : si64} {
    %0 = torch.operator "onnx.MatMul"(%a, %b)
      : (!torch.vtensor<[24,40],f32>, !torch.vtensor<[40,32],f32>) -> !torch.vtensor<[24,32],f32>
    return %0 : !torch.vtensor<[24,32],f32>
  }
}
"""

PADDED_CONVOLUTION = """
func.func @main(%x: tensor<2x7x41xf32>, %w: tensor<6x7x3xf32>) -> tensor<2x6x39xf32> {
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %x low[0, 0, 0] high[0, 0, 9] {
  ^bb0(%i: index, %j: index, %k: index):
    tensor.yield %zero : f32
  } : tensor<2x7x41xf32> to tensor<2x7x50xf32>
  %e = tensor.empty() : tensor<2x6x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(n, o, t, c, w) -> (n, c, t + w)>, affine_map<(n, o, t, c, w) -> (o, c, w)>,
                       affine_map<(n, o, t, c, w) -> (n, o, t)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%padded, %w : tensor<2x7x50xf32>, tensor<6x7x3xf32>) outs(%f : tensor<2x6x48xf32>) {
  ^bb0(%v: f32, %k: f32, %sum: f32):
    %product = arith.mulf %v, %k : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<2x6x48xf32>
  %cut = tensor.extract_slice %r[0, 0, 0] [2, 6, 39] [1, 1, 1] : tensor<2x6x48xf32> to tensor<2x6x39xf32>
  return %cut : tensor<2x6x39xf32>
}
"""
