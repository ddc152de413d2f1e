"""One small payload for each kind of op that IREE tiles: named ops, and generics as importers of models write them."""

from __future__ import annotations

from collections.abc import Sequence


def _tensor(shape: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def _element(tensor: str) -> str:
    return tensor.removeprefix("tensor<").rstrip(">").rpartition("x")[2]


def _function(inputs: Sequence[str], output: str, body: str, result: str = "%r") -> str:
    """The arguments are %a, %b, ...; `body` computes `result`."""
    arguments = ", ".join(f"%{letter}: {kind}" for letter, kind in zip("abcdef", inputs, strict=False))
    return f"func.func @main({arguments}) -> {output} {{\n{body}\n  return {result} : {output}\n}}\n"


def filled(output: str, value: str, name: str = "f") -> str:
    """An output tensor full of `value`, as %f."""
    element = _element(output)
    return f"""  %{name}_value = arith.constant {value} : {element}
  %{name}_empty = tensor.empty() : {output}
  %{name} = linalg.fill ins(%{name}_value : {element}) outs(%{name}_empty : {output}) -> {output}
"""


def named(op: str, inputs: Sequence[str], output: str, *, attributes: str = "", start: str = "0.0") -> str:
    """A named op on its inputs, into an output full of `start`."""
    names = ", ".join(f"%{letter}" for letter, _ in zip("abcdef", inputs, strict=False))
    body = (
        filled(output, start)
        + f"  %r = linalg.{op} {attributes} ins({names} : {', '.join(inputs)}) outs(%f : {output}) -> {output}"
    )
    return _function(inputs, output, body)


def generic(
    maps: Sequence[str],
    kinds: str,
    inputs: Sequence[str],
    output: str,
    body: str,
    *,
    start: str | None = "0.0",
) -> str:
    """A generic; `maps` are like "(i, j) -> (i)", `kinds` has a letter for each loop: p parallel, r reduction. The
    body's inputs are %x0, %x1, ..., the output's element %o; it yields %y. `start=None`: the output is left empty."""
    element = [_element(each) for each in (*inputs, output)]
    names = [f"%x{i}" for i in range(len(inputs))] + ["%o"]
    block = ", ".join(f"{name}: {kind}" for name, kind in zip(names, element, strict=True))
    iterators = ", ".join('"parallel"' if kind == "p" else '"reduction"' for kind in kinds)
    letters = ", ".join(f"%{letter}" for letter, _ in zip("abcdef", inputs, strict=False))
    given = f"ins({letters} : {', '.join(inputs)})" if inputs else ""
    before = f"  %f = tensor.empty() : {output}\n" if start is None else filled(output, start)
    return _function(
        inputs,
        output,
        before
        + f"""  %r = linalg.generic {{
      indexing_maps = [{", ".join(f"affine_map<{each}>" for each in maps)}],
      iterator_types = [{iterators}]}}
      {given} outs(%f : {output}) {{
  ^bb0({block}):
    {body}
    linalg.yield %y : {element[-1]}
  }} -> {output}""",
    )


MULTIPLY_ADD = "%m = arith.mulf %x0, %x1 : f32\n    %y = arith.addf %o, %m : f32"
ADD = "%y = arith.addf %o, %x0 : f32"


def padded(shape: Sequence[int], low: Sequence[int], high: Sequence[int], to: Sequence[int], then: str) -> str:
    """`then` is a payload that takes the padded tensor as its first argument."""
    head, _, rest = then.partition(") ->")
    head = head.replace(f"%a: {_tensor(to)}", f"%unpadded: {_tensor(shape)}", 1)
    result, _, body = rest.partition("{\n")
    pad = f"""  %pad_value = arith.constant 0.0 : f32
  %a = tensor.pad %unpadded low[{", ".join(map(str, low))}] high[{", ".join(map(str, high))}] {{
  ^bb0({", ".join(f"%i{n}: index" for n in range(len(shape)))}):
    tensor.yield %pad_value : f32
  }} : {_tensor(shape)} to {_tensor(to)}
"""
    return f"{head}) ->{result}{{\n{pad}{body}"


_STRIDES = "{{dilations = dense<{d}> : tensor<2xi64>, strides = dense<{s}> : tensor<2xi64>}}"


def _window(stride: int = 1, dilation: int = 1) -> str:
    return _STRIDES.format(s=stride, d=dilation)


def _reach(size: int, k: int, stride: int, dilation: int) -> int:
    """Elements of the input that `size` windows of `k` elements read."""
    return (size - 1) * stride + (k - 1) * dilation + 1


def depthwise_nhwc(h: int = 14, w: int = 14, c: int = 32, k: int = 3, stride: int = 1, dilation: int = 1) -> str:
    ih, iw = (_reach(size, k, stride, dilation) for size in (h, w))
    return named(
        "depthwise_conv_2d_nhwc_hwc",
        [_tensor([1, ih, iw, c]), _tensor([k, k, c])],
        _tensor([1, h, w, c]),
        attributes=_window(stride, dilation),
    )


def depthwise_nchw(h: int = 14, w: int = 14, c: int = 32, k: int = 3, stride: int = 1, dilation: int = 1) -> str:
    ih, iw = (_reach(size, k, stride, dilation) for size in (h, w))
    return named(
        "depthwise_conv_2d_nchw_chw",
        [_tensor([1, c, ih, iw]), _tensor([c, k, k])],
        _tensor([1, c, h, w]),
        attributes=_window(stride, dilation),
    )


def conv_nchw(
    h: int = 14, w: int = 14, c: int = 16, f: int = 32, k: int = 3, stride: int = 1, dilation: int = 1
) -> str:
    ih, iw = (_reach(size, k, stride, dilation) for size in (h, w))
    return named(
        "conv_2d_nchw_fchw",
        [_tensor([1, c, ih, iw]), _tensor([f, c, k, k])],
        _tensor([1, f, h, w]),
        attributes=_window(stride, dilation),
    )


def conv_nhwc(
    h: int = 14, w: int = 14, c: int = 16, f: int = 32, k: int = 3, stride: int = 1, dilation: int = 1
) -> str:
    ih, iw = (_reach(size, k, stride, dilation) for size in (h, w))
    return named(
        "conv_2d_nhwc_hwcf",
        [_tensor([1, ih, iw, c]), _tensor([k, k, c, f])],
        _tensor([1, h, w, f]),
        attributes=_window(stride, dilation),
    )


def pool_nhwc(
    op: str = "max", h: int = 14, w: int = 14, c: int = 32, k: int = 2, stride: int = 2, dilation: int = 1
) -> str:
    ih, iw = (_reach(size, k, stride, dilation) for size in (h, w))
    return named(
        f"pooling_nhwc_{op}",
        [_tensor([1, ih, iw, c]), _tensor([k, k])],
        _tensor([1, h, w, c]),
        attributes=_window(stride, dilation),
        start="-3.40282347E+38" if op == "max" else "0.0",
    )


def pool_nchw(
    op: str = "max", h: int = 14, w: int = 14, c: int = 32, k: int = 2, stride: int = 2, dilation: int = 1
) -> str:
    ih, iw = (_reach(size, k, stride, dilation) for size in (h, w))
    return named(
        f"pooling_nchw_{op}",
        [_tensor([1, c, ih, iw]), _tensor([k, k])],
        _tensor([1, c, h, w]),
        attributes=_window(stride, dilation),
        start="-3.40282347E+38" if op == "max" else "0.0",
    )


def grouped_nchw(g: int = 4, f: int = 8, c: int = 8, h: int = 14, w: int = 14, k: int = 3) -> str:
    return named(
        "conv_2d_ngchw_fgchw",
        [_tensor([1, g, c, h + k - 1, w + k - 1]), _tensor([f, g, c, k, k])],
        _tensor([1, g, f, h, w]),
        attributes=_window(),
    )


def grouped_nhwc(g: int = 4, f: int = 16, c: int = 8, h: int = 14, w: int = 14, k: int = 3) -> str:
    """As a generic; there is no named op for it."""
    return generic(
        [
            "(n, h, w, g, f, y, x, c) -> (n, h + y, w + x, g, c)",
            "(n, h, w, g, f, y, x, c) -> (y, x, g, c, f)",
            "(n, h, w, g, f, y, x, c) -> (n, h, w, g, f)",
        ],
        "ppppprrr",
        [_tensor([1, h + k - 1, w + k - 1, g, c]), _tensor([k, k, g, c, f])],
        _tensor([1, h, w, g, f]),
        MULTIPLY_ADD,
    )


def conv1d_ncw(w: int = 60, c: int = 16, f: int = 32, k: int = 5) -> str:
    return named(
        "conv_1d_ncw_fcw",
        [_tensor([2, c, w + k - 1]), _tensor([f, c, k])],
        _tensor([2, f, w]),
        attributes="{dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}",
    )


def conv1d_nwc(w: int = 60, c: int = 16, f: int = 32, k: int = 5) -> str:
    return named(
        "conv_1d_nwc_wcf",
        [_tensor([2, w + k - 1, c]), _tensor([k, c, f])],
        _tensor([2, w, f]),
        attributes="{dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}",
    )


def conv1d(w: int = 1000, k: int = 7) -> str:
    return named("conv_1d", [_tensor([w + k - 1]), _tensor([k])], _tensor([w]))


def conv2d(h: int = 60, w: int = 64, k: int = 3) -> str:
    return named("conv_2d", [_tensor([h + k - 1, w + k - 1]), _tensor([k, k])], _tensor([h, w]))


def packed_matmul(
    m: int = 8, n: int = 4, k: int = 64, m0: int = 8, n0: int = 32, k0: int = 1, element: str = "f32"
) -> str:
    return generic(
        [
            "(m, n, k, m0, n0, k0) -> (m, k, m0, k0)",
            "(m, n, k, m0, n0, k0) -> (n, k, n0, k0)",
            "(m, n, k, m0, n0, k0) -> (m, n, m0, n0)",
        ],
        "pprppr",
        [_tensor([m, k, m0, k0], element), _tensor([n, k, n0, k0], element)],
        _tensor([m, n, m0, n0], element),
        MULTIPLY_ADD,
    )


def gather_rows(rows: int = 48, width: int = 64, table: int = 100) -> str:
    return f"""
func.func @main(%table: {_tensor([table, width])}, %rows: {_tensor([rows], "i32")}) -> {_tensor([rows, width])} {{
  %f = tensor.empty() : {_tensor([rows, width])}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}}
      ins(%rows : {_tensor([rows], "i32")}) outs(%f : {_tensor([rows, width])}) {{
  ^bb0(%row: i32, %o: f32):
    %i = arith.index_cast %row : i32 to index
    %j = linalg.index 1 : index
    %y = tensor.extract %table[%i, %j] : {_tensor([table, width])}
    linalg.yield %y : f32
  }} -> {_tensor([rows, width])}
  return %r : {_tensor([rows, width])}
}}
"""


def argmax(rows: int = 48, width: int = 200) -> str:
    """As an import of ONNX's ArgMax gives it: two results, the position from `linalg.index`."""
    x, values, places = _tensor([rows, width]), _tensor([rows]), _tensor([rows], "i32")
    return f"""
func.func @main(%a: {x}) -> {places} {{
{filled(values, "-3.40282347E+38", "v")}{filled(places, "0", "p")}
  %r:2 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                          affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}}
      ins(%a : {x}) outs(%v, %p : {values}, {places}) {{
  ^bb0(%x: f32, %best: f32, %at: i32):
    %j = linalg.index 1 : index
    %here = arith.index_cast %j : index to i32
    %more = arith.cmpf ogt, %x, %best : f32
    %value = arith.select %more, %x, %best : f32
    %place = arith.select %more, %here, %at : i32
    linalg.yield %value, %place : f32, i32
  }} -> ({values}, {places})
  return %r#1 : {places}
}}
"""


def quantized_matmul(m: int = 48, n: int = 64, k: int = 40) -> str:
    a, b, c = _tensor([m, k], "i8"), _tensor([k, n], "i8"), _tensor([m, n], "i32")
    return f"""
func.func @main(%a: {a}, %b: {b}) -> {c} {{
  %za = arith.constant 3 : i32
  %zb = arith.constant -5 : i32
{filled(c, "0")}
  %r = linalg.quantized_matmul ins(%a, %b, %za, %zb : {a}, {b}, i32, i32) outs(%f : {c}) -> {c}
  return %r : {c}
}}
"""


def dequantized_matmul(m: int = 48, n: int = 64, k: int = 128, group: int = 32) -> str:
    """An i8 weight with a scale for each group of rows, made f32 in front of the matmul."""
    groups = k // group
    q, s, w, x, c = (
        _tensor([groups, group, n], "i8"),
        _tensor([groups, n]),
        _tensor([groups, group, n]),
        _tensor([m, groups, group]),
        _tensor([m, n]),
    )
    return f"""
func.func @main(%x: {x}, %q: {q}, %s: {s}) -> {c} {{
  %we = tensor.empty() : {w}
  %w = linalg.generic {{indexing_maps = [affine_map<(g, i, n) -> (g, i, n)>, affine_map<(g, i, n) -> (g, n)>,
                                        affine_map<(g, i, n) -> (g, i, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%q, %s : {q}, {s}) outs(%we : {w}) {{
  ^bb0(%v: i8, %scale: f32, %o: f32):
    %wide = arith.extsi %v : i8 to i32
    %float = arith.sitofp %wide : i32 to f32
    %y = arith.mulf %float, %scale : f32
    linalg.yield %y : f32
  }} -> {w}
{filled(c, "0.0")}
  %r = linalg.generic {{indexing_maps = [affine_map<(m, n, g, i) -> (m, g, i)>, affine_map<(m, n, g, i) -> (g, i, n)>,
                                        affine_map<(m, n, g, i) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}}
      ins(%x, %w : {x}, {w}) outs(%f : {c}) {{
  ^bb0(%l: f32, %t: f32, %o: f32):
    %p = arith.mulf %l, %t : f32
    %y = arith.addf %o, %p : f32
    linalg.yield %y : f32
  }} -> {c}
  return %r : {c}
}}
"""


def cumulative_sum(rows: int = 32, width: int = 64) -> str:
    x, carry = _tensor([rows, width]), _tensor([rows])
    return f"""
func.func @main(%a: {x}) -> {x} {{
  %e = tensor.empty() : {x}
{filled(carry, "0.0", "c")}
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%a : {x}) outs(%e, %c : {x}, {carry}) {{
  ^bb0(%l: f32, %acc: f32):
    %s = arith.addf %l, %acc : f32
    iree_linalg_ext.yield %s : f32
  }} -> {x}, {carry}
  return %r#0 : {x}
}}
"""


def scatter_rows(rows: int = 16, width: int = 64, table: int = 100) -> str:
    update, index, original = _tensor([rows, width]), _tensor([rows, 1], "i32"), _tensor([table, width])
    return f"""
func.func @main(%u: {update}, %i: {index}, %o: {original}) -> {original} {{
  %r = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%u, %i : {update}, {index}) outs(%o : {original}) {{
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  }} -> {original}
  return %r : {original}
}}
"""


def concatenated(rows: int = 64, width: int = 48) -> str:
    one, both = _tensor([rows, width]), _tensor([rows, 2 * width])
    return f"""
func.func @main(%a: {one}, %b: {one}) -> {both} {{
  %r = tensor.concat dim(1) %a, %b : ({one}, {one}) -> {both}
  return %r : {both}
}}
"""


def elementwise_chain(rows: int = 64, width: int = 96) -> str:
    return generic(
        ["(i, j) -> (i, j)", "(i, j) -> (j)", "(i, j) -> (i, j)"],
        "pp",
        [_tensor([rows, width]), _tensor([width])],
        _tensor([rows, width]),
        "%s = arith.addf %x0, %x1 : f32\n    %t = math.tanh %s : f32\n    %y = arith.mulf %t, %x0 : f32",
        start=None,
    )


def transposed(shape: Sequence[int] = (64, 96), order: Sequence[int] = (1, 0), element: str = "f32") -> str:
    letters = "ijkl"[: len(shape)]
    loops = ", ".join(letters)
    out = [0] * len(shape)
    for place, axis in enumerate(order):
        out[place] = shape[axis]
    read = ["" for _ in shape]
    for place, axis in enumerate(order):
        read[axis] = letters[place]
    return generic(
        [f"({loops}) -> ({', '.join(read)})", f"({loops}) -> ({loops})"],
        "p" * len(shape),
        [_tensor(shape, element)],
        _tensor(out, element),
        f"%y = arith.addf %x0, %x0 : {element}",
        start=None,
    )


def row_sum(rows: int = 64, width: int = 200) -> str:
    return generic(["(i, j) -> (i, j)", "(i, j) -> (i)"], "pr", [_tensor([rows, width])], _tensor([rows]), ADD)


def column_sum(rows: int = 200, width: int = 96) -> str:
    return generic(["(i, j) -> (i, j)", "(i, j) -> (j)"], "rp", [_tensor([rows, width])], _tensor([width]), ADD)


def middle_sum() -> str:
    """The reduced loops are around and inside of the one that stays."""
    return generic(["(i, j, k) -> (i, j, k)", "(i, j, k) -> (j)"], "rpr", [_tensor([20, 48, 30])], _tensor([48]), ADD)


def two_sums() -> str:
    """Two results of one pass: a sum and a sum of squares."""
    x, s = _tensor([64, 200]), _tensor([64])
    return f"""
func.func @main(%a: {x}) -> ({s}, {s}) {{
{filled(s, "0.0")}
  %r:2 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                          affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}}
      ins(%a : {x}) outs(%f, %f : {s}, {s}) {{
  ^bb0(%x: f32, %s: f32, %q: f32):
    %s1 = arith.addf %x, %s : f32
    %x2 = arith.mulf %x, %x : f32
    %q1 = arith.addf %x2, %q : f32
    linalg.yield %s1, %q1 : f32, f32
  }} -> ({s}, {s})
  return %r#0, %r#1 : {s}, {s}
}}
"""


def strange_reduction() -> str:
    """Three reductions, one read at a sum of loops, none of it a contraction or a convolution by the rules."""
    return generic(
        ["(i, j, a, b, c) -> (j + a, c, i + b)", "(i, j, a, b, c) -> (c, a, b)", "(i, j, a, b, c) -> (i, j)"],
        "pprrr",
        [_tensor([26, 12, 34]), _tensor([12, 3, 3])],
        _tensor([32, 24]),
        "%d = arith.subf %x0, %x1 : f32\n    %q = math.absf %d : f32\n    %y = arith.addf %o, %q : f32",
    )


def dot(k: int = 4096) -> str:
    return named("dot", [_tensor([k]), _tensor([k])], "tensor<f32>")


def contraction_many() -> str:
    """bmhk,bhnk -> bhmn, as attention's scores after a reshape that IREE does not fold."""
    return generic(
        [
            "(b, h, m, n, k) -> (b, m, h, k)",
            "(b, h, m, n, k) -> (b, n, h, k)",
            "(b, h, m, n, k) -> (b, h, m, n)",
        ],
        "ppppr",
        [_tensor([2, 32, 4, 24]), _tensor([2, 40, 4, 24])],
        _tensor([2, 4, 32, 40]),
        MULTIPLY_ADD,
    )


def contraction_two_k() -> str:
    return generic(
        ["(m, n, k, l) -> (m, k, l)", "(m, n, k, l) -> (l, k, n)", "(m, n, k, l) -> (n, m)"],
        "pprr",
        [_tensor([48, 10, 12]), _tensor([12, 10, 64])],
        _tensor([64, 48]),
        MULTIPLY_ADD,
    )


OP_KINDS: dict[str, str] = {
    "conv_2d_nhwc": conv_nhwc(),
    "conv_2d_nhwc_strided": conv_nhwc(stride=2),
    "conv_2d_nhwc_dilated": conv_nhwc(dilation=2),
    "conv_2d_nhwc_padded": padded([1, 14, 14, 16], [0, 1, 1, 0], [0, 1, 1, 0], [1, 16, 16, 16], conv_nhwc()),
    "conv_2d_nchw": conv_nchw(),
    "conv_2d_nchw_strided": conv_nchw(stride=2),
    "depthwise_nhwc": depthwise_nhwc(),
    "depthwise_nhwc_strided": depthwise_nhwc(stride=2),
    "depthwise_nhwc_dilated": depthwise_nhwc(dilation=2),
    "depthwise_nhwc_padded": padded([1, 14, 14, 32], [0, 1, 1, 0], [0, 1, 1, 0], [1, 16, 16, 32], depthwise_nhwc()),
    "depthwise_nchw": depthwise_nchw(),
    "depthwise_nchw_strided": depthwise_nchw(stride=2),
    "grouped_nchw": grouped_nchw(),
    "grouped_nhwc": grouped_nhwc(),
    "conv_1d_ncw": conv1d_ncw(),
    "conv_1d_nwc": conv1d_nwc(),
    "conv_1d": conv1d(),
    "conv_2d": conv2d(),
    "pool_nhwc_max": pool_nhwc(),
    "pool_nhwc_max_dilated": pool_nhwc(k=3, stride=1, dilation=2),
    "pool_nhwc_sum": pool_nhwc("sum", k=3, stride=1),
    "pool_nchw_max": pool_nchw(),
    "pool_nchw_sum": pool_nchw("sum", k=3, stride=1),
    "packed_matmul": packed_matmul(),
    "contraction_many": contraction_many(),
    "contraction_two_k": contraction_two_k(),
    "matmul_bf16": named(
        "matmul",
        [_tensor([48, 40], "bf16"), _tensor([40, 64], "bf16")],
        _tensor([48, 64]),
    ),
    "quantized_matmul": quantized_matmul(),
    "dequantized_matmul": dequantized_matmul(),
    "dot": dot(),
    "gather_rows": gather_rows(),
    "argmax": argmax(),
    "cumulative_sum": cumulative_sum(),
    "scatter_rows": scatter_rows(),
    "concatenated": concatenated(),
    "elementwise_chain": elementwise_chain(),
    "transposed": transposed(),
    "transposed_inner": transposed((8, 12, 30, 20), (0, 3, 1, 2)),
    "transposed_f16": transposed(element="f16"),
    "row_sum": row_sum(),
    "column_sum": column_sum(),
    "middle_sum": middle_sum(),
    "two_sums": two_sums(),
    "strange_reduction": strange_reduction(),
}
"""By kind; all have several loops that are no multiple of a vector."""
