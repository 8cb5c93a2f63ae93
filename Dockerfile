# The task server, `verge serve`, in a small image.
#
#   docker build --tag verge .
#   docker run --publish 11300:11300 --publish 11380:11380 --volume verge:/var/lib/verge verge
#
# Inside, the server listens on all addresses without TLS and tokens: publish the ports where only
# you can reach them, or give --tls-cert, --tls-key and --tokens instead of --insecure.
FROM debian:bookworm AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      g++ cmake ninja-build pkgconf libcli11-dev nlohmann-json3-dev libfmt-dev \
      libboost-dev librocksdb-dev libpq-dev libssl-dev \
 && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN cmake -S /source -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DVERGE_BUILD_TESTS=OFF \
      -DVERGE_BUILD_EXAMPLES=OFF \
 && cmake --build /build --target verge_tool \
 && install -D --strip /build/tools/verge /out/usr/bin/verge

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      librocksdb7.8 libpq5 libssl3 libfmt9 ca-certificates tzdata \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --home-dir /var/lib/verge --create-home --shell /usr/sbin/nologin verge \
 && chmod 0700 /var/lib/verge
COPY --from=build /out/ /
USER verge
VOLUME /var/lib/verge
EXPOSE 11300 11380
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["verge", "stats", "--at", "127.0.0.1:11300"]
ENTRYPOINT ["verge", "serve", "--data", "/var/lib/verge/tasks"]
CMD ["--listen", "0.0.0.0:11300", "--http", "0.0.0.0:11380", "--insecure", "--log", "text"]
