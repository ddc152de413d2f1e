"""One small payload for each of IREE's own ops that has loops, but no indexing maps, and for ops that move data."""

from __future__ import annotations

from collections.abc import Sequence

from op_kind_texts import cumulative_sum, filled, generic, scatter_rows, transposed


def tensor(shape: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


_GREATER = """  ^bb0(%l: f32, %r: f32):
    %more = arith.cmpf ogt, %l, %r : f32
    iree_linalg_ext.yield %more : i1"""


def _function(arguments: str, results: str, body: str, returned: str) -> str:
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\n  return {returned} : {results}\n}}\n"


def scan_columns(rows: int = 40, width: int = 100) -> str:
    """A cumulative sum down the columns, which lie across memory."""
    x, carry = tensor([rows, width]), tensor([width])
    body = f"""  %e = tensor.empty() : {x}
{filled(carry, "0.0", "c")}
  %s:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%a : {x}) outs(%e, %c : {x}, {carry}) {{
  ^bb0(%l: f32, %acc: f32):
    %sum = arith.addf %l, %acc : f32
    iree_linalg_ext.yield %sum : f32
  }} -> {x}, {carry}"""
    return _function(f"%a: {x}", x, body, "%s#0")


def scan_then_scale(rows: int = 40, width: int = 100) -> str:
    """A cumulative sum with an elementwise op behind it."""
    x, carry = tensor([rows, width]), tensor([rows])
    body = f"""  %e = tensor.empty() : {x}
{filled(carry, "0.0", "c")}
  %s:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%a : {x}) outs(%e, %c : {x}, {carry}) {{
  ^bb0(%l: f32, %acc: f32):
    %sum = arith.addf %l, %acc : f32
    iree_linalg_ext.yield %sum : f32
  }} -> {x}, {carry}
  %y = arith.mulf %s#0, %s#0 : {x}"""
    return _function(f"%a: {x}", x, body, "%y")


def scatter_add(rows: int = 16, width: int = 64, table: int = 100) -> str:
    """Rows may meet, so their loop is no parallel one."""
    update, index, original = tensor([rows, width]), tensor([rows, 1], "i32"), tensor([table, width])
    body = f"""  %s = iree_linalg_ext.scatter dimension_map = [0] unique_indices(false)
      ins(%u, %i : {update}, {index}) outs(%o : {original}) {{
  ^bb0(%new: f32, %old: f32):
    %sum = arith.addf %new, %old : f32
    iree_linalg_ext.yield %sum : f32
  }} -> {original}"""
    return _function(f"%u: {update}, %i: {index}, %o: {original}", original, body, "%s")


def gather(rows: int = 48, width: int = 70, table: int = 100) -> str:
    source, index, result = tensor([table, width]), tensor([rows, 1], "i32"), tensor([rows, width])
    body = f"""  %e = tensor.empty() : {result}
  %g = iree_linalg_ext.gather dimension_map = [0] ins(%s, %i : {source}, {index}) outs(%e : {result}) -> {result}"""
    return _function(f"%s: {source}, %i: {index}", result, body, "%g")


def sort(rows: int = 24, width: int = 60) -> str:
    x = tensor([rows, width])
    body = f"""  %s = iree_linalg_ext.sort dimension(1) outs(%a : {x}) {{
{_GREATER}
  }} -> {x}"""
    return _function(f"%a: {x}", x, body, "%s")


def topk(rows: int = 24, width: int = 60, k: int = 5) -> str:
    """As an import of ONNX's TopK has it."""
    x, out, places = tensor([rows, width]), tensor([rows, k]), tensor([rows, k], "i32")
    body = f"""{filled(out, "-3.40282347E+38", "v")}{filled(places, "0", "p")}
  %t:2 = iree_linalg_ext.topk dimension(1) ins(%a : {x}) outs(%v, %p : {out}, {places}) {{
{_GREATER}
  }} -> {out}, {places}"""
    return _function(f"%a: {x}", f"{out}, {places}", body, "%t#0, %t#1")


def arg_compare(rows: int = 24, width: int = 60) -> str:
    x, values, places = tensor([rows, width]), tensor([rows]), tensor([rows], "i32")
    body = f"""{filled(values, "-3.40282347E+38", "v")}{filled(places, "0", "p")}
  %t:2 = iree_linalg_ext.arg_compare dimension(1) ins(%a : {x}) outs(%v, %p : {values}, {places}) {{
{_GREATER}
  }} -> {values}, {places}"""
    return _function(f"%a: {x}", f"{values}, {places}", body, "%t#0, %t#1")


