# A Trellis SuperNode for Flower apps in Python: the program from our image, beside a Python with Flower and what the apps import.
# Native apps need none of this. From the root of the repository:
#   buildah build -f deploy/images/python.Dockerfile --build-arg SUPERNODE=registry.example.org/trellis-supernode:0.2.0 \
#     --build-arg REQUIREMENTS="flwr==1.42.0 torch" -t trellis-supernode-python .
# PYTHON is any Linux with glibc, Python and its venv.
ARG SUPERNODE=trellis-supernode
ARG PYTHON=python:3.12-slim
FROM ${SUPERNODE} AS program

FROM ${PYTHON}
ARG REQUIREMENTS="flwr==1.42.0 numpy"
# In a place of their own: the Python of a distribution takes no packages from elsewhere.
RUN python3 -m venv /opt/python && /opt/python/bin/pip install --no-cache-dir ${REQUIREMENTS}
COPY --from=program /usr/bin/trellis /usr/bin/trellis
COPY --from=program --chown=65532:65532 /var/lib/ /var/lib/
ENV PATH=/opt/python/bin:/usr/local/bin:/usr/bin:/bin
ENV HOME=/var/lib/trellis XDG_STATE_HOME=/var/lib PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/trellis
VOLUME /var/lib/trellis
USER 65532:65532
ENTRYPOINT ["/usr/bin/trellis", "supernode"]
