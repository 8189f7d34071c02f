"""The real driver module with gpsched in it, on real kernels, without a GPU: one machine a target, one test a check.

What the checks do is in guest/; here their outcome, the end of the module and the kernel's log are judged.
"""

import sys
from pathlib import Path

import pytest
from vm_targets import TARGETS, Outcome, Target


sys.path.insert(0, str(Path(__file__).parent / "guest"))
import catalogue  # noqa: F401 registers the checks
import checks


pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(1500)]
per_target = pytest.mark.parametrize("target", TARGETS, ids=str)


@per_target
@pytest.mark.parametrize("name", checks.CHECKS)
def test_check(outcomes, target: Target, name: str) -> None:
    outcome: Outcome = outcomes(target)
    assert name in outcome.checks, (
        f"not run; the guest ended with {outcome.result.status}: {outcome.result.output[-1500:]}"
    )
    assert outcome.checks[name]["ok"], outcome.checks[name]["detail"]


@per_target
def test_stress_was_as_long_as_promised(outcomes, target: Target) -> None:
    detail = outcomes(target).checks["ten_thousand_rounds"]["detail"]
    assert detail, "the check did not finish"
    assert '"rounds": 10000' in detail


@per_target
def test_module_unloads_and_loads_again(outcomes, target: Target) -> None:
    result = outcomes(target).result
    assert result.status == 0, result.output[-1500:]
    assert result.log.count("gpsched: ready") == 2


@per_target
def test_module_parameter_switches_it_off(outcomes, target: Target) -> None:
    if target.companion:
        pytest.skip("the companion module is switched off by not loading it")
    result = outcomes(target).result
    assert result.status == 0, result.output[-1500:]
    assert result.log.count("gpsched: switched off") == 1


@per_target
def test_calls_from_bpf_are_offered(outcomes, target: Target) -> None:
    assert "gpsched: ready, with BPF calls" in outcomes(target).result.log


@per_target
def test_kernel_log_has_no_complaint(outcomes, target: Target) -> None:
    assert outcomes(target).result.splats() == []
