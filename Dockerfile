# A CPU image of the grader:  docker build -t attnlab .
#                             docker run --rm --network none -v "$PWD/submission:/submission:ro" attnlab grade /submission
# PIP_FIND_LINKS and PIP_TRUSTED_HOST may name a place that serves PyTorch's CPU build; the plain wheel on Linux is CUDA's.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}
ARG PIP_FIND_LINKS=
ARG PIP_TRUSTED_HOST=
WORKDIR /opt/attnlab
COPY constraints.txt ./
RUN python -m pip install --no-cache-dir -c constraints.txt torch
COPY pyproject.toml README.md ./
COPY harness harness
COPY reference reference
COPY grader grader
COPY rubrics rubrics
RUN python -m pip install --no-cache-dir -c constraints.txt './harness[worker]' . && attnlab --help >/dev/null
WORKDIR /work
ENTRYPOINT ["attnlab"]
CMD ["--help"]
