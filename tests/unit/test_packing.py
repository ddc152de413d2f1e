"""Dispatches that put tensors into packed tiles, or back."""

from __future__ import annotations

import pytest
from spec_time_functions import elementwise, filled, function_text, generic, read

from mlsearch.candidate import KnobValue
from mlsearch.ir.dispatch import DispatchView, NotReadable
from mlsearch.space.space import Space, build_space
from mlsearch.target import Hardware, Target

TARGET = Target("llvm-cpu", Hardware("test", 64, 32, 32 * 1024, 1024 * 1024, 16 * 1024 * 1024, 2), (), 1)
PLAIN, PACKED = "tensor<64x48xf32>", "tensor<3x16x4x16xf32>"
PACK = (
    f"%packed_empty = tensor.empty() : {PACKED}\n"
    "%packed = linalg.pack {value} outer_dims_perm = [1, 0] inner_dims_pos = [0, 1] inner_tiles = [4, 16]"
    f" into %packed_empty : {PLAIN} -> {PACKED}"
)
UNPACK = (
    f"%plain_empty = tensor.empty() : {PLAIN}\n"
    "%plain = linalg.unpack %a outer_dims_perm = [1, 0] inner_dims_pos = [0, 1] inner_tiles = [4, 16]"
    f" into %plain_empty : {PACKED} -> {PLAIN}"
)


def exponentials(value: str) -> str:
    body = "%y = math.exp %x0 : f32\nlinalg.yield %y : f32"
    maps = ["(i, j) -> (i, j)"] * 2
    return f"%e = tensor.empty() : {PLAIN}\n" + generic("%r", {value: PLAIN}, ("%e", PLAIN), maps, "pp", body)


def pack() -> DispatchView:
    return read(function_text({"%a": PLAIN}, PACK.format(value="%a"), {"%packed": PACKED}))


def pack_after() -> DispatchView:
    steps = f"{exponentials('%a')}\n{PACK.format(value='%r')}"
    return read(function_text({"%a": PLAIN}, steps, {"%packed": PACKED}))


def unpack() -> DispatchView:
    return read(function_text({"%a": PACKED}, UNPACK, {"%plain": PLAIN}))


def unpack_before() -> DispatchView:
    return read(function_text({"%a": PACKED}, f"{UNPACK}\n{exponentials('%plain')}", {"%r": PLAIN}))


def space(view: DispatchView) -> Space:
    return build_space(view, [], TARGET)


def configs(view: DispatchView, **knobs: KnobValue) -> tuple[str, dict[int, str]]:
    [part] = space(view).parts.values()
    layout = part.template.layout(view, knobs, 16)
    return layout.root_config, layout.companion_configs


KNOBS: dict[str, KnobValue] = {"tile_p1": 2, "tile_p": 1, "dist_p1": 4, "dist_p": 0}


def test_a_pack_runs_over_the_tiles_of_its_result() -> None:
    view = pack()
    assert view.workload.op_kind == "pack"
    assert [(loop.role, loop.size, loop.kind) for loop in view.workload.loops] == [
        ("p1", 3, "parallel"),
        ("p", 16, "parallel"),
    ]
    assert [(each.loops, each.is_output) for each in view.workload.operands] == [((1, 0), False), ((0, 1), True)]
    assert view.packed_tile == (1, 1)
    assert configs(view, tile_p1=1, tile_p=8, dist_p1=2, dist_p=1)[0] == (
        "#iree_cpu.lowering_config<distribution = [2, 8], vector_common_parallel = [1, 8]>"
    )


def test_an_unpack_runs_over_elements_and_is_cut_into_whole_tiles() -> None:
    view = unpack()
    assert (view.workload.op_kind, view.workload.dims) == ("unpack", {"p1": 64, "p": 48})
    assert view.packed_tile == (4, 16)
    assert configs(view, **KNOBS)[0] == (
        "#iree_cpu.lowering_config<distribution = [32, 0], vector_common_parallel = [8, 16]>"
    )


