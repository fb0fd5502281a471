"""Starts, asks, limits and ends the process in which a submission runs."""

from grader.sandbox.fencing import probe
from grader.sandbox.supervisor import Limits, Sandbox, SandboxError, WorkerSubject

__all__ = ["Limits", "Sandbox", "SandboxError", "WorkerSubject", "probe"]
