"""Counts of PTX, ptxas's report, occupancy, and what they come to."""

from __future__ import annotations

import pytest

from mlsearch.cuda import ptxas
from mlsearch.cuda.chips import ARCHITECTURES
from mlsearch.cuda.executable import read_kernels
from mlsearch.cuda.occupancy import occupancy
from mlsearch.cuda.ptx import count
from mlsearch.cuda.ptxas import read_report

PTX = """
.version 8.0
.target sm_90
.visible .entry task(
	.param .u64 .ptr .global .align 16 task_param_0
)
.maxntid 128, 1, 1
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<577>;
	.reg .b64 	%rd<99>;
	ld.param.b64 	%rd51, [task_param_0];
	ld.global.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	@%p1 ld.global.b32 	%r5, [%rd1];
	cp.async.cg.shared.global [%r1], [%rd1], 16, 16;
	cp.async.commit_group;
	bar.sync 	0;
	ld.shared.b32 	%r6, [%r7];
	ld.shared.v2.b64 	{%rd1, %rd2}, [%r7];
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r7];
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
		{%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%r9, %r10}, {%r1, %r2, %r3, %r4};
	fma.rn.f32 	%r1, %r2, %r3, %r4;
	st.local.b32 	[%rd1], %r1;
	st.global.v4.b32 	[%rd1], {%r1, %r2, %r3, %r4};
	ret;
}
"""

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'good' for 'sm_90'
ptxas info    : Function properties for good
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'bad' for 'sm_90'
ptxas info    : Function properties for bad
    520 bytes stack frame, 516 bytes spill stores, 604 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""


def test_instructions_are_counted_by_what_they_do() -> None:
    counts = count(PTX)
    assert counts.target == "sm_90"
    assert (counts.mma, counts.mma_flops, counts.ldmatrix, counts.async_copies) == (1, 2 * 16 * 8 * 16, 1, 1)
    assert (counts.barriers, counts.fma, counts.local_accesses) == (1, 1, 1)

    assert (counts.global_loads, counts.global_vector_loads, counts.global_stores) == (2, 1, 1)
    assert (counts.shared_loads, counts.shared_vector_loads) == (2, 1)
    assert counts.virtual_registers == 576


def test_integers_are_multiplied_and_added_where_no_floats_are() -> None:
    mad = "\tmad.lo.s32 \t%r1, %r2, %r3, %r4;\n"
    assert count(PTX.replace("\tst.local", 3 * mad + "\tst.local")).fma == 1
    assert count(PTX.replace("\tfma.rn.f32 \t%r1, %r2, %r3, %r4;\n", 3 * mad)).fma == 3


def test_registers_spills_and_shared_memory_are_read_for_each_kernel() -> None:
    found = read_report(REPORT)
    assert (found["good"].registers, found["good"].spill_stores, found["good"].shared_bytes) == (80, 0, 1024)
    assert (found["bad"].registers, found["bad"].spill_stores, found["bad"].spill_loads) == (255, 516, 604)


def test_without_ptxas_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find_ptxas", lambda: None)
    said = ptxas.assemble(PTX, "sm_90")
    assert isinstance(said, str) and "pip install 'mlsearch[cuda]'" in said


# Worked out with the CUDA Occupancy Calculator's rules.
@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared", "blocks", "limited_by"),
    [
        ("sm_80", 128, 32, 0, 16, "threads"),
        ("sm_80", 128, 128, 0, 4, "registers"),
        ("sm_80", 256, 255, 0, 1, "registers"),
        ("sm_80", 128, 32, 40 * 1024, 4, "shared memory"),
        ("sm_86", 32, 16, 0, 16, "blocks"),
        ("sm_86", 128, 32, 100 * 1024, 0, "shared memory"),
        ("sm_90", 128, 32, 100 * 1024, 2, "shared memory"),
        ("sm_75", 2048, 16, 0, 0, "threads"),
    ],
)
def test_a_multiprocessor_holds_what_its_scarcest_resource_allows(
    architecture: str, threads: int, registers: int, shared: int, blocks: int, limited_by: str
) -> None:
    held = occupancy(ARCHITECTURES[architecture], threads, registers, shared)
    assert (held.blocks, held.limited_by) == (blocks, limited_by)
    assert held.warps == blocks * -(-threads // 32)


def test_bytes_that_only_look_like_an_executable_hold_no_kernel() -> None:
    assert read_kernels(b"") == ()
    assert read_kernels(b"\xff\xff\xff\xffCDA1" + b"\xff" * 64) == ()
