# The gateway for a database of one's own: DATABASE_URL and GATEWAY_MASTER_KEY have to be set. The embedded
# Postgres is left out.

FROM --platform=$BUILDPLATFORM oven/bun:1.4.5-slim AS build
WORKDIR /app
COPY package.json bun.lock ./
# Named in package.json as patchedDependencies, so the installation needs them.
COPY db/patches db/patches
RUN bun install --frozen-lockfile
COPY CHANGELOG.md LICENSE README.md SECURITY.md gateway.config.schema.json tsconfig.json ./
COPY actors actors
COPY db db
COPY docs docs
COPY src src
RUN bun run build && cd dist/package && bun install --production --omit=optional --omit=peer

FROM oven/bun:1.4.5-slim
LABEL org.opencontainers.image.title="model-gateway" \
      org.opencontainers.image.description="One HTTP interface, in the conventions of OpenAI's API, in front of many AI providers" \
      org.opencontainers.image.version="1.0.0" \
      org.opencontainers.image.licenses="MIT"
WORKDIR /app
# What main.ts does not set itself: Bun reads the limit of outbound requests, and how much memory to
# reckon with, when it starts.
ENV NODE_ENV=production \
    HOST=0.0.0.0 \
    PORT=3000 \
    DATA_DIR=/data \
    BUN_CONFIG_MAX_HTTP_REQUESTS=65336 \
    BUN_JSC_forceRAMSize=2600000000
RUN mkdir /data && chown bun:bun /data && ln -s /app/src/main/bin/model-gateway.js /usr/local/bin/model-gateway
# The bundled programs, which run on any platform, and Pyodide.
COPY --from=build /app/dist/package ./
USER bun
VOLUME /data
EXPOSE 3000
# Alive, not ready: an outage of the database is no reason to kill it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["bun", "src/main/start/health-probe.js"]
ENTRYPOINT ["bun", "--no-env-file", "src/main.js"]
