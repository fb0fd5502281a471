# Images of the grader, each a target:  docker build --target TARGET -t attnlab .
#   grader (the default)   the judge and its worker: docker run --rm --network none -v "$PWD/submission:/submission:ro" attnlab grade /submission
#   gpu                    the same, for a BASE_IMAGE with CUDA or PyTorch: --build-arg BASE_IMAGE=pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
#   gradescope             the same in Gradescope's layout below /autograder, for a BASE_IMAGE of theirs; a secret.txt beside this file goes in,
#                          and RUBRIC, with the course's own OWN_TESTS that it names
#   worker-cpu, worker-gpu the worker alone, without the reference: what `attnlab grade --container` runs a submission in
# TORCH_INDEX names another of PyTorch's indexes; PIP_FIND_LINKS and PIP_TRUSTED_HOST a place of one's own that serves its CPU build.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE} AS python
ARG PIP_FIND_LINKS=
ARG PIP_TRUSTED_HOST=
ARG TORCH_INDEX=
ENV PATH=/opt/attnlab/bin:$PATH
WORKDIR /opt/sources
COPY constraints.txt grader/release/image/python.sh grader/release/image/packages.sh ./
RUN ./python.sh /opt/attnlab && ./packages.sh /opt/attnlab pip

FROM python AS worker-cpu
COPY harness harness
RUN ./packages.sh /opt/attnlab './harness[worker]'

FROM worker-cpu AS worker-gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM worker-cpu AS judge
COPY pyproject.toml README.md LICENSE ./
COPY reference reference
COPY grader grader
COPY rubrics rubrics
COPY student_template student_template
COPY examples examples
RUN ./packages.sh /opt/attnlab . && attnlab --help >/dev/null

FROM judge AS gradescope
ARG RUBRIC=rubrics/lab.yaml
ARG OWN_TESTS=${RUBRIC}
ARG TIME_LIMIT=600
WORKDIR /autograder/source
COPY grader/release/image/*.sh grader/release/image/not-graded.json secret.tx[t] ./
# the tests that a rubric names lie beside it; a mistake in either is told here, and not by the first submission
COPY ${OWN_TESTS} ${RUBRIC} rubric/
RUN mv rubric/* . && rmdir rubric && { [ -e rubric.yaml ] || mv "${RUBRIC##*/}" rubric.yaml; } && \
    python -P -c 'import sys; from pathlib import Path; from grader.rubric import load_rubric; sys.tracebacklimit = 0; load_rubric(Path("rubric.yaml"))'
RUN echo "${TIME_LIMIT}" > time-limit && mkdir -p ../submission ../results && \
    mv run_autograder.sh ../run_autograder && rm -rf /opt/sources && ./close.sh /opt/attnlab
WORKDIR /autograder
CMD ["/autograder/run_autograder"]

FROM judge AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["attnlab"]
CMD ["--help"]

FROM judge AS grader
WORKDIR /work
ENTRYPOINT ["attnlab"]
CMD ["--help"]
