import "../support/preload.ts";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { brokenRules, orphanAttempts } from "../crash/books.ts";
import { signIn } from "../support/dashboard-session.ts";
import { startOtlpCollector } from "../support/otlp-collector.ts";
import { RedisServer } from "../support/redis-server.ts";
import { prepareDatabase } from "./bench-database.ts";
import { startServer } from "./children.ts";
import { Cleanups } from "./cleanups.ts";
import { median } from "./compare.ts";
import { type GatewayProcess, startGateway } from "./gateway-process.ts";
import { SOAK_CALLS, type SoakCall, type SoakTarget } from "./soak-calls.ts";
import { readTableSizes, type Sample, type TableSize, takeSample } from "./soak-samples.ts";

/*
 * Two gateways over Postgres and Redis with everything on, called in every way at a steady rate, and what of
 * them grows:
 *
 *   bun test/bench/soak.ts [minutes, 60 by default] [calls a second, 20 by default]
 *
 * The first sixth of the time is left out of the figures.
 */

const MINUTES = Number(process.argv[2] ?? 60);
const CALLS_PER_SECOND = Number(process.argv[3] ?? 20);
const SAMPLE_MS = 15_000;
const TABLES_MS = 300_000;
const DRAIN_MS = 60_000;
const MAX_SHOWN_FAULTS = 20;
const MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
const INSTANCES = 2;

const cleanups = new Cleanups();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => void cleanups.run().then(() => process.exit(1)));
}

const keys = { secret: generateApiKey("secret").key, management: generateApiKey("management").key };
const counts = new Map<string, { good: number; wrong: number; longestMs: number }>();
const faults: string[] = [];
let deliveries = 0;

try {
  await soak();
} finally {
  await cleanups.run();
}

async function soak(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-soak-"));
  cleanups.add(() => rmSync(folder, { recursive: true, force: true }));
  const redisBinary = Bun.which("redis-server");
  if (redisBinary === null) throw new Error("there is no redis-server on the PATH");
  const redisServer = await RedisServer.start(redisBinary);
  cleanups.add(() => redisServer.kill());
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "server"), log: () => {} });
  cleanups.add(() => server.stop());
  const database = await prepareDatabase(server.url, folder);
  const upstream = await startServer("upstream.ts", cleanups);
  const collector = startOtlpCollector();
  cleanups.add(() => collector.stop());
  // The collector keeps what it gets, which is not what is watched here.
  const forgetting = setInterval(() => {
    collector.spans.length = 0;
    collector.requests.length = 0;
  }, SAMPLE_MS);
  cleanups.add(() => clearInterval(forgetting));
  const receiver = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch() {
      deliveries++;
      return new Response();
    },
  });
  cleanups.add(() => receiver.stop(true));

  const gateways: GatewayProcess[] = [];
  for (let index = 0; index < INSTANCES; index++) {
    const gateway = await startGateway(
      {
        folder,
        upstreamPort: upstream.port,
        databaseUrl: database.url,
        logPath: undefined,
        profileDir: undefined,
        settings: {
          REDIS_URL: redisServer.url,
          GATEWAY_MASTER_KEY: MASTER_KEY,
          GATEWAY_SECRET_KEY: keys.secret,
          GATEWAY_MANAGEMENT_KEY: keys.management,
          GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
          GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
          GATEWAY_COMPLETION_SUCCESS_SAMPLE: "1",
          GATEWAY_VECTOR_STORE_MODEL: "sandbox/embed",
          OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
          OTEL_TRACES_SAMPLER_ARG: "0.1",
          LOG_LEVEL: "warn",
        },
      },
      cleanups,
    );
    gateways.push(gateway);
  }
  const sql = database.connect();
  cleanups.add(() => sql.end({ timeout: 1 }));
  const redis = new Redis(redisServer.url);
  cleanups.add(() => redis.disconnect());

  let turn = 0;
  const target: SoakTarget = {
    secretKey: keys.secret,
    managementKey: keys.management,
    baseUrl: () => gateways[turn++ % gateways.length]!.baseUrl,
  };
  await prepareOrganization(target, receiver.port!);
  const dashboard = watchDashboard(gateways[0]!.baseUrl);
  cleanups.add(() => dashboard.stop());

  const watched = { gatewayPids: gateways.map(({ pid }) => pid), sql, redis };
  const samples: { readonly atMinute: number; readonly sample: Sample }[] = [];
  const tables: { readonly atMinute: number; readonly sizes: TableSize[] }[] = [];
  const startedMs = performance.now();
  const minute = () => (performance.now() - startedMs) / 60_000;
  const endMs = startedMs + MINUTES * 60_000;
  const running = new Set<Promise<void>>();
  let [nextSampleMs, nextTablesMs, nextCallMs] = [startedMs, startedMs, startedMs];
  while (performance.now() < endMs) {
    const nowMs = performance.now();
    if (nowMs >= nextCallMs) {
      const call = runCall(chooseCall(), target).finally(() => running.delete(call));
      running.add(call);
      // Arrivals without memory, as those of many callers are.
      nextCallMs += (-Math.log(1 - Math.random()) / CALLS_PER_SECOND) * 1_000;
    }
    if (nowMs >= nextSampleMs) {
      nextSampleMs += SAMPLE_MS;
      samples.push({ atMinute: minute(), sample: await takeSample(watched) });
    }
    if (nowMs >= nextTablesMs) {
      nextTablesMs += TABLES_MS;
      tables.push({ atMinute: minute(), sizes: await readTableSizes(sql) });
      say(`minute ${minute().toFixed(0)}: ${totals()}, ${running.size} running`);
    }
    await Bun.sleep(Math.max(1, Math.min(nextCallMs, nextSampleMs) - performance.now()));
  }
  await Promise.race([Promise.all(running), Bun.sleep(DRAIN_MS)]);
  tables.push({ atMinute: minute(), sizes: await readTableSizes(sql) });
  dashboard.stop();
  report(samples, tables);
  say(`dashboard: ${dashboard.events()} events; deliveries: ${deliveries}`);
  for (const { baseUrl } of gateways) {
    const lag = await (await fetch(`${baseUrl}/metrics`)).text();
    say(lag.match(/^gateway_event_loop_lag.*$/m)?.[0] ?? "no event loop lag in /metrics");
  }
  const findings = await brokenRules(sql);
  say(`broken rules of the ledger: ${findings.length === 0 ? "none" : findings.join("\n  ")}`);
  say(`attempts without an instance: ${await orphanAttempts(sql)}; unfinished: ${running.size}`);
  for (const fault of faults) say(`  ${fault}`);
}

