import { afterAll, beforeAll, expect, test } from "bun:test";
import { startFilesGateway, uploaded } from "../support/files-gateway.ts";
import type { TestGateway } from "../support/gateway.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";
import { SANDBOX_BASE } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

/** Contract, section 4. */
const MAX_HOLD_MS = 50;
const MEMBERS = 199_900;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
}, 60_000);
afterAll(() => gateway.stop());

const list = (length: number, of: (n: number) => string) =>
  Array.from({ length }, (_, n) => of(n)).join(",");
const LESSON = '{"role":"user","content":"q"},{"role":"assistant","content":"a"}';

/** What takes most time for its bytes. */
const LINES: Readonly<Record<string, () => string>> = {
  members: () => `{"messages":[${LESSON}],"x":{${list(MEMBERS, (n) => `"k${n}":1`)}}}`,
  messages: () => `{"messages":[${list(MEMBERS / 6 - 10, () => LESSON)}]}`,
  elements: () => `{"messages":[${LESSON}],"x":[${list(999_000, () => "1")}]}`,
};

async function ended(id: string): Promise<{ status: string; error: { code: string } | null }> {
  return until(
    "the job ends",
    async () => {
      const response = await gateway.request("GET", `/v1/fine_tuning/jobs/${id}`);
      const job = (await response.json()) as {
        status: string;
        finished_at: string | null;
        error: { code: string } | null;
      };
      return job.finished_at === null ? undefined : job;
    },
    30_000,
  );
}

async function train(file: string): Promise<string> {
  const order = { model: SANDBOX_BASE, training_file: file };
  const response = await gateway.request("POST", "/v1/fine_tuning/jobs", order);
  const job = (await response.json()) as { id: string };
  expect([response.status, job]).toEqual([200, expect.any(Object)]);
  return job.id;
}

test.each(Object.keys(LINES))(
  "a training line of many %s does not hold the event loop longer than a moment",
  async (name) => {
    // The code is there with the first job.
    const short = (await uploaded(gateway, "fine-tune", `{"messages":[${LESSON}]}\n`)).id;
    expect(await ended(await train(short))).toMatchObject({ status: "succeeded" });
    const { id: file } = await uploaded(gateway, "fine-tune", `${LINES[name]!()}\n`);
    const holdMs = await shortestHoldMs(MAX_HOLD_MS, async () => {
      const hold = measureLoopHold();
      const job = await ended(await train(file));
      expect(["succeeded", "failed"]).toContain(job.status);
      return hold.stop();
    });
    console.log(`${name}: ${holdMs.toFixed(1)} ms`);
    expect(holdMs).toBeLessThan(MAX_HOLD_MS);
  },
  60_000,
);