def fft_stage(rows: int = 24, width: int = 64, stage: int = 3) -> str:
    """One stage of a Fourier transform with given coefficients; IREE 3.13 crashes on one that computes its own."""
    x, coefficients = tensor([rows, width]), tensor([1 << (stage - 1)])
    body = f"""  %stage = arith.constant {stage} : index
  %f:2 = iree_linalg_ext.fft ins(%stage, %c, %d : index, {coefficients}, {coefficients})
      outs(%a, %b : {x}, {x}) : {x}, {x}"""
    arguments = f"%a: {x}, %b: {x}, %c: {coefficients}, %d: {coefficients}"
    return _function(arguments, f"{x}, {x}", body, "%f#0, %f#1")


def winograd_input(c: int = 40) -> str:
    x, out = tensor([1, 14, 14, c]), tensor([8, 8, 1, 2, 2, c])
    body = f"""  %e = tensor.empty() : {out}
  %w = iree_linalg_ext.winograd.input_transform output_tile_size(6) kernel_size(3) image_dimensions([1, 2])
      ins(%a : {x}) outs(%e : {out}) -> {out}"""
    return _function(f"%a: {x}", out, body, "%w")


def winograd_filter(c: int = 16, f: int = 24) -> str:
    x, out = tensor([3, 3, c, f]), tensor([8, 8, c, f])
    body = f"""  %e = tensor.empty() : {out}
  %w = iree_linalg_ext.winograd.filter_transform output_tile_size(6) kernel_size(3) kernel_dimensions([0, 1])
      ins(%a : {x}) outs(%e : {out}) -> {out}"""
    return _function(f"%a: {x}", out, body, "%w")


def winograd_output(c: int = 40) -> str:
    x, out = tensor([8, 8, 1, 2, 2, c]), tensor([1, 12, 12, c])
    body = f"""  %e = tensor.empty() : {out}
  %w = iree_linalg_ext.winograd.output_transform output_tile_size(6) kernel_size(3) image_dimensions([1, 2])
      ins(%a : {x}) outs(%e : {out}) -> {out}"""
    return _function(f"%a: {x}", out, body, "%w")


def map_store(rows: int = 40, width: int = 72) -> str:
    """A transpose, element by element."""
    x, out = tensor([rows, width]), tensor([width, rows])
    body = f"""  %e = tensor.empty() : {out}
  %m = iree_linalg_ext.map_store %a into %e {{
  ^bb0(%i: index, %j: index):
    %mask = arith.constant true
    iree_linalg_ext.yield %j, %i, %mask : index, index, i1
  }} : {x} into {out} -> {out}"""
    return _function(f"%a: {x}", out, body, "%m")


def map_load(rows: int = 40, width: int = 72) -> str:
    x, out = tensor([rows, width]), tensor([width, rows])
    body = f"""  %e = tensor.empty() : {out}
  %m = iree_linalg_ext.map_load %a into %e {{
  ^bb0(%i: index, %j: index):
    %pad = arith.constant 0.0 : f32
    iree_linalg_ext.yield %j, %i, %pad : index, index, f32
  }} : {x} into {out} -> {out}"""
    return _function(f"%a: {x}", out, body, "%m")


def pad(shape: Sequence[int] = (60, 90), around: int = 3) -> str:
    x, out = tensor(shape), tensor([size + 2 * around for size in shape])
    edge = ", ".join([str(around)] * len(shape))
    body = f"""  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %a low[{edge}] high[{edge}] {{
  ^bb0({", ".join(f"%i{axis}: index" for axis in range(len(shape)))}):
    tensor.yield %zero : f32
  }} : {x} to {out}"""
    return _function(f"%a: {x}", out, body, "%p")


def insert_slice(
    shape: Sequence[int] = (64, 48),
    into: Sequence[int] = (64, 96),
    offsets: Sequence[int] = (0, 5),
    strides: Sequence[int] = (1, 1),
    element: str = "f32",
) -> str:
    x, out = tensor(shape, element), tensor(into, element)
    place = f"{list(offsets)} {list(shape)} {list(strides)}"
    body = f"  %s = tensor.insert_slice %a into %b{place} : {x} into {out}"
    return _function(f"%a: {x}, %b: {out}", out, body, "%s")


