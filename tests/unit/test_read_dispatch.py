"""What tuning reads out of a dispatch's function."""

from __future__ import annotations

import pytest
from spec_time_functions import (
    MULTIPLY_ADD,
    elementwise,
    filled,
    function_text,
    generic,
    matmul,
    matmul_then,
    read,
    softmax,
)

from mlsearch.ir.dispatch import DispatchView, NotReadable


def kind_and_loops(view: DispatchView) -> tuple[str, list[tuple[str, int, str]]]:
    workload = view.workload
    return workload.op_kind, [(loop.role, loop.size, loop.kind[0]) for loop in workload.loops]


def contraction(a: str, b: str, c: str, maps: list[str], iterators: str) -> DispatchView:
    steps = f"{filled(c)}\n{generic('%r', {'%a': a, '%b': b}, ('%init', c), maps, iterators, MULTIPLY_ADD)}"
    return read(function_text({"%a": a, "%b": b}, steps, {"%r": c}))


def test_a_matmul() -> None:
    view = read(matmul(64, 96, 48))
    assert kind_and_loops(view) == ("matmul", [("m", 64, "p"), ("n", 96, "p"), ("k", 48, "r")])
    workload = view.workload
    assert [(each.loops, each.element_type, each.is_output) for each in workload.operands] == [
        ((0, 2), "f32", False),
        ((2, 1), "f32", False),
        ((0, 1), "f32", True),
    ]
    assert workload.fused == ("fill",)
    assert workload.flops == 2 * 64 * 96 * 48
    assert workload.bytes == 4 * (64 * 48 + 48 * 96 + 64 * 96)
    assert workload.label == "matmul_64x96x48_f32"
    assert workload.reduction_length == 48
    assert [op.name for op in view.compute_ops] == ["linalg.fill", "linalg.matmul"]
    assert view.root == 1


def test_transposed_operands_are_a_matmul_with_other_maps() -> None:
    view = contraction(
        "tensor<48x64xf32>",
        "tensor<96x48xf32>",
        "tensor<64x96xf32>",
        ["(i, j, l) -> (l, i)", "(i, j, l) -> (j, l)", "(i, j, l) -> (i, j)"],
        "ppr",
    )
    assert kind_and_loops(view) == ("matmul", [("m", 64, "p"), ("n", 96, "p"), ("k", 48, "r")])
    assert [operand.loops for operand in view.workload.operands] == [(2, 0), (1, 2), (0, 1)]


def test_loops_keep_the_order_of_the_op_whatever_their_role() -> None:
    view = contraction(
        "tensor<64x48xf32>",
        "tensor<48x96xf32>",
        "tensor<64x96xf32>",
        ["(l, j, i) -> (i, l)", "(l, j, i) -> (l, j)", "(l, j, i) -> (i, j)"],
        "rpp",
    )
    assert kind_and_loops(view) == ("matmul", [("k", 48, "r"), ("n", 96, "p"), ("m", 64, "p")])


def test_a_batch_matmul() -> None:
    view = contraction(
        "tensor<12x64x48xf32>",
        "tensor<12x48x96xf32>",
        "tensor<12x64x96xf32>",
        ["(b, i, j, l) -> (b, i, l)", "(b, i, j, l) -> (b, l, j)", "(b, i, j, l) -> (b, i, j)"],
        "pppr",
    )
    assert kind_and_loops(view) == (
        "batch_matmul",
        [("b", 12, "p"), ("m", 64, "p"), ("n", 96, "p"), ("k", 48, "r")],
    )


def test_a_matvec_has_no_n_and_a_vecmat_no_m() -> None:
    matvec = contraction(
        "tensor<64x48xf32>",
        "tensor<48xf32>",
        "tensor<64xf32>",
        ["(i, l) -> (i, l)", "(i, l) -> (l)", "(i, l) -> (i)"],
        "pr",
    )
    vecmat = contraction(
        "tensor<48xf32>",
        "tensor<48x96xf32>",
        "tensor<96xf32>",
        ["(j, l) -> (l)", "(j, l) -> (l, j)", "(j, l) -> (j)"],
        "pr",
    )
    assert kind_and_loops(matvec) == ("matvec", [("m", 64, "p"), ("k", 48, "r")])
    assert kind_and_loops(vecmat) == ("vecmat", [("n", 96, "p"), ("k", 48, "r")])


