# Build from the root of the repository: buildah build -f deploy/images/superlink.Dockerfile -t trellis-superlink .
# Without a registry, from a program that is already built: deploy/images/build.sh superlink
# RUST is a Debian with Rust, gcc and g++.
ARG RUST=rust:1-bookworm
FROM ${RUST} AS build
WORKDIR /src
COPY . .
RUN target=$(rustc -vV | sed -n 's/^host: //p') \
 && RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release --package trellis --target "$target" \
 && strip -o /trellis "target/$target/release/trellis" \
 && deploy/images/tree.sh /trellis /tree /etc/ssl/certs/ca-certificates.crt

FROM scratch
COPY --from=build /tree/root/ /
COPY --from=build --chown=65532:65532 /tree/state/ /var/lib/
# State is in /var/lib/trellis/superlink, unless --state-dir says otherwise. Nothing else of the root is written.
ENV PATH=/usr/bin HOME=/var/lib/trellis XDG_STATE_HOME=/var/lib
WORKDIR /var/lib/trellis
VOLUME /var/lib/trellis
USER 65532:65532
ENTRYPOINT ["/usr/bin/trellis", "superlink"]
