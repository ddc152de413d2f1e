"""Cut a payload into tasks: its dispatches, deduplicated, each with a module that runs it alone on real tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch import toolchain
from mlsearch.candidate import Signature, digest
from mlsearch.errors import PayloadError
from mlsearch.ir import flow
from mlsearch.ir.dispatch import DispatchView, NotReadable, read_dispatch
from mlsearch.ir.flow import Site
from mlsearch.ir.module import Module, new_context, parse, print_local, symbol_name, walk
from mlsearch.payload import Payload
from mlsearch.runner.timing import timing_method
from mlsearch.target import Target
from mlsearch.workload import Workload

LAUNCHED_BATCH = 16
"""Dispatches in the batch function of a task for a device that is timed by slope."""

# Prints each dispatch's function where a transform library gets to see it, and changes nothing.
_PROBE_MARK = "mlsearch probe"
_PROBED = "probed.mlir"
_PROBE = (
    "module attributes {transform.with_named_sequence} {\n"
    "  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.readonly}) {\n"
    f'    "transform.print"(%function) <{{name = "{_PROBE_MARK}", use_local_scope}}>'
    " : (!transform.any_op) -> ()\n"
    "    transform.yield\n"
    "  }\n"
    "}\n"
)


@dataclass(frozen=True)
class Task:
    """A dispatch on a target, with its weight."""

    id: str
    """`t0`, `t1`, ... in program order."""
    functions: tuple[str, ...]
    """Names of the equal dispatch functions that it stands for."""
    sites: int
    """How many times the payload's code dispatches it."""
    view: DispatchView | None
    """None where the dispatch can't be read; `not_tunable` then says why."""
    late_view: DispatchView | None
    """The same dispatch as a strategy sees it, after IREE has prepared it for lowering; None where it can't be read."""
    module: Path | None
    """Flow-phase module with the function `task`; None where it can't run on its own."""
    signature: Signature | None
    not_tunable: str | None

    @property
    def workload(self) -> Workload | None:
        return self.view.workload if self.view else None

    @property
    def label(self) -> str:
        return self.view.workload.label if self.view else self.functions[0]

    @property
    def entry_name(self) -> str:
        """Name of this task's entry in a spec: readable, and the same in every payload."""
        assert self.view is not None
        return f"{self.label}_{self.view.workload.key[:6]}"


def cut(payload: Payload, target: Target, workdir: Path) -> list[Task]:
    """The payload's tasks, in program order. Raises PayloadError if the untuned payload does not compile."""
    module = payload.parse()
    sites, count = flow.dispatch_sites(module, payload.only_function)
    views = _views(payload, target, workdir) if sites else {}
    late_views = _late_views(workdir / _PROBED) if sites else {}
    tasks: list[Task] = []
    batch = LAUNCHED_BATCH if timing_method(target.device_uri) == "slope" else 0
    for site in sites.values():
        task = _task(f"t{len(tasks)}", module, site, count, views, workdir, batch)
        late_view = late_views.get(site.function)
        task = replace(task, late_view=None if isinstance(late_view, str) else late_view)
        twin = next((i for i, other in enumerate(tasks) if _same(task, other)), None)
        if twin is None:
            tasks.append(task)
        else:
            merged = tasks[twin].functions + task.functions
            tasks[twin] = replace(tasks[twin], functions=merged, sites=tasks[twin].sites + task.sites)
    return tasks


def _same(task: Task, other: Task) -> bool:
    if task.workload is None or other.workload is None:
        return False
    return task.workload.key == other.workload.key and task.signature == other.signature


def _task(
    identifier: str,
    module: Module,
    site: Site,
    count: Counter[str],
    views: Mapping[str, DispatchView | str],
    workdir: Path,
    batch: int,
) -> Task:
    view = views.get(site.function, "the compiler does not configure it")
    reduction_length = 1 if isinstance(view, str) else view.workload.reduction_length
    signature = flow.task_signature(site, reduction_length, batch)
    if signature is not None and not isinstance(view, str):
        signature = replace(signature, indices=flow.may_index(view.function))
    if site.workload_operands or any("?" in text for text in (*site.operand_types, *site.result_types)):
        view = "it has dynamic dims"
    elif signature is None:
        odd = next(text for text in (*site.operand_types, *site.result_types) if flow.tensor_spec(text) is None)
        view = f"it takes or gives a {odd}, which can't be passed from outside"
    path = None
    if signature is not None and not site.workload_operands:
        path = workdir / f"{identifier}-{digest(site.executable)}.mlir"
        path.write_text(flow.slice_task(module, site, batch))
    return Task(
        id=identifier,
        functions=(site.function,),
        sites=count[site.executable],
        view=None if isinstance(view, str) else view,
        late_view=None,
        module=path,
        signature=signature if path else None,
        not_tunable=view if isinstance(view, str) else None,
    )


def _views(payload: Payload, target: Target, workdir: Path) -> dict[str, DispatchView | str]:
    """Each dispatch function as a transform library sees it, or why it can't be read."""
    probe = workdir / "probe.mlir"
    probe.write_text(_PROBE)
    argv = toolchain.compile_argv(
        payload.flow_module,
        workdir / _PROBED,
        target.compile_flags,
        library=probe,
        compile_from="flow",
        compile_to="executable-configurations",
    )
    done = toolchain.run(argv)
    if done.returncode:
        raise PayloadError(f"{payload.path} does not compile even untuned: {done.headline} (command: {done.command})")
    texts = done.stdout.split(f"[[[ IR printer: {_PROBE_MARK} ]]]\n")[1:]
    return _read_all(texts)


def _late_views(configured: Path) -> dict[str, DispatchView | str]:
    """Each dispatch function as it is once IREE has configured it untuned."""
    module = parse(configured.read_text(), new_context())
    functions = [op for op in walk(module.operation) if op.name == "func.func"]
    return _read_all([print_local(function) for function in functions])


def _read_all(functions: Sequence[str]) -> dict[str, DispatchView | str]:
    views: dict[str, DispatchView | str] = {}
    for text in functions:
        module = parse(text, new_context())
        name = symbol_name(module.body.operations[0].operation)
        try:
            views[name] = read_dispatch(module)
        except NotReadable as reason:
            views[name] = str(reason)
    return views
