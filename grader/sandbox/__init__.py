"""Starts, asks, limits and ends the process in which a submission runs."""

from grader.sandbox.container import Image
from grader.sandbox.fencing import probe
from grader.sandbox.supervisor import Limits, OutOfTime, Sandbox, SandboxError, WorkerSubject

__all__ = ["Image", "Limits", "OutOfTime", "Sandbox", "SandboxError", "WorkerSubject", "probe"]
