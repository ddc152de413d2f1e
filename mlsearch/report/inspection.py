"""What `inspect` and `space` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mlsearch.report.tables import add_row, new_table
from mlsearch.report.text import amount_text, count_text, one_line, share_text, time_text

if TYPE_CHECKING:
    from mlsearch.inspection import InspectedTask, Inspection, SpaceDescription, TemplateDescription


def print_inspection(console: Console, inspection: Inspection) -> None:
    """One row per task: what it computes, how much time it takes, what could be tuned."""
    if not inspection.tasks:
        console.print(Text("nothing to tune: the payload has no dispatch"))
        return
    numbers = ("sites", "share", "untuned", "space")
    table = new_table("id", "task", *numbers, numbers=numbers)
    for task in inspection.tasks:
        add_row(
            table,
            task.id,
            "\n".join(_task_lines(task)),
            str(task.sites),
            share_text(task.share),
            time_text(task.baseline_us),
            "none" if task.not_tunable else str(task.space_size),
            style="dim" if task.not_tunable else "",
        )
    console.print(table)


def print_space(console: Console, space: SpaceDescription) -> None:
    """Knobs, domains and constraints of each template of a task's space."""
    console.print(
        Text(f"{space.task} {one_line(space.label)}: {count_text(space.size, 'candidate')}", style="bold"),
        soft_wrap=True,
    )
    for template in space.templates:
        console.print()
        _print_template(console, template)


def _task_lines(task: InspectedTask) -> list[str]:
    dims = " ".join(f"{role}={size}" for role, size in task.dims.items())
    lines = [one_line(task.label)]
    if task.workload:  # else nothing of it is known
        lines += [
            f"  {one_line(task.op_kind)} {dims} {' '.join(dict.fromkeys(task.element_types))}",
            f"  {amount_text(task.flops, 'FLOP')}, {amount_text(task.bytes, 'B')}",
        ]
    if task.fused:
        lines.append(f"  fused: {one_line(', '.join(task.fused))}")
    if task.not_tunable:
        lines.append(f"  can't be tuned: {one_line(task.not_tunable)}")
    else:
        lines.append(f"  templates: {one_line(', '.join(task.templates))}")
    return lines


def _print_template(console: Console, template: TemplateDescription) -> None:
    console.print(Text(f"{one_line(template.id)} ({one_line(str(template.path))})", style="bold"), soft_wrap=True)
    table = new_table("knob", "values", "default")
    for knob in template.knobs:
        values = " ".join(one_line(str(value)) for value in knob.values)
        add_row(table, one_line(knob.name), values, one_line(str(knob.default)))
    console.print(table)
    for name, term in template.derived.items():
        console.print(Text(f"follows: {one_line(name)} = {one_line(term)}"), soft_wrap=True)
    for constraint in template.constraints:
        console.print(Text(f"constraint: {one_line(constraint)}"), soft_wrap=True)
    console.print(Text(f"{template.valid} of {count_text(template.total, 'assignment')} valid"))
