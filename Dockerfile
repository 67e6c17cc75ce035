# One image for every process: API, worker, migrations, command line.
#
#   docker build --tag backburner .
#   docker run --rm backburner --help
#
# Your own handlers: build from this image and install them, or mount them at /apps.

FROM python:3.11-slim-bookworm AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1
WORKDIR /build
COPY requirements-image.lock requirements-build.lock ./
RUN python -m venv /build/tools \
    && /build/tools/bin/pip install --no-deps --require-hashes --requirement requirements-build.lock \
    && python -m venv --without-pip /opt/backburner \
    && /build/tools/bin/pip --python /opt/backburner/bin/python install \
        --no-deps --require-hashes --only-binary :all: --requirement requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
# Built by the locked tools, installed without a look at any index.
RUN PATH=/build/tools/bin:$PATH /build/tools/bin/pip wheel \
        --no-deps --no-build-isolation --no-index --wheel-dir dist . \
    && /build/tools/bin/pip --python /opt/backburner/bin/python install \
        --no-deps --no-index dist/*.whl \
    && /opt/backburner/bin/python -m compileall -q -j 0 /opt/backburner/lib


FROM python:3.11-slim-bookworm

# The base image's own package manager for Python is not needed to run anything.
RUN rm -rf /usr/local/lib/python3.11/ensurepip \
        /usr/local/lib/python3.11/site-packages/* /usr/local/bin/pip* \
    && groupadd --system --gid 10001 backburner \
    && useradd --system --uid 10001 --gid 10001 --home-dir /data backburner \
    && install --directory --owner 10001 --group 10001 /data /apps
COPY --from=build /opt/backburner /opt/backburner

ENV PATH=/opt/backburner/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BACKBURNER_STORE=sqlite:////data/backburner.db \
    BACKBURNER_HOST=0.0.0.0 \
    BACKBURNER_LOG_FORMAT=json
USER 10001:10001
# A module in the current folder may be given to --app.
WORKDIR /apps
VOLUME /data
EXPOSE 8765
STOPSIGNAL SIGTERM

# In exec form, so that the process itself gets the signals; it starts no children.
ENTRYPOINT ["backburner"]
CMD ["serve"]

# Of a server. What runs no API has no port to check: see compose.yaml.
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('BACKBURNER_PORT', '8765') + '/readyz', timeout=5)"]
