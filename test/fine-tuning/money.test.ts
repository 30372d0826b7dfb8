import { afterAll, beforeAll, expect, test } from "bun:test";
import { balanceAtRest } from "../../db/queries/database-server.ts";
import { uploaded } from "../support/files-gateway.ts";
import {
  lessonsText,
  startTuningGateway,
  TRAINING_USD,
  type TuningGateway,
} from "../support/tuning-gateway.ts";

let gateway: TuningGateway;
beforeAll(async () => {
  gateway = await startTuningGateway();
}, 60_000);
afterAll(() => gateway.stop());

const EPOCHS = 3;
const HELD_NANO = BigInt(Math.ceil(lessonsText().length * EPOCHS * TRAINING_USD * 1.04 * 1e9));

test("an organization is never promised more training than it can pay: of orders at once only as many are taken", async () => {
  const fits = 4;
  const rich = await gateway.addOrganization({
    creditUsd: (Number(HELD_NANO) * fits + Number(HELD_NANO) / 2) / 1e9,
  });
  const { id: file } = await uploaded(gateway, "fine-tune", lessonsText(), { key: rich.secretKey });
  const order = () =>
    gateway.tune({ outcome: "never" }, { training_file: file }, rich.secretKey).then(
      () => 200,
      (error: Error) => (JSON.parse(error.message) as { error: { code: string } }).error.code,
    );
  const outcomes = await Promise.all(Array.from({ length: 8 }, order));
  expect(outcomes.filter((outcome) => outcome === 200)).toHaveLength(fits);
  expect(new Set(outcomes)).toEqual(new Set([200, "insufficient_credits"]));

  // Nobody else may take it either, not even an operator while no gateway runs.
  const { id } = rich.organization;
  const free = (await gateway.sql.begin((sql) => balanceAtRest(sql, id)))!.unheldNano;
  expect(free).toBeLessThan(HELD_NANO);
  const [books] = await gateway.sql<{ balance: bigint; held: bigint }[]>`
    SELECT a.credit_nano - a.posted_nano AS balance, (SELECT sum(hold_nano)::bigint FROM holds
      WHERE org_account = a.id) AS held FROM accounts a WHERE a.id = ${`org:${id}`}`;
  expect(books!.held).toBe(HELD_NANO * BigInt(fits));
  expect(free).toBe(books!.balance - books!.held);

  const jobs = await gateway.request("GET", "/v1/fine_tuning/jobs", undefined, {
    key: rich.secretKey,
  });
  const { data } = (await jobs.json()) as { data: { id: string }[] };
  expect(data).toHaveLength(fits);
  for (const job of data) {
    const cancelled = await gateway.request(
      "POST",
      `/v1/fine_tuning/jobs/${job.id}/cancel`,
      undefined,
      { key: rich.secretKey },
    );
    expect(cancelled.status).toBe(200);
  }
  const rest = await gateway.sql.begin((sql) => balanceAtRest(sql, id));
  expect(rest!.unheldNano).toBe(books!.balance);
}, 60_000);

test("a key's budget bounds its trainings, and what was cancelled does not count", async () => {
  const created = await gateway.request(
    "POST",
    "/v1/keys",
    { name: "budgeted", daily_budget_usd: Number(HELD_NANO) / 1e9 },
    { key: gateway.managementKey },
  );
  const { key } = (await created.json()) as { key: string };
  const first = await gateway.tune({ outcome: "never" }, {}, key);
  const refused = await gateway.tune(undefined, {}, key).catch((error: Error) => error.message);
  expect(refused).toContain('"code":"budget_exhausted"');
  await gateway.request("POST", `/v1/fine_tuning/jobs/${first.id}/cancel`, undefined, { key });
  const second = await gateway.tune({ outcome: "never" }, {}, key);
  expect(second.status).toBe("queued");
}, 60_000);
