"""Dispatch functions as a transform library sees them, for tests that need no compiler run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlsearch.ir.dispatch import DispatchView, read_dispatch
from mlsearch.ir.module import new_context, parse


def function_text(
    inputs: Mapping[str, str], body: str, outputs: Mapping[str, str], *, name: str = "d", offset: int = 0
) -> str:
    """A function that loads `inputs` (SSA name to tensor type), runs `body`, stores `outputs` (likewise)."""
    count = len(inputs) + len(outputs)
    layout = f"layout(<bindings = [{', '.join(['#hal.pipeline.binding<storage_buffer>'] * count)}]>)"
    lines = [f"func.func @{name}() {{", f"%offset = arith.constant {offset} : index"]
    for number, (access, value, type_) in enumerate(
        [*(("readonly", *each) for each in inputs.items()), *(("writeonly", *each) for each in outputs.items())]
    ):
        tensor = f"!iree_tensor_ext.dispatch.tensor<{access}:{type_}>"
        lines.append(
            f"%binding{number} = hal.interface.binding.subspan {layout} binding({number}) alignment(64)"
            f" offset(%offset) : {tensor}"
        )
        if access == "readonly":
            load = f"iree_tensor_ext.dispatch.tensor.load %binding{number}, {_slice(type_)}"
            lines.append(f"{value} = {load} : {tensor} -> {type_}")
    lines.append(body)
    for number, (value, type_) in enumerate(outputs.items(), len(inputs)):
        tensor = f"!iree_tensor_ext.dispatch.tensor<writeonly:{type_}>"
        lines.append(
            f"iree_tensor_ext.dispatch.tensor.store {value}, %binding{number}, {_slice(type_)} : {type_} -> {tensor}"
        )
    return "\n".join([*lines, "return", "}"])


def read(text: str) -> DispatchView:
    return read_dispatch(parse(text, new_context()))


def _slice(type_: str) -> str:
    sizes = re.findall(r"(\d+)x", type_.removeprefix("tensor<"))
    zeros, ones = ", ".join("0" * len(sizes)), ", ".join("1" * len(sizes))
    return f"offsets = [{zeros}], sizes = [{', '.join(sizes)}], strides = [{ones}]"


def filled(type_: str, result: str = "%init", value: str = "0.0 : f32") -> str:
    """Steps that give a tensor filled with a constant."""
    element = value.split(":")[1].strip()
    return (
        f"{result}_value = arith.constant {value}\n"
        f"{result}_empty = tensor.empty() : {type_}\n"
        f"{result} = linalg.fill ins({result}_value : {element}) outs({result}_empty : {type_}) -> {type_}"
    )


def generic(
    result: str,
    inputs: Mapping[str, str],
    output: tuple[str, str],
    maps: list[str],
    iterators: str,
    body: str,
) -> str:
    """A linalg.generic; `iterators` has a letter per loop, p or r; block arguments are %x0, %x1, ... and %acc."""
    kinds = ", ".join(f'"{"parallel" if letter == "p" else "reduction"}"' for letter in iterators)
    types = [*inputs.values(), output[1]]
    elements = [re.split(r"x(?=[a-z])", type_.removeprefix("tensor<"))[-1].rstrip(">") for type_ in types]
    names = [f"%x{i}" for i in range(len(inputs))] + ["%acc"]
    arguments = ", ".join(f"{value}: {element}" for value, element in zip(names, elements, strict=True))
    ins = f"ins({', '.join(inputs)} : {', '.join(inputs.values())})" if inputs else ""
    return (
        f"{result} = linalg.generic {{indexing_maps = [{', '.join(f'affine_map<{each}>' for each in maps)}],"
        f" iterator_types = [{kinds}]}} {ins} outs({output[0]} : {output[1]}) {{\n"
        f"^bb0({arguments}):\n{body}\n}} -> {output[1]}"
    )


def matmul(m: int = 64, n: int = 96, k: int = 48, *, name: str = "d", offset: int = 0, types: str = "f32") -> str:
    a, b, c = f"tensor<{m}x{k}x{types}>", f"tensor<{k}x{n}x{types}>", f"tensor<{m}x{n}x{types}>"
    zero = "0.0" if types.startswith(("f", "bf")) else "0"
    body = f"{filled(c, value=f'{zero} : {types}')}\n%r = linalg.matmul ins(%a, %b : {a}, {b}) outs(%init : {c}) -> {c}"
    return function_text({"%a": a, "%b": b}, body, {"%r": c}, name=name, offset=offset)


MULTIPLY_ADD = "%p = arith.mulf %x0, %x1 : f32\n%s = arith.addf %acc, %p : f32\nlinalg.yield %s : f32"


def matmul_then(body: str, *, constants: str = "", m: int = 64, n: int = 96, k: int = 48) -> str:
    """A matmul and an elementwise op after it, whose body turns %x0 into %y; `constants` stand before the op."""
    a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    steps = [
        constants,
        filled(c),
        f"%mm = linalg.matmul ins(%a, %b : {a}, {b}) outs(%init : {c}) -> {c}",
        f"%e = tensor.empty() : {c}",
        generic("%r", {"%mm": c}, ("%e", c), ["(i, j) -> (i, j)"] * 2, "pp", f"{body}\nlinalg.yield %y : f32"),
    ]
    return function_text({"%a": a, "%b": b}, "\n".join(steps), {"%r": c})


def softmax(rows: int = 16, columns: int = 32) -> str:
    whole, reduced = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
    along, across = "(i, j) -> (i, j)", "(i, j) -> (i)"
    steps = [
        filled(reduced, "%lowest", "0xFF800000 : f32"),
        generic(
            "%max",
            {"%a": whole},
            ("%lowest", reduced),
            [along, across],
            "pr",
            "%m = arith.maxnumf %x0, %acc : f32\nlinalg.yield %m : f32",
        ),
        filled(reduced),
        generic(
            "%sum",
            {"%a": whole, "%max": reduced},
            ("%init", reduced),
            [along, across, across],
            "pr",
            "%d = arith.subf %x0, %x1 : f32\n%e = math.exp %d : f32\n%s = arith.addf %e, %acc : f32\n"
            "linalg.yield %s : f32",
        ),
        f"%empty = tensor.empty() : {whole}",
        generic(
            "%r",
            {"%a": whole, "%max": reduced, "%sum": reduced},
            ("%empty", whole),
            [along, across, across, along],
            "pp",
            "%d = arith.subf %x0, %x1 : f32\n%e = math.exp %d : f32\n%q = arith.divf %e, %x2 : f32\n"
            "linalg.yield %q : f32",
        ),
    ]
    return function_text({"%a": whole}, "\n".join(steps), {"%r": whole})


def elementwise(shape: str = "1024", body: str = "%y = math.exp %x0 : f32", *, name: str = "d") -> str:
    tensor = f"tensor<{shape}xf32>"
    dims = ", ".join(f"d{i}" for i in range(shape.count("x") + 1))
    steps = [
        f"%e = tensor.empty() : {tensor}",
        generic(
            "%r",
            {"%a": tensor},
            ("%e", tensor),
            [f"({dims}) -> ({dims})"] * 2,
            "p" * (shape.count("x") + 1),
            f"{body}\nlinalg.yield %y : f32",
        ),
    ]
    return function_text({"%a": tensor}, "\n".join(steps), {"%r": tensor}, name=name)


ATTENTION_DOMAIN = "b, m, n, k, s"


def attention(
    heads: int = 4,
    queries: int = 32,
    keys: int = 48,
    depth: int = 16,
    columns: int = 24,
    *,
    types: str = "f32",
    domain: str = ATTENTION_DOMAIN,
    mask: bool = False,
    scale: str = "0.125",
    score: str = "",
) -> str:
    """Attention as IREE prepares it: fills, the op itself, the division by the sum.

    `domain` names the loops in the op's own order; a second batch loop is called `a`. `score` turns %x into %y in the
    op's body.
    """
    batch = ["a", "b"] if "a" in domain.split(", ") else ["b"]
    sizes = {"a": 2, "b": heads, "m": queries, "n": columns, "k": depth, "s": keys}

    def tensor(loops: str, element: str) -> str:
        return f"tensor<{'x'.join(str(sizes[loop]) for loop in [*batch, *loops])}x{element}>"

    def map_of(loops: str | None) -> str:
        return f"affine_map<({domain}) -> ({', '.join([*batch, *loops]) if loops is not None else ''})>"

    inputs = {"%q": tensor("mk", types), "%k": tensor("sk", types), "%v": tensor("sn", types)}
    masks = {"%mask": tensor("ms", types)} if mask else {}
    acc, row, out = tensor("mn", "f32"), tensor("m", "f32"), tensor("mn", types)
    maps = [map_of(loops) for loops in ("mk", "sk", "sn", None, *(["ms"] if mask else []), "mn", "m", "m")]
    across = ", ".join(f"d{i}" for i in range(len(batch) + 2))
    along = ", ".join(f"d{i}" for i in range(len(batch) + 1))
    narrowed = "" if types == "f32" else f"%t = arith.truncf %p : f32 to {types}\n"
    steps = [
        f"%scale = arith.constant {scale} : {types}",
        filled(acc, "%zeros"),
        filled(row, "%lowest", "-3.40282347E+38 : f32"),
        filled(row, "%nothing"),
        f"%att:3 = iree_linalg_ext.online_attention <indexing_maps = [{', '.join(maps)}]>"
        f" ins({', '.join([*inputs, '%scale', *masks])} : {', '.join([*inputs.values(), types, *masks.values()])})"
        f" outs(%zeros, %lowest, %nothing : {acc}, {row}, {row}) {{\n"
        f"^bb0(%x: f32):\n{score}\niree_linalg_ext.yield {'%y' if score else '%x'} : f32\n}} -> {acc}, {row}, {row}",
        f"%e = tensor.empty() : {out}",
        generic(
            "%r",
            {"%att#2": row, "%att#0": acc},
            ("%e", out),
            [f"({across}) -> ({along})", f"({across}) -> ({across})", f"({across}) -> ({across})"],
            "p" * (len(batch) + 2),
            f"%one = arith.constant 1.0 : f32\n%d = arith.divf %one, %x0 : f32\n%p = arith.mulf %d, %x1 : f32\n"
            f"{narrowed}linalg.yield {'%t' if narrowed else '%p'} : {types}",
        ),
    ]
    return function_text({**inputs, **masks}, "\n".join(steps), {"%r": out})