def test_a_unit_loop_counts_as_absent_but_keeps_its_place() -> None:
    assert kind_and_loops(read(matmul(1, 96, 48))) == ("vecmat", [("m", 1, "p"), ("n", 96, "p"), ("k", 48, "r")])
    assert kind_and_loops(read(matmul(64, 1, 48)))[0] == "matvec"


def test_several_loops_of_one_role_are_numbered_from_the_inside() -> None:
    view = contraction(
        "tensor<4x8x48xf32>",
        "tensor<48x96xf32>",
        "tensor<4x8x96xf32>",
        ["(i, h, j, l) -> (i, h, l)", "(i, h, j, l) -> (l, j)", "(i, h, j, l) -> (i, h, j)"],
        "pppr",
    )
    assert kind_and_loops(view) == (
        "contraction",
        [("m1", 4, "p"), ("m", 8, "p"), ("n", 96, "p"), ("k", 48, "r")],
    )


def test_a_convolution_as_a_generic() -> None:
    a, w, c = "tensor<8x8x4xf32>", "tensor<3x3x4x16xf32>", "tensor<6x6x16xf32>"
    maps = [
        "(h, w, o, p, q, i) -> (h + p, w + q, i)",
        "(h, w, o, p, q, i) -> (p, q, i, o)",
        "(h, w, o, p, q, i) -> (h, w, o)",
    ]
    view = contraction(a, w, c, maps, "ppprrr")
    assert kind_and_loops(view) == (
        "conv",
        [("o1", 6, "p"), ("o", 6, "p"), ("n", 16, "p"), ("f1", 3, "r"), ("f", 3, "r"), ("k", 4, "r")],
    )
    # Dims that several loops move through come after those with a loop of their own.
    assert view.workload.operands[0].loops == (5, 0, 1, 3, 4)
    assert view.workload.flops == 2 * 6 * 6 * 16 * 3 * 3 * 4


def test_a_pooling() -> None:
    a, w, c = "tensor<8x8x4xf32>", "tensor<3x3xf32>", "tensor<6x6x4xf32>"
    maps = ["(h, w, c, p, q) -> (h + p, w + q, c)", "(h, w, c, p, q) -> (p, q)", "(h, w, c, p, q) -> (h, w, c)"]
    body = "%m = arith.maximumf %x0, %acc : f32\nlinalg.yield %m : f32"
    steps = [
        filled(c),
        f"%w = tensor.empty() : {w}",
        generic("%r", {"%a": a, "%w": w}, ("%init", c), maps, "ppprr", body),
    ]
    view = read(function_text({"%a": a}, "\n".join(steps), {"%r": c}))
    assert view.workload.op_kind == "pooling"
    assert view.workload.reduction_length == 9


def test_a_softmax_is_a_chain_around_its_last_reduction() -> None:
    view = read(softmax(16, 32))
    assert kind_and_loops(view) == ("reduction", [("p", 16, "p"), ("r", 32, "r")])
    assert view.root == 3
    assert view.workload.fused == ("fill", "reduction(maxnumf)", "fill", "elementwise(divf,exp,subf)")
    # All five ops are cut along the same rows; the last one has the reduced loop as a parallel one.
    assert [op.root_loops for op in view.compute_ops] == [(0,), (0, 1), (0,), (0, 1), (0, 1)]
    assert view.compute_ops[4].kinds == ("parallel", "parallel")
    assert view.workload.flops == 16 * 32 * (1 + 3 + 3)
    assert view.workload.bytes == 2 * 4 * 16 * 32