async function prepareOrganization({ baseUrl }: SoakTarget, receiverPort: number): Promise<void> {
  const post = async (path: string, body: unknown) => {
    const response = await fetch(`${baseUrl()}/v1/${path}`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${keys.management}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  };
  await post("guardrails", {
    name: "soak",
    rules: [{ type: "pii", on: ["input", "output"], action: "redact" }],
  });
  await post("webhooks", {
    url: `http://127.0.0.1:${receiverPort}/events`,
    events: ["completion.success", "completion.error", "key.created", "key.deleted"],
  });
  await post("budgets", { subject: { type: "tag", value: "soak" }, daily_budget_usd: 1_000 });
}

/** An open page, whose session is renewed before it ends. */
function watchDashboard(baseUrl: string) {
  const controller = new AbortController();
  let events = 0;
  const run = async () => {
    while (!controller.signal.aborted) {
      const { cookie, csrfToken } = await signIn({ baseUrl }, keys.management);
      const headers = { cookie, "x-csrf-token": csrfToken, "sec-fetch-site": "same-origin" };
      const signal = AbortSignal.any([controller.signal, AbortSignal.timeout(1_800_000)]);
      const live = await fetch(`${baseUrl}/dashboard/api/events`, { headers, signal });
      for await (const part of live.body!) {
        events +=
          Buffer.from(part)
            .toString()
            .match(/^event: changed/gm)?.length ?? 0;
      }
    }
  };
  const follow = async () => {
    while (!controller.signal.aborted) {
      await run().catch(() => Bun.sleep(1_000));
    }
  };
  void follow();
  return { events: () => events, stop: () => controller.abort() };
}

function chooseCall(): SoakCall {
  let at = Math.random() * SOAK_CALLS.reduce((sum, { weight }) => sum + weight, 0);
  for (const call of SOAK_CALLS) {
    at -= call.weight;
    if (at < 0) return call;
  }
  return SOAK_CALLS[0]!;
}

async function runCall(call: SoakCall, target: SoakTarget): Promise<void> {
  const count = counts.get(call.name) ?? { good: 0, wrong: 0, longestMs: 0 };
  counts.set(call.name, count);
  const startedMs = performance.now();
  try {
    await call.run(target);
    count.good++;
  } catch (error) {
    count.wrong++;
    if (faults.length < MAX_SHOWN_FAULTS) faults.push(`${call.name}: ${error}`);
  }
  count.longestMs = Math.max(count.longestMs, performance.now() - startedMs);
}

function totals(): string {
  const all = [...counts.values()];
  const sum = (field: "good" | "wrong") => all.reduce((total, count) => total + count[field], 0);
  return `${sum("good")} good, ${sum("wrong")} wrong`;
}

function report(
  samples: readonly { readonly atMinute: number; readonly sample: Sample }[],
  tables: readonly { readonly atMinute: number; readonly sizes: readonly TableSize[] }[],
): void {
  say(totals());
  for (const [name, { good, wrong, longestMs }] of counts) {
    say(`  ${name}: ${good} good, ${wrong} wrong, longest ${(longestMs / 1_000).toFixed(1)} s`);
  }
  const settledSamples = samples.filter(({ atMinute }) => atMinute >= MINUTES / 6);
  say("medians of five equal parts of the time after the first sixth");
  for (const name of samples[0]?.sample.keys() ?? []) {
    const parts = Array.from({ length: 5 }, (_, part) =>
      settledSamples
        .filter((_, index) => Math.floor((index * 5) / settledSamples.length) === part)
        .map(({ sample }) => sample.get(name)!),
    );
    say(`  ${name}: ${parts.map((part) => round(median(part))).join("  ")}`);
  }
  say(`tables at minutes ${tables.map(({ atMinute }) => atMinute.toFixed(0)).join(", ")}`);
  const last = tables.at(-1)!.sizes;
  for (const { name } of last.toSorted((one, other) => other.bytes - one.bytes)) {
    const found = tables.map(({ sizes }) => sizes.find((size) => size.name === name)!);
    const sizes = found.map(({ bytes, rows }) => `${Math.round(bytes / 1024)}/${rows}`);
    say(`  ${name} (KB/rows): ${sizes.join("  ")}`);
  }
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function say(line: string): void {
  console.log(line);
}