def test_a_pack_after_another_op_gets_the_same_cut_in_tiles_in_its_own_order() -> None:
    view = pack_after()
    assert (view.workload.op_kind, view.workload.fused, view.packed_tile) == ("elementwise", ("pack",), (4, 16))
    root, companions = configs(view, **{**KNOBS, "tile_p": 2})
    assert root == "#iree_cpu.lowering_config<distribution = [32, 0], vector_common_parallel = [8, 32]>"
    assert list(companions.values()) == ["#iree_cpu.lowering_config<vector_common_parallel = [2, 2]>"]
    root, companions = configs(view, **{**KNOBS, "tile_p1": 4})
    assert list(companions.values()) == ["#iree_cpu.lowering_config<vector_common_parallel = [1, 4]>"]


def test_an_unpack_before_another_op_is_cut_as_that_op_is() -> None:
    view = unpack_before()
    assert (view.workload.op_kind, view.packed_tile) == ("elementwise", (4, 16))
    assert list(configs(view, **KNOBS)[1].values()) == [
        "#iree_cpu.lowering_config<vector_common_parallel = [8, 16]>",
    ]


@pytest.mark.parametrize("view", [pack(), pack_after(), unpack(), unpack_before()])
def test_only_the_template_that_knows_of_packed_tiles_applies_and_its_priors_are_valid(view: DispatchView) -> None:
    found = space(view)
    assert list(found.parts) == ["derived/packed_tiles"]
    assert found.size > 20
    assert len(found.priors()) >= 3
    assert all(found.violations(prior) == () for prior in found.priors())
    # IREE refuses to pack where no workgroups share the result out.
    assert all(candidate.knobs["dist_p1"] != 0 for candidate in found)


@pytest.mark.parametrize(("columns", "refused"), [(137, True), (144, False)])
def test_an_unpack_across_a_loop_whose_last_tile_is_not_full_has_to_fit_on_the_stack(
    columns: int, refused: bool
) -> None:
    packed, plain = "tensor<46x9x16x16xf32>", f"tensor<731x{columns}xf32>"
    body = (
        f"%e = tensor.empty() : {plain}\n%r = linalg.unpack %a inner_dims_pos = [0, 1] inner_tiles = [16, 16]"
        f" into %e : {packed} -> {plain}"
    )
    part = space(read(function_text({"%a": packed}, body, {"%r": plain}))).parts["derived/packed_tiles"]
    # IREE 3.13 puts 9216 bytes for each row of tiles on the stack, if the columns are 137 and in one workgroup.
    for rows, dist, told in ((1, 0, False), (4, 0, refused), (4, 2, False)):
        knobs: dict[str, KnobValue] = {"tile_p1": 1, "dist_p1": rows, "tile_p": 2, "dist_p": dist}
        assert bool([each for each in part.violations(knobs) if "of stack" in each]) == told


def test_files_that_would_take_an_elementwise_op_leave_it_alone_where_it_is_packed() -> None:
    class AnyFile:
        def applies_to(self, view: DispatchView) -> bool:
            raise AssertionError("asked")

    assert list(build_space(pack_after(), [AnyFile()], TARGET).parts) == ["derived/packed_tiles"]  # type: ignore[list-item]
    with pytest.raises(AssertionError, match="asked"):
        build_space(read(elementwise()), [AnyFile()], TARGET)  # type: ignore[list-item]


def test_the_match_of_a_pack_starts_at_its_store_where_what_follows_is_seen() -> None:
    found = space(unpack())
    text = found.entry("e", found.priors()[0]).sequences
    assert 'transform.match.operation_name %arg0 ["iree_tensor_ext.dispatch.tensor.store"]' in text
    assert "linalg.unpack" in text


def test_tiles_beside_a_reduction_can_not_be_laid_out() -> None:
    row = "tensor<64xf32>"
    body = "%s = arith.addf %x0, %acc : f32\nlinalg.yield %s : f32"
    sums = generic("%r", {"%plain": PLAIN}, ("%init", row), ["(i, j) -> (i, j)", "(i, j) -> (i)"], "pr", body)
    with pytest.raises(NotReadable, match=r"linalg\.unpack stands beside ops"):
        read(function_text({"%a": PACKED}, f"{UNPACK}\n{filled(row)}\n{sums}", {"%r": row}))
