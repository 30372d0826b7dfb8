import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Cluster, type Instance, openCluster } from "../clustered/cluster.ts";
import { findTestRedis } from "../support/redis.ts";
import { IS_THOROUGH } from "../support/thorough.ts";
import type { HeavyLoad, HeavyRequest } from "./heavy-client.ts";

const MEBIBYTE = 1_048_576;
const SECONDS = IS_THOROUGH ? 20 : 3;
const BODY_BYTES = 31 * MEBIBYTE;
const BODIES_AT_A_TIME = 3;
const FILE_BYTES = (IS_THOROUGH ? 48 : 12) * MEBIBYTE;
const UPLOADS_AT_A_TIME = IS_THOROUGH ? 6 : 3;
const MAX_MEMORY_MEBIBYTES = 600;
/** What a link of 1 Gbit/s gives. */
const NETWORK_BYTES_PER_SECOND = 125_000_000;

interface LoadKind {
  readonly name: string;
  /** 0: as fast as the gateway takes it. */
  readonly bytesPerSecond: number;
  /** What another key's p99 may be: so many times its quiet value, and this. */
  readonly maxSlowdown: number;
  readonly toleranceMs: number;
}

/** The client, the database and both instances share the processors: this shows that no loop is held for seconds. */
const FLAT_OUT: LoadKind = {
  name: "flat out",
  bytesPerSecond: 0,
  maxSlowdown: 8,
  toleranceMs: 1_000,
};
/** The slowdown is the gateway's own here. The short run has too few calls to be so strict. */
const OVER_A_NETWORK: LoadKind = {
  name: "over a network",
  bytesPerSecond: NETWORK_BYTES_PER_SECOND,
  maxSlowdown: 3,
  toleranceMs: 10,
};
const LOADS = IS_THOROUGH ? [FLAT_OUT, OVER_A_NETWORK] : [FLAT_OUT];

const clusters: Cluster[] = [];
let folder: string | undefined;
afterAll(async () => {
  for (const cluster of clusters) await cluster.stop();
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
});

interface Probe {
  readonly calls: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly mostMs: number;
  readonly failures: Record<string, number>;
}

async function probe(baseUrl: string, key: string, seconds = SECONDS): Promise<Probe> {
  const script = join(import.meta.dir, "latency-probe.ts");
  const child = Bun.spawn([process.execPath, script, baseUrl, key, String(seconds)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  return JSON.parse(await new Response(child.stdout).text()) as Probe;
}

const memoryOf = ({ gateway }: Instance): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))![1]) / 1_024;

/** What counts as the most work for its bytes, within all bounds but that of members. */
function members(): Buffer {
  const text = Array.from(
    { length: BODY_BYTES / 16 },
    (_, n) => `"k${n.toString().padStart(8, "0")}":1`,
  ).join(",");
  return Buffer.from(
    `{"model":"sandbox/chat","messages":[{"role":"user","content":"hi"}],"x":{${text}}}`,
  );
}

const BOUNDARY = "boundary";

/** A form with lines of half a megabyte, with as many small members as they hold. */
function upload(): Buffer {
  const padding = Array.from({ length: 35_000 }, (_, n) => `"p${n}":${n}`).join(",");
  const line = `{"messages":[{"role":"user","content":"hi"}],"x":{${padding}}}\n`;
  const part = `--${BOUNDARY}\r\ncontent-disposition: form-data; name=`;
  return Buffer.from(
    `${part}"purpose"\r\n\r\nfine-tune\r\n${part}"file"; filename="lessons.jsonl"\r\n\r\n` +
      `${line.repeat(Math.ceil(FILE_BYTES / line.length))}\r\n--${BOUNDARY}--\r\n`,
  );
}

