import { afterAll, beforeAll, expect, test } from "bun:test";
import { afterTrigger } from "../../actors/fine-tuning-job/state.ts";
import { claimLeases, guardLease, LeaseLostError } from "../../db/queries/actor-leases.ts";
import {
  FINE_TUNING_JOB,
  JobMovedError,
  loadJob,
  writeJobEffect,
} from "../../db/queries/fine-tuning-jobs.ts";
import { expectError } from "../support/error-envelope.ts";
import { uploaded } from "../support/files-gateway.ts";
import {
  lessonsText,
  startTuningGateway,
  type TuningGateway,
  UPSTREAM_BASE,
} from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

let gateway: TuningGateway;
beforeAll(async () => {
  gateway = await startTuningGateway();
}, 60_000);
afterAll(() => gateway.stop());

/** A job that runs as far as its row tells, and that nobody does anything about. */
async function restingJob(): Promise<string> {
  const { id } = await gateway.tune();
  await gateway.ended(id);
  await until("nobody owns it", async () => {
    await gateway.hurry(id);
    const owned = await gateway.sql`SELECT 1 FROM owned_actors WHERE id = ${id}`;
    const [row] = await gateway.sql`SELECT due_at FROM fine_tuning_jobs WHERE id = ${id}`;
    return owned.length === 0 && row!.due_at === null;
  });
  await gateway.sql`UPDATE fine_tuning_jobs SET status = 'running', finished_at = NULL
    WHERE id = ${id}`;
  return id;
}

test("of two writes that were decided on one state of a job, one is refused whole", async () => {
  const id = await restingJob();
  const before = (await loadJob(id).run(gateway.sql))!;
  const observed = { kind: "observed", estimatedFinishMs: null } as const;
  const write = () =>
    writeJobEffect({
      before,
      after: afterTrigger(before, observed, Date.now())!,
      dueInMs: null,
      events: [{ level: "info", message: "x", type: "message", data: {}, providerEvent: null }],
    });
  const outcomes = await Promise.allSettled(
    [write(), write(), write()].map((effect) => gateway.sql.begin((sql) => effect.run(sql))),
  );
  const refused = outcomes.filter((outcome) => outcome.status === "rejected");
  expect(refused.map(({ reason }) => reason instanceof JobMovedError)).toEqual([true, true]);
  const after = (await loadJob(id).run(gateway.sql))!;
  expect([after.version, after.eventCount]).toEqual([before.version + 1n, before.eventCount + 1]);
});

test("of orders that come at once no more are taken than jobs may run at a time, and the others hold nothing", async () => {
  const { organization, secretKey: key } = await gateway.addOrganization({ creditUsd: 100 });
  const { id: file } = await uploaded(gateway, "fine-tune", lessonsText(), { key });
  gateway.upstream.tuning.plan("endless", { outcome: "never" });
  const body = { model: UPSTREAM_BASE, training_file: file, suffix: "endless" };
  const orders = Array.from({ length: 40 }, async () => {
    const response = await gateway.request("POST", "/v1/fine_tuning/jobs", body, { key });
    if (response.status === 200) return ((await response.json()) as { id: string }).id;
    await expectError(response, 403, "quota_exceeded");
    return undefined;
  });
  const ids = (await Promise.all(orders)).filter((id) => id !== undefined);
  expect(ids).toHaveLength(25);
  const [{ held }] = (await gateway.sql`SELECT count(*) AS held FROM holds
    WHERE org_account = ${`org:${organization.id}`}`) as never as [{ held: bigint }];
  expect(held).toBe(25n);
  for (const id of ids) {
    await gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`, undefined, { key });
  }
});

test("a file that is deleted in the moment of the order refuses it by its own name, and nothing is held", async () => {
  const file = () => uploaded(gateway, "fine-tune", lessonsText());
  for (const gone of ["training_file", "validation_file"] as const) {
    const files = { training_file: (await file()).id, validation_file: (await file()).id };
    let ordered: Promise<Response> | undefined;
    await gateway.sql.begin(async (sql) => {
      await sql`DELETE FROM files WHERE id = ${files[gone]}`;
      ordered = gateway.request("POST", "/v1/fine_tuning/jobs", { model: UPSTREAM_BASE, ...files });
      await until("the order waits for the deletion", async () => {
        const waiting = await gateway.sql`SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return waiting.length > 0;
      });
    });
    const { error } = await expectError(await ordered!, 400, "invalid_body");
    expect(error.param).toBe(gone);
    const [{ jobs, held }] = (await gateway.sql`SELECT
      (SELECT count(*) FROM fine_tuning_jobs WHERE training_file = ${files.training_file}) AS jobs,
      (SELECT count(*) FROM holds) AS held`) as never as [{ jobs: bigint; held: bigint }];
    expect({ jobs, held }).toEqual({ jobs: 0n, held: 0n });
  }
});

test("nothing is written under a lease that has passed on", async () => {
  const id = await restingJob();
  const [instance] = await gateway.sql<{ id: string; epoch: bigint }[]>`
    SELECT id, epoch FROM instances WHERE alive`;
  const claim = () => claimLeases(gateway.sql, instance!, FINE_TUNING_JOB, [id], true);
  const [first] = await claim();
  await claim();
  const before = (await loadJob(id).run(gateway.sql))!;
  const after = afterTrigger(before, { kind: "cancel" }, Date.now())!;
  const late = writeJobEffect({ before, after, dueInMs: 0, events: [] }, (sql) =>
    guardLease(sql, first!, instance!),
  );
  const outcome = gateway.sql.begin((sql) => late.run(sql)).catch((error: unknown) => error);
  expect(await outcome).toBeInstanceOf(LeaseLostError);
  expect((await gateway.job(id)).status).toBe("running");
});

test("jobs that are cancelled in the moment in which they succeed end one way, with all that belongs to it", async () => {
  const ids: string[] = [];
  for (let n = 0; n < 12; n++) {
    const { id } = await gateway.tune({ waitingReads: 0, runningReads: 1, trainedTokens: 100 });
    ids.push(id);
    // Spread over the few steps that are left.
    setTimeout(() => void gateway.hurry(id), n % 4);
    const cancel = gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`);
    const again = gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`);
    const statuses = [(await cancel).status, (await again).status].sort();
    expect([
      [200, 409],
      [409, 409],
    ]).toContainEqual(statuses);
  }
  for (const id of ids) {
    const job = await gateway.ended(id);
    const hasSucceeded = job.status === "succeeded";
    const count = async (rows: PromiseLike<readonly unknown[]>) => (await rows).length;
    const charges = gateway.sql`SELECT 1 FROM transactions t
      JOIN fine_tuning_jobs j ON j.request_id = t.request_id WHERE j.id = ${id}`;
    const events = gateway.sql`SELECT 1 FROM outbox WHERE data->>'job_id' = ${id}`;
    const models = gateway.sql`SELECT 1 FROM tuned_models WHERE job_id = ${id}`;
    const expected = hasSucceeded ? 1 : 0;
    expect([job.status, await count(charges), await count(events), await count(models)]).toEqual([
      hasSucceeded ? "succeeded" : "cancelled",
      expected,
      expected,
      expected,
    ]);
  }
  await until("no money is held", async () => {
    const held = await gateway.sql`SELECT h.id FROM holds h
      JOIN fine_tuning_jobs j ON j.request_id = h.id WHERE j.finished_at IS NOT NULL`;
    return held.length === 0;
  });
}, 60_000);
