# A Trellis SuperNode for Flower apps in Python: the program from our image, beside a Python with Flower and what the apps import.
# Native apps need none of this. From the root of the repository:
#   podman build -f deploy/images/python.Dockerfile --build-arg SUPERNODE=registry.example.org/trellis-supernode:0.1.0 \
#     --build-arg REQUIREMENTS="flwr==1.42.0 torch" -t trellis-supernode-python .
ARG SUPERNODE=trellis-supernode
FROM ${SUPERNODE} AS program

FROM python:3.12-slim
ARG REQUIREMENTS="flwr==1.42.0 numpy"
RUN pip install --no-cache-dir ${REQUIREMENTS}
COPY --from=program /usr/bin/trellis /usr/bin/trellis
COPY --from=program --chown=65532:65532 /var/lib/ /var/lib/
ENV HOME=/var/lib/trellis XDG_STATE_HOME=/var/lib PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/trellis
VOLUME /var/lib/trellis
USER 65532:65532
ENTRYPOINT ["/usr/bin/trellis", "supernode"]
