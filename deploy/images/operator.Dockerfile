# Build from the root of the repository: buildah build -f deploy/images/operator.Dockerfile -t trellis-operator .
# Without a registry, from a program that is already built: deploy/images/build.sh operator
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
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/usr/bin/trellis", "operator", "run"]
