import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  startTuningGateway,
  type TuningGateway,
  UPSTREAM_BASE,
} from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY, startReceiver } from "../webhooks/receiver.ts";

let gateway: TuningGateway;
const receiver = startReceiver();
beforeAll(async () => {
  gateway = await startTuningGateway({ environment: LOCAL_DELIVERY });
}, 60_000);
afterAll(async () => {
  await gateway.stop();
  await receiver.stop();
});

test("a webhook is told once how each job has ended, and nothing of one that was cancelled", async () => {
  const hook = await gateway.request(
    "POST",
    "/v1/webhooks",
    { url: receiver.url, events: ["fine_tuning.job.succeeded", "fine_tuning.job.failed"] },
    { key: gateway.managementKey },
  );
  expect(hook.status).toBe(201);
  const cancelled = await gateway.tune({ outcome: "cancelled" });
  await gateway.ended(cancelled.id);
  const succeeded = await gateway.tune();
  const { fine_tuned_model: model } = await gateway.ended(succeeded.id);
  const failed = await gateway.tune({ outcome: "failed" });
  await gateway.ended(failed.id);
  await until("both events have come", () => receiver.received.length >= 2, 20_000);
  expect(receiver.received.map(({ event }) => [event.type, event.data])).toEqual([
    [
      "fine_tuning.job.succeeded",
      { job_id: succeeded.id, model: UPSTREAM_BASE, fine_tuned_model: model, error: null },
    ],
    [
      "fine_tuning.job.failed",
      {
        job_id: failed.id,
        model: UPSTREAM_BASE,
        fine_tuned_model: null,
        error: { code: "exploded", message: "The training exploded.", param: null },
      },
    ],
  ]);
}, 60_000);