def test_a_layer_norm_shares_its_rows() -> None:
    whole, row, scale = "tensor<16x32xf32>", "tensor<16xf32>", "tensor<32xf32>"
    along, across, below = "(i, j) -> (i, j)", "(i, j) -> (i)", "(i, j) -> (j)"
    square = "%d = arith.subf %x0, %x1 : f32\n%q = arith.mulf %d, %d : f32\n%s = arith.addf %q, %acc : f32"
    normal = "%d = arith.subf %x0, %x1 : f32\n%q = math.rsqrt %x2 : f32\n%p = arith.mulf %d, %q : f32"
    steps = [
        filled(row),
        generic(
            "%mean",
            {"%a": whole},
            ("%init", row),
            [along, across],
            "pr",
            "%s = arith.addf %x0, %acc : f32\nlinalg.yield %s : f32",
        ),
        generic(
            "%var",
            {"%a": whole, "%mean": row},
            ("%init", row),
            [along, across, across],
            "pr",
            f"{square}\nlinalg.yield %s : f32",
        ),
        f"%e = tensor.empty() : {whole}",
        generic(
            "%r",
            {"%a": whole, "%mean": row, "%var": row, "%g": scale},
            ("%e", whole),
            [along, across, across, below, along],
            "pp",
            f"{normal}\n%y = arith.mulf %p, %x3 : f32\nlinalg.yield %y : f32",
        ),
    ]
    view = read(function_text({"%a": whole, "%g": scale}, "\n".join(steps), {"%r": whole}))
    assert kind_and_loops(view) == ("reduction", [("p", 16, "p"), ("r", 32, "r")])
    assert [op.root_loops for op in view.compute_ops] == [(0,), (0, 1), (0, 1), (0, 1)]
    assert view.compute_ops[view.root].position < view.store_roots[0]


def test_an_rms_norm_is_a_reduction_and_what_follows_it() -> None:
    whole, row = "tensor<16x32xf32>", "tensor<16xf32>"
    along, across = "(i, j) -> (i, j)", "(i, j) -> (i)"
    steps = [
        filled(row),
        generic(
            "%sum",
            {"%a": whole},
            ("%init", row),
            [along, across],
            "pr",
            "%q = arith.mulf %x0, %x0 : f32\n%s = arith.addf %q, %acc : f32\nlinalg.yield %s : f32",
        ),
        f"%e = tensor.empty() : {whole}",
        generic(
            "%r",
            {"%a": whole, "%sum": row},
            ("%e", whole),
            [along, across, along],
            "pp",
            "%q = math.rsqrt %x1 : f32\n%y = arith.mulf %x0, %q : f32\nlinalg.yield %y : f32",
        ),
    ]
    view = read(function_text({"%a": whole}, "\n".join(steps), {"%r": whole}))
    assert (view.workload.op_kind, view.root) == ("reduction", 1)
    assert view.workload.fused == ("fill", "elementwise(mulf,rsqrt)")


def test_the_epilogue_of_a_matmul_follows_its_parallel_loops() -> None:
    view = read(matmul_then("%y = math.tanh %x0 : f32"))
    assert (view.workload.op_kind, view.root) == ("matmul", 1)
    assert view.workload.fused == ("fill", "elementwise(tanh)")
    assert view.compute_ops[2].root_loops == (0, 1)
    assert view.workload.flops == 2 * 64 * 96 * 48 + 64 * 96


def test_loops_of_one_op_are_never_merged_with_each_other() -> None:
    # The value is read along both dims at once, as in x + transpose(x).
    t = "tensor<16x16xf32>"
    maps = ["(i, j) -> (i, j)", "(i, j) -> (j, i)", "(i, j) -> (i, j)"]
    steps = [
        f"%e = tensor.empty() : {t}",
        generic(
            "%u",
            {"%a": t},
            ("%e", t),
            ["(i, j) -> (i, j)"] * 2,
            "pp",
            "%y = math.exp %x0 : f32\nlinalg.yield %y : f32",
        ),
        generic(
            "%r", {"%u": t, "%u#0": t}, ("%e", t), maps, "pp", "%y = arith.addf %x0, %x1 : f32\nlinalg.yield %y : f32"
        ),
    ]
    view = read(function_text({"%a": t}, "\n".join(steps), {"%r": t}))
    assert view.compute_ops[1].root_loops == (0, 1)
    assert sorted(loop for loop in view.compute_ops[0].root_loops if loop is not None) == [0, 1]