def extract_slice(
    shape: Sequence[int] = (60, 40),
    of: Sequence[int] = (64, 96),
    offsets: Sequence[int] = (2, 5),
    strides: Sequence[int] = (1, 1),
    element: str = "f32",
    result: Sequence[int] | None = None,
) -> str:
    """`result`: the shape without some of the unit dims."""
    x, out = tensor(of, element), tensor(result or shape, element)
    body = f"  %s = tensor.extract_slice %a{list(offsets)} {list(shape)} {list(strides)} : {x} to {out}"
    return _function(f"%a: {x}", out, body, "%s")


def slices_behind_others() -> str:
    """The same slice of two results, and of an argument: at several places of buffers, and known of none."""
    x, weight, out = tensor([64, 96]), tensor([96, 96]), tensor([60, 40])
    product = f"linalg.matmul ins(%{{}}, %w : {x}, {weight}) outs(%f : {x}) -> {x}"
    cut = f"tensor.extract_slice %{{}}[2, 5] [60, 40] [1, 1] : {x} to {out}"
    body = f"""{filled(x, "0.0", "f")}
  %s = {product.format("a")}
  %t = {product.format("s")}
  %c = {cut.format("s")}
  %d = {cut.format("t")}
  %g = {cut.format("a")}"""
    return _function(f"%a: {x}, %w: {weight}", f"{out}, {out}, {out}", body, "%c, %d, %g")


def slice_of_a_padded_convolution() -> str:
    """The convolution's result lies behind what was padded, in a buffer that a cut-out dispatch has to itself."""
    x, padded, weight = tensor([2, 7, 41]), tensor([2, 7, 50]), tensor([6, 7, 3])
    wide, out = tensor([2, 6, 48]), tensor([2, 6, 39])
    body = f"""  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %x low[0, 0, 0] high[0, 0, 9] {{
  ^bb0(%i: index, %j: index, %k: index):
    tensor.yield %zero : f32
  }} : {x} to {padded}
{filled(wide, "0.0", "f")}
  %r = linalg.conv_1d_ncw_fcw ins(%padded, %w : {padded}, {weight}) outs(%f : {wide}) -> {wide}
  %cut = tensor.extract_slice %r[0, 0, 0] [2, 6, 39] [1, 1, 1] : {wide} to {out}"""
    return _function(f"%x: {x}, %w: {weight}", out, body, "%cut")


def lower_triangle(size: int = 90) -> str:
    """An elementwise op that asks for its position."""
    x = tensor([size, size])
    body = """%i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %below = arith.cmpi sge, %i, %j : index
    %zero = arith.constant 0.0 : f32
    %y = arith.select %below, %x0, %zero : f32"""
    return generic(["(i, j) -> (i, j)"] * 2, "pp", [x], x, body, start=None)


def complex_numbers() -> str:
    """Elementwise arithmetic of complex numbers that are put together from tensors."""
    x = tensor([64, 90])
    body = """%c = complex.create %x0, %x1 : complex<f32>
    %d = complex.mul %c, %c : complex<f32>
    %y = complex.abs %d : complex<f32>"""
    return generic(["(i, j) -> (i, j)"] * 3, "pp", [x, x], x, body, start=None)


def complex_tensors() -> str:
    x, out = tensor([64, 90], "complex<f32>"), tensor([64, 90])
    body = f"""  %e = tensor.empty() : {out}
  %r = linalg.generic {{
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%a : {x}) outs(%e : {out}) {{
  ^bb0(%c: complex<f32>, %o: f32):
    %y = complex.abs %c : complex<f32>
    linalg.yield %y : f32
  }} -> {out}"""
    return _function(f"%a: {x}", out, body, "%r")


def reversed_rows(rows: int = 64, width: int = 90) -> str:
    """Reads at computed places, as a flip does."""
    x = tensor([rows, width])
    body = f"""%i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %last = arith.constant {width - 1} : index
    %from = arith.subi %last, %j : index
    %y = tensor.extract %a[%i, %from] : {x}"""
    return generic(["(i, j) -> (i, j)"], "pp", [], x, body, start=None).replace("@main()", f"@main(%a: {x})")


