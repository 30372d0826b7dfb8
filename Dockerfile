# The gateway for a database of one's own: DATABASE_URL and GATEWAY_MASTER_KEY have to be set. The embedded
# Postgres is left out.

FROM oven/bun:1.4.5-slim AS dependencies
WORKDIR /app
COPY package.json bun.lock ./
# Named in package.json as patchedDependencies, so the installation needs them.
COPY db/patches db/patches
RUN bun install --frozen-lockfile --production --omit=optional

FROM oven/bun:1.4.5-slim
WORKDIR /app
# What main.ts does not set itself: Bun reads the limit of outbound requests, and how much memory to
# reckon with, when it starts.
ENV NODE_ENV=production \
    HOST=0.0.0.0 \
    PORT=3000 \
    DATA_DIR=/data \
    BUN_CONFIG_MAX_HTTP_REQUESTS=65336 \
    BUN_JSC_forceRAMSize=2600000000
COPY --from=dependencies /app/node_modules node_modules
COPY package.json tsconfig.json LICENSE ./
COPY actors actors
COPY db db
COPY src src
RUN mkdir /data && chown bun:bun /data
USER bun
VOLUME /data
EXPOSE 3000
# Alive, not ready: an outage of the database is no reason to kill it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["bun", "src/main/start/health-probe.ts"]
ENTRYPOINT ["bun", "--no-env-file", "src/main.ts"]
