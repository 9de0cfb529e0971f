"""Nothing hangs: the short form of `python -m benchmarks.hang`, which is for whole days."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import hang


@pytest.mark.parametrize(
    "name",
    [
        "grid",
        "integrated logistic",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("sweeps", "exact", "integrated")),
    ],
)
def test_nothing_hangs_on_two_threads_and_no_kernel_divides_its_batch(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hang.audit([name], limit=300.0, pool=2) == 0, capsys.readouterr().out


def test_the_audit_finds_kernels_that_divide(tmp_path: Path) -> None:
    line = (
        "  %cholesky = (f64[{0},9,9]{{1,2,0}}, s32[{0}]{{0}}) custom-call(%a), "
        'custom_call_target="lapack_dpotrf_ffi", '
        "operand_layout_constraints={{f64[{0},9,9]{{1,2,0}}}}, api_version=API_VERSION_TYPED_FFI\n"
    )
    for batch in (800, 900):  # of 9^3 / 3 each: the limit of 200,000 lies between
        path = tmp_path / f"{batch}.cpu_after_optimizations.txt"
        path.write_text(line.format(batch))
    assert [kernel for _, kernel in hang.divided(tmp_path)] == ["potrf of [(900, 9, 9)]"]