def test_an_elementwise_dispatch_has_plain_parallel_loops() -> None:
    assert kind_and_loops(read(elementwise("1024"))) == ("elementwise", [("p", 1024, "p")])
    assert kind_and_loops(read(elementwise("6x4x8"))) == (
        "elementwise",
        [("p2", 6, "p"), ("p1", 4, "p"), ("p", 8, "p")],
    )


@pytest.mark.parametrize(("types", "size"), [("f32", 4), ("f16", 2), ("bf16", 2), ("i8", 1), ("f64", 8)])
def test_bytes_follow_the_element_type(types: str, size: int) -> None:
    view = read(matmul(8, 8, 8, types=types))
    assert view.workload.bytes == size * 3 * 64
    assert view.workload.label == f"matmul_8x8x8_{types}"


def test_conversions_cost_no_flops() -> None:
    a, c = "tensor<8x8xf16>", "tensor<8x8xf32>"
    steps = [
        f"%e = tensor.empty() : {c}",
        generic(
            "%r",
            {"%a": a},
            ("%e", c),
            ["(i, j) -> (i, j)"] * 2,
            "pp",
            "%w = arith.extf %x0 : f16 to f32\n%y = arith.addf %w, %w : f32\nlinalg.yield %y : f32",
        ),
    ]
    assert read(function_text({"%a": a}, "\n".join(steps), {"%r": c})).workload.flops == 64


def test_the_function_parses_on_its_own_under_a_plain_name() -> None:
    view = read(matmul(name='"odd $name \\22q\\22"'))
    assert view.function.startswith("func.func @dispatch()")
    assert read(view.function) == view


def test_what_only_moves_data_is_told_so() -> None:
    t, s = "tensor<8x8xf32>", "tensor<4x8xf32>"
    body = f"%r = tensor.extract_slice %a[0, 0] [4, 8] [1, 1] : {t} to {s}"
    with pytest.raises(NotReadable, match="only moves data"):
        read(function_text({"%a": t}, body, {"%r": s}))


def test_dynamic_dims_are_told_so() -> None:
    text = """
    func.func @d(%a: tensor<?x8xf32>, %b: tensor<8x8xf32>, %out: tensor<?x8xf32>) {
      %r = linalg.matmul ins(%a, %b : tensor<?x8xf32>, tensor<8x8xf32>) outs(%out : tensor<?x8xf32>) -> tensor<?x8xf32>
      return
    }
    """
    with pytest.raises(NotReadable, match="dynamic dims"):
        read(text)


def test_an_op_without_readable_loops_is_named() -> None:
    image, columns = "tensor<1x10x10x16xf32>", "tensor<1x64x144xf32>"
    body = f"""%e = tensor.empty() : {columns}
    %r = iree_linalg_ext.im2col strides = [1, 1] dilations = [1, 1] kernel_size = [3, 3] offsets = [0, 0, 0]
      output_sizes = [[1], [8, 8], [3, 3, 16]] batch_pos = [0] m_pos = [1, 2] k_pos = [3] input_k_perm = [0, 1, 2]
      output_perm = [0, 1, 2] ins(%a : {image}) outs(%e : {columns}) -> {columns}"""
    with pytest.raises(NotReadable, match=r"no loops can be read from iree_linalg_ext\.im2col"):
        read(function_text({"%a": image}, body, {"%r": columns}))


def test_a_dispatch_that_stores_only_what_it_loaded_is_not_readable() -> None:
    t = "tensor<8xf32>"
    body = f"%e = tensor.empty() : {t}\n" + generic(
        "%r", {"%a": t}, ("%e", t), ["(i) -> (i)"] * 2, "p", "linalg.yield %x0 : f32"
    )
    with pytest.raises(NotReadable, match="stores nothing"):
        read(function_text({"%a": t}, body, {}))
