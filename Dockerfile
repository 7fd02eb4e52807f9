# Wirelake with the lake, for one command a container:
#   docker build --tag wirelake .
#   docker run --rm --network none --volume "$PWD:/data" wirelake ingest my-lake captures/
# Nothing is fetched when a container runs. Recordings and lakes are in /data; the user 10001 must be able to write there.
FROM python:3.13-slim-bookworm AS build

WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN python -m venv /opt/wirelake \
    && /opt/wirelake/bin/pip install --no-cache-dir --constraint constraints.txt '.[lake,java,websocket,formats,wolpertinger,quic]'

FROM python:3.13-slim-bookworm

RUN useradd --system --uid 10001 --create-home wirelake \
    && install --directory --owner=wirelake /data /var/cache/wirelake
COPY --from=build /opt/wirelake /opt/wirelake
# Compiled kernels and Spark's scratch files: mount a volume at /var/cache/wirelake to keep kernels between containers.
ENV PATH=/opt/wirelake/bin:$PATH \
    NUMBA_CACHE_DIR=/var/cache/wirelake \
    PYTHONDONTWRITEBYTECODE=1

USER 10001
WORKDIR /data
VOLUME ["/data", "/var/cache/wirelake"]
ENTRYPOINT ["wirelake"]
CMD ["--help"]
