"""The native actuator, which executes plans within microseconds of their trigger, and the daemon's side of it."""

from gpsched.adaptive.actuator.actuator import Actuator, binary_path
from gpsched.adaptive.actuator.errors import (
    ActuatorGoneError,
    ActuatorMissingError,
    PlanLimitError,
    PlanRefusedError,
)
from gpsched.adaptive.actuator.plans import GpuPlan, Mechanism, Member, Plan, PlanSet, Role, Trigger
from gpsched.adaptive.actuator.records import Counters, Reason, Record


__all__ = (
    "Actuator",
    "ActuatorGoneError",
    "ActuatorMissingError",
    "Counters",
    "GpuPlan",
    "Mechanism",
    "Member",
    "Plan",
    "PlanLimitError",
    "PlanRefusedError",
    "PlanSet",
    "Reason",
    "Record",
    "Role",
    "Trigger",
    "binary_path",
)
