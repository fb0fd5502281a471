"""Reaches a container engine, by the docker SDK; whatever is missing is told in a sentence with the command that mends it."""

from __future__ import annotations

from typing import Any


class EngineError(Exception):
    """Containers cannot be had as asked: the cause, and the command that mends it."""


def connect() -> Any:
    """A client of the engine that DOCKER_HOST names, or of the usual one. Raises EngineError."""
    try:
        import docker
    except ImportError:
        raise EngineError(
            "the Python package docker is not installed: python -m pip install 'attnlab-grader[docker]'"
        ) from None
    try:
        client = docker.from_env(timeout=3600)
        client.ping()
    except Exception as error:  # the SDK raises errors of its own, of requests and of the socket
        raise EngineError(
            f"no container engine answers ({str(error)[:200]}): start one, as with sudo systemctl start docker, "
            "or name it: export DOCKER_HOST=unix:///path/to/docker.sock"
        ) from None
    return client


def has_image(client: Any, name: str, target: str) -> None:
    """Raises EngineError, with the Dockerfile's target that makes one, unless the engine has an image of this name."""
    import docker

    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        raise EngineError(
            f"the engine has no image {name}: docker build --target {target} -t {name} . in the repository makes one"
        ) from None
