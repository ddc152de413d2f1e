"""Cutting one dispatch out of a flow-phase module."""

from __future__ import annotations

from collections import Counter

import pytest

from mlsearch.candidate import TensorSpec
from mlsearch.ir.flow import Site, dispatch_sites, slice_task, task_signature
from mlsearch.ir.module import new_context, parse, symbol_name, symbol_ref, top_level, walk


def executable(name: str, function: str, arguments: str, workload: str = "") -> str:
    return f"""
    flow.executable private {symbol_ref(name)} {{
      flow.executable.export public {symbol_ref(function)} workgroups({workload}) -> (index, index, index) {{
        %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice()
        flow.return %x, %y, %z : index, index, index
      }}
      builtin.module {{
        func.func {symbol_ref(function)}({arguments}) {{ return }}
      }}
    }}
    """


READS, WRITES = (f"!iree_tensor_ext.dispatch.tensor<{access}:tensor<4xf32>>" for access in ("readonly", "writeonly"))
UPDATES = "!iree_tensor_ext.dispatch.tensor<readwrite:tensor<4xf32>>"
T = "tensor<4xf32>"


def module_text(*, name: str = "ex", function: str = "fn", workload: str = "") -> str:
    target = f"{symbol_ref(name)}::{symbol_ref(function)}"
    two = f"%x: {READS}, %y: {UPDATES}, %z: {WRITES}"
    return f"""
    module attributes {{stream.affinity.default = #hal.device.affinity<@dev>, odd.flag}} {{
      util.global private @dev = #hal.device.target<"local"> : !hal.device
      {executable(name, function, two)}
      {executable("other", "g", f"%x: {READS}, %y: {WRITES}", workload)}
      util.func public @main(%a: {T}, %b: {T}) -> {T} {{
        %0:2 = flow.dispatch {target}(%a, %b) : ({T}, {T}) -> (%b, {T})
        %1 = flow.dispatch @other::@g(%0#1) : ({T}) -> {T}
        %2:2 = flow.dispatch {target}(%1, %0#0) : ({T}, {T}) -> (%0#0, {T})
        util.return %2#1 : {T}
      }}
    }}
    """


def cut_first(text: str) -> tuple[Site, str]:
    module = parse(text, new_context())
    site = next(iter(dispatch_sites(module)[0].values()))
    return site, slice_task(module, site)


def test_sites_are_found_in_program_order_and_counted() -> None:
    sites, count = dispatch_sites(parse(module_text(), new_context()))
    assert list(sites) == ["ex", "other"]
    assert count == Counter({"ex": 2, "other": 1})
    assert sites["ex"] == Site("ex", "fn", (T, T), (T, T), (1, -1), 0)
    assert sites["other"].tied_operands == (-1,)


@pytest.mark.parametrize("name", ["ex", "Graph in PIR mode", 'say "x"', "a$b", "naïve", "b\\s", "9"])
def test_a_slice_parses_whatever_the_names(name: str) -> None:
    _, text = cut_first(module_text(name=name, function=f"{name}_fn"))
    sliced = parse(text, new_context())
    assert [symbol_name(op) for op in top_level(sliced)] == ["dev", name, "task"]
    [dispatch] = [op for op in walk(sliced.operation) if op.name == "flow.dispatch"]
    assert len(dispatch.operands) == 2


def test_a_batch_is_another_function_that_runs_on_arguments_of_its_own_each_time() -> None:
    module = parse(module_text(), new_context())
    site = next(iter(dispatch_sites(module)[0].values()))
    sliced = parse(slice_task(module, site, 3), new_context())
    assert [symbol_name(op) for op in top_level(sliced)] == ["dev", "ex", "task", "task_batch"]
    batch = list(top_level(sliced))[-1]
    dispatches = [op for op in walk(batch) if op.name == "flow.dispatch"]
    assert len(dispatches) == 3
    assert len({str(operand) for op in dispatches for operand in op.operands}) == 6
    assert len([op for op in walk(batch) if op.name == "hal.tensor.export"]) == 6
    signature = task_signature(site, 1, 3)
    assert signature is not None and signature.batch == 3


def test_a_slice_keeps_the_modules_attributes() -> None:
    _, text = cut_first(module_text())
    attributes = parse(text, new_context()).operation.attributes
    assert {"stream.affinity.default", "odd.flag"} <= {name for name, _ in attributes.items()}


def test_results_of_their_own_go_to_the_callers_buffers_and_tied_ones_stay_where_they_are() -> None:
    site, text = cut_first(module_text())
    sliced = parse(text, new_context())
    [function] = [op for op in top_level(sliced) if op.name == "util.func"]
    types = [str(argument.type) for argument in function.regions[0].blocks[0].arguments]
    assert types == ["!hal.buffer_view", "!hal.buffer_view", "!hal.buffer"]
    names = [op.name for op in walk(function)]
    assert names.count("hal.tensor.alias") == 1
    assert names.count("hal.tensor.export") == 2

    signature = task_signature(site, 7)
    assert signature is not None
    assert signature.out_buffers == (1,)
    assert signature.inputs == (TensorSpec((4,), "f32"),) * 2
    assert signature.outputs == (TensorSpec((4,), "f32"),) * 2
    assert signature.reduction_length == 7


def test_operands_that_are_no_tensors_have_no_signature() -> None:
    site = Site("ex", "fn", (T, "i32"), (T,), (-1,), 0)
    assert task_signature(site, 1) is None


def test_tied_operands_count_from_behind_the_workload() -> None:
    text = module_text(workload="%n: index").replace(
        f"%1 = flow.dispatch @other::@g(%0#1) : ({T}) -> {T}",
        f"%n = arith.constant 3 : index\n%1 = flow.dispatch @other::@g[%n](%0#1) : ({T}) -> %0#1",
    )
    sites, _ = dispatch_sites(parse(text, new_context()))
    assert sites["other"].workload_operands == 1
    assert sites["other"].tied_operands == (0,)
