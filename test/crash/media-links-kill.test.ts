import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type FilesProcess, prepareFilesProcess } from "../support/files-process.ts";
import { until } from "../support/until.ts";

const ROUNDS = 2;
const SENDERS = 6;
const PATIENCE_MS = 40_000;
/** 0.001 USD for one image, and the plan's fee. */
const ONE_NANO = 1_040_000;

describe.each(["disk", "s3"] as const)("kill -9 while images are stored on %s", (kind) => {
  let process: FilesProcess;
  beforeAll(async () => {
    process = await prepareFilesProcess(kind);
  });
  afterAll(() => process.stop());

  test("leaves each link that was received readable and charged, and nothing when its hour is over", async () => {
    const received: { requestId: string; path: string }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const { gateway, baseUrl } = await process.start();
      const before = received.length;
      let isKilled = false;
      const senders = Array.from({ length: SENDERS }, async (_, sender) => {
        while (!isKilled) {
          const image = await generate(baseUrl, process.secretKey, `${round} ${sender}`);
          if (image !== undefined) received.push(image);
        }
      });
      await until("links have come", () => received.length > before + 20, PATIENCE_MS);
      gateway.signal("SIGKILL");
      await gateway.exited;
      isKilled = true;
      await Promise.all(senders);
    }
    const { gateway, baseUrl } = await process.start();
    for (const { path } of received) {
      const answer = await fetch(baseUrl + path);
      expect(answer.status).toBe(200);
      expect((await answer.bytes()).subarray(1, 4)).toEqual(Buffer.from("PNG"));
    }
    expect(await unchargedOf(received.map(({ requestId }) => requestId))).toEqual([]);
    await process.sql`UPDATE media_links SET expires_at = clock_timestamp()`;
    for (const { path } of received.slice(0, 3)) {
      expect((await fetch(baseUrl + path)).status).toBe(404);
    }
    gateway.signal("SIGKILL");
    await gateway.exited;
    // The next one cleans at its start.
    await process.start();
    await until(
      "nothing is left",
      async () => {
        const [row] = await process.sql<{ left: number }[]>`
          SELECT (SELECT count(*)::int FROM media_links)
            + (SELECT count(*)::int FROM file_removals) AS left`;
        return row!.left === 0 && (await process.countStored()) === 0;
      },
      2 * PATIENCE_MS,
    );
  }, 240_000);

  async function unchargedOf(requestIds: readonly string[]): Promise<string[]> {
    const charged = await process.sql<{ request_id: string }[]>`
      SELECT request_id FROM transactions WHERE type = 'usage' AND amount_nano = ${-ONE_NANO}`;
    const ids = new Set(charged.map((row) => row.request_id));
    return requestIds.filter((id) => !ids.has(id));
  }
});

/** Undefined where the gateway died before its answer was whole. */
async function generate(baseUrl: string, key: string, prompt: string) {
  try {
    const response = await fetch(`${baseUrl}/v1/images/generations`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "sandbox/image", prompt, size: "64x64" }),
    });
    const { data } = (await response.json()) as { data?: { url: string }[] };
    if (data === undefined) return undefined;
    const requestId = response.headers.get("x-gateway-request-id")!;
    return { requestId, path: new URL(data[0]!.url).pathname };
  } catch {
    return undefined;
  }
}