/** Sends the load until the returned function is called, which resolves with how often each outcome came. */
function begin(load: HeavyLoad): () => Promise<Record<string, number>> {
  const client = Bun.spawn([process.execPath, join(import.meta.dir, "heavy-client.ts")], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  client.stdin.write(`${JSON.stringify(load)}\n`);
  client.stdin.flush();
  return async () => {
    client.stdin.end();
    return JSON.parse(await new Response(client.stdout).text()) as Record<string, number>;
  };
}

const redis = await findTestRedis();

test.skipIf(redis === undefined)(
  `bodies of 31 MB of a key without budget, and uploads of JSON lines, leave two instances alive and another key served`,
  async () => {
    const cluster = await openCluster(redis!.url);
    clusters.push(cluster);
    const instances = [await cluster.start(), await cluster.start()] as const;
    const [one] = instances;
    const spent = await createKey(cluster, one, { name: "spent", daily_budget_usd: 0 });
    folder = mkdtempSync(join(tmpdir(), "gateway-large-bodies-"));
    const requests = requestsTo(instances, { spent, secret: cluster.secretKey }, folder);

    // What is compiled and loaded with the first requests is no part of the quiet value.
    await probe(one.baseUrl, cluster.secretKey, 1);
    const quiet = await probe(one.baseUrl, cluster.secretKey);
    expect(quiet.failures).toEqual({});
    for (const { name, bytesPerSecond, maxSlowdown, toleranceMs } of LOADS) {
      let mostMebibytes = 0;
      const end = begin({ requests, bytesPerSecond });
      const measuring = setInterval(() => {
        for (const instance of instances)
          mostMebibytes = Math.max(mostMebibytes, memoryOf(instance));
      }, 100);
      const loaded = await probe(one.baseUrl, cluster.secretKey);
      const outcomes = await end();
      clearInterval(measuring);

      console.log(JSON.stringify({ name, quiet, loaded, mostMebibytes, outcomes }));
      expect(loaded.failures).toEqual({});
      for (const { gateway, baseUrl } of instances) {
        expect(gateway.stderr()).toBe("");
        expect((await fetch(`${baseUrl}/readyz`)).status).toBe(200);
      }
      expect(outcomes["body 200"]).toBeUndefined();
      expect(outcomes["body 402"]).toBeGreaterThan(0);
      expect(Object.keys(outcomes).filter((outcome) => outcome.startsWith("upload"))).toEqual([
        "upload 200",
      ]);
      expect(loaded.p99Ms).toBeLessThan(quiet.p99Ms * maxSlowdown + toleranceMs);
      expect(mostMebibytes).toBeLessThan(MAX_MEMORY_MEBIBYTES);
    }
  },
  LOADS.length * (SECONDS * 6_000 + 60_000),
);

/** Bodies go to both instances in turn, uploads to the first one. */
function requestsTo(
  [one, other]: readonly [Instance, Instance],
  keys: { readonly spent: string; readonly secret: string },
  bodies: string,
): HeavyRequest[] {
  const membersPath = join(bodies, "members.json");
  const uploadPath = join(bodies, "upload.form");
  writeFileSync(membersPath, members());
  writeFileSync(uploadPath, upload());
  const body = ({ baseUrl }: Instance, atATime: number): HeavyRequest => ({
    kind: "body",
    url: `${baseUrl}/v1/chat/completions`,
    key: keys.spent,
    contentType: "application/json",
    bodyPath: membersPath,
    atATime,
  });
  return [
    body(one, BODIES_AT_A_TIME - 1),
    body(other, 1),
    {
      kind: "upload",
      url: `${one.baseUrl}/v1/files`,
      key: keys.secret,
      contentType: `multipart/form-data; boundary=${BOUNDARY}`,
      bodyPath: uploadPath,
      atATime: UPLOADS_AT_A_TIME,
    },
  ];
}

async function createKey(cluster: Cluster, { baseUrl }: Instance, settings: object) {
  const response = await fetch(`${baseUrl}/v1/keys`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${cluster.managementKey}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(settings),
  });
  expect(response.status).toBe(201);
  return ((await response.json()) as { key: string }).key;
}