def broadcast() -> str:
    x, out = tensor([90]), tensor([64, 90])
    body = f"""  %e = tensor.empty() : {out}
  %b = linalg.broadcast ins(%a : {x}) outs(%e : {out}) dimensions = [0]"""
    return _function(f"%a: {x}", out, body, "%b")


def im2col() -> str:
    x, out = tensor([1, 10, 10, 16]), tensor([1, 64, 144])
    body = f"""  %e = tensor.empty() : {out}
  %m = iree_linalg_ext.im2col strides = [1, 1] dilations = [1, 1] kernel_size = [3, 3]
      offsets = [0, 0, 0] output_sizes = [[1], [8, 8], [3, 3, 16]] batch_pos = [0] m_pos = [1, 2] k_pos = [3]
      input_k_perm = [0, 1, 2] output_perm = [0, 1, 2] ins(%a : {x}) outs(%e : {out}) -> {out}"""
    return _function(f"%a: {x}", out, body, "%m")


def dynamic_scan() -> str:
    x, carry = "tensor<?x96xf32>", "tensor<?xf32>"
    body = f"""  %zero = arith.constant 0 : index
  %rows = tensor.dim %a, %zero : {x}
  %e = tensor.empty(%rows) : {x}
  %s:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%a : {x}) outs(%e, %c : {x}, {carry}) {{
  ^bb0(%l: f32, %acc: f32):
    %sum = arith.addf %l, %acc : f32
    iree_linalg_ext.yield %sum : f32
  }} -> {x}, {carry}"""
    return _function(f"%a: {x}, %c: {carry}", x, body, "%s#0")


EXT_KINDS: dict[str, str] = {
    "scan": cumulative_sum(),
    "scan_columns": scan_columns(),
    "scan_then_scale": scan_then_scale(),
    "scatter": scatter_rows(),
    "scatter_add": scatter_add(),
    "gather": gather(),
    "sort": sort(),
    "topk": topk(),
    "arg_compare": arg_compare(),
    "fft": fft_stage(),
    "winograd_input": winograd_input(),
    "winograd_filter": winograd_filter(),
    "winograd_output": winograd_output(),
    "map_store": map_store(),
    "map_load": map_load(),
}

DATA_KINDS: dict[str, str] = {
    "pad": pad(),
    "pad_image": pad((6, 20, 30), 1),
    "insert_slice": insert_slice(),
    "extract_slice": extract_slice(),
    "extract_slice_strided": extract_slice((20, 30), (64, 96), (3, 5), (3, 2)),
    "extract_slice_leading": extract_slice((3, 20, 30), (5, 24, 30), (1, 4, 0), (1, 1, 1)),
    "extract_slice_every_other_row": extract_slice((3, 12, 30), (5, 24, 30), (2, 0, 0), (1, 2, 1), "f16"),
    "extract_slice_without_unit_dim": extract_slice((20, 1, 30), (24, 5, 33), (2, 3, 1), (1, 1, 1), "i8", (20, 30)),
    "insert_slice_strided": insert_slice((20, 30), (64, 96), (3, 5), (3, 2)),
    "insert_slice_large_i8": insert_slice((8, 256, 512), (8, 256, 516), (0, 0, 3), (1, 1, 1), "i8"),
    "insert_slice_large_f16": insert_slice((8, 256, 512), (8, 256, 516), (0, 0, 3), (1, 1, 1), "f16"),
    "extract_slice_large": extract_slice((8, 256, 512), (8, 256, 516), (0, 0, 3), (1, 1, 1)),
    "slices_behind_others": slices_behind_others(),
    "slice_of_a_padded_convolution": slice_of_a_padded_convolution(),
    "lower_triangle": lower_triangle(),
    "complex_numbers": complex_numbers(),
    "reversed_rows": reversed_rows(),
    "broadcast": broadcast(),
    "transposed_i8": transposed((70, 90), (1, 0), "i8").replace("addf", "addi"),
    "transposed_heads": transposed((2, 30, 4, 40), (0, 2, 1, 3)),
}

WITHOUT: dict[str, tuple[str, str]] = {
    "im2col": (im2col(), "no loops can be read from iree_linalg_ext.im2col"),
    "complex_tensors": (complex_tensors(), "complex<f32>>, which can't be passed from outside"),
    "dynamic_scan": (dynamic_scan(), "it has dynamic dims"),
}
"""Payloads whose dispatch can't be tuned, with what is said of it. IREE 3.13 compiles no im2col for CPUs."""
