"""Starts, asks, limits and ends the process in which a submission runs."""

from grader.sandbox.supervisor import Limits, Sandbox, WorkerSubject

__all__ = ["Limits", "Sandbox", "WorkerSubject"]
