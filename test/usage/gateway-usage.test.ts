import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { addUsageToGateway, rollUpUsage } from "../../db/queries/usage-roll-up.ts";
import { nanoFromUsd } from "../../src/lib/money.ts";
import { PLANS, planOf } from "../../src/lib/plans.ts";
import { openTestDatabase } from "../support/database.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";
import { usageFaults } from "../support/usage-faults.ts";

let gateway: TestGateway;
let operatorKey: string;
const organizations: string[] = [];
beforeAll(async () => {
  gateway = await startTestGateway();
  operatorKey = await addOperator(gateway);
  for (let count = 0; count < 3; count++) {
    const { organization } = await gateway.addOrganization({ creditUsd: 0 });
    organizations.push(organization.id);
    await charge(gateway.sql, organization.id, { from: 1, count: 90 * (count + 1) });
  }
  await until("all charges are added", async () => {
    const { is_complete } = (await (await ask("")).json()) as { is_complete: boolean };
    return is_complete;
  });
});
afterAll(() => gateway.stop());

const FIRST_DAY = "2026-03-30";

interface Charges {
  readonly from: number;
  readonly count: number;
  /** False for charges as version 1.0 wrote them. */
  readonly hasFees?: boolean;
}

/** Charges of three days in two months with fees of any size, of which every tenth is given back. */
async function charge(
  sql: Database,
  organizationId: string,
  { from, count, hasFees = true }: Charges,
): Promise<void> {
  await sql`
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description,
      key_id, request_id, refunded_request_id, model, provider, status, prompt_tokens, latency_ms, fee_nano,
      created_at)
    SELECT ${organizationId}, i, ${organizationId} || i, CASE WHEN is_refund THEN 'refund' ELSE 'usage' END,
      CASE WHEN is_refund THEN (i - 5) * 1003 ELSE -i * 1003 END, 0, '', 'key_' || i % 3,
      CASE WHEN NOT is_refund THEN ${organizationId} || '_' || i END,
      CASE WHEN is_refund THEN ${organizationId} || '_' || i - 5 END, 'test/' || i % 4, 'provider_' || i % 2,
      200, i, i * 10, CASE WHEN NOT is_refund AND ${hasFees} THEN i * 31 % 977 END,
      ${FIRST_DAY}::date + i * 17 % 4320 * interval '1 minute'
    FROM (SELECT i, i % 10 = 0 AS is_refund
      FROM generate_series(${from}::bigint, ${from + count - 1}::bigint) i) numbered`;
}

type Row = Record<string, string>;

async function ask(query: string, key = operatorKey): Promise<Response> {
  return gateway.request("GET", `/v1/admin/usage?${query}`, undefined, { key });
}

/** Returns the rows as CSV states them: to the nano-USD. */
async function rowsOf(query: string): Promise<Row[]> {
  const response = await ask(`${query}&format=csv&limit=1000`);
  expect(response.headers.get("x-gateway-has-more")).toBe("false");
  const [head, ...lines] = (await response.text()).trimEnd().split("\r\n");
  const columns = head!.split(",");
  return lines.map((line) => Object.fromEntries(line.split(",").map((c, at) => [columns[at]!, c])));
}

function sumOf(rows: readonly Row[], amount: string): bigint {
  return rows.reduce((sum, row) => sum + nanoFromUsd(row[amount]!), 0n);
}

interface Sums {
  readonly id: string;
  readonly cost: string;
  readonly fee: string;
  readonly provider_cost: string;
}

/** What the ledger says, by organization. */
function ledgerSums(): Promise<Sums[]> {
  return gateway.sql<Sums[]>`
    SELECT organization_id AS id, sum(cost)::text AS cost, sum(fee)::text AS fee,
      sum(provider)::text AS provider_cost
    FROM (
      SELECT organization_id, -amount_nano AS cost, fee_nano AS fee, -amount_nano - fee_nano AS provider
      FROM transactions WHERE type = 'usage'
      UNION ALL
      SELECT r.organization_id, -r.amount_nano, -c.fee_nano, 0
      FROM transactions r JOIN transactions c ON c.request_id = r.refunded_request_id
    ) entries GROUP BY 1 ORDER BY organization_id COLLATE "C"`;
}

describe("usage of all organizations", () => {
  test("has the cost, the fees and the provider cost of the ledger to the nano-USD, by organization", async () => {
    const ledger = await ledgerSums();
    expect(ledger).toHaveLength(3);
    for (const interval of ["hour", "day", "month"]) {
      const rows = await rowsOf(`group_by=organization&interval=${interval}`);
      for (const { id, cost, fee, provider_cost } of ledger) {
        const own = rows.filter((row) => row.organization_id === id);
        expect([interval, sumOf(own, "cost_usd")]).toEqual([interval, BigInt(cost)]);
        expect(sumOf(own, "fee_usd")).toBe(BigInt(fee));
        expect(sumOf(own, "provider_cost_usd")).toBe(BigInt(provider_cost));
        expect(new Set(own.map((row) => row.organization_name)).size).toBe(1);
        expect(own[0]!.organization_name).toStartWith("Organization ");
      }
    }
    expect(await usageFaults(gateway.sql)).toEqual([]);
  });

  test("has the same sums however it is grouped and filtered", async () => {
    const all = await rowsOf("");
    for (const groups of [
      ...["organization", "model", "provider", "model,provider", "organization,model"],
      "organization,provider,model",
    ]) {
      const rows = await rowsOf(`group_by=${groups}`);
      expect(rows.length).toBeGreaterThan(all.length);
      for (const amount of ["cost_usd", "fee_usd", "provider_cost_usd"]) {
        expect([groups, sumOf(rows, amount)]).toEqual([groups, sumOf(all, amount)]);
      }
    }
    const parts = await Promise.all(
      ["provider_0", "provider_1"].map((provider) => rowsOf(`provider=${provider}`)),
    );
    expect(sumOf(parts.flat(), "fee_usd")).toBe(sumOf(all, "fee_usd"));
    const ofOne = await rowsOf(`organization_id=${organizations[1]}&model=test/1`);
    const detailed = await rowsOf(`group_by=organization,model`);
    const same = detailed.filter(
      (row) => row.organization_id === organizations[1] && row.model === "test/1",
    );
    expect(ofOne.map((row) => row.cost_usd)).toEqual(same.map((row) => row.cost_usd!));
  });

  test("ranks the names of one group, and sums the others", async () => {
    const ranked = async (group: string) => {
      const response = await ask(
        `group_by=${group}&top=1&interval=month&start_date=2026-03-01&end_date=2026-05-01`,
      );
      return ((await response.json()) as { data: Record<string, unknown>[] }).data;
    };
    const rows = await ranked("organization");
    const [largest] = await gateway.sql<{ id: string }[]>`
      SELECT organization_id AS id FROM usage_totals WHERE kind = 'day'
      GROUP BY 1 ORDER BY sum(cost_nano) DESC LIMIT 1`;
    expect(rows.map(({ organization_id: id, is_rest: isRest }) => [id, isRest])).toEqual([
      ...[[largest!.id, false] as unknown[], [null, true]],
      ...[[largest!.id, false] as unknown[], [null, true]],
    ]);
    expect(rows[0]!.organization_name).toStartWith("Organization ");
    const cost = rows.reduce((sum, row) => sum + nanoFromUsd(row.cost_usd as number), 0n);
    expect(cost).toBe(sumOf(await rowsOf(""), "cost_usd"));
    expect(await ranked("model")).toHaveLength(4);
    expect(
      (await ask("group_by=organization,model&top=3&start_date=2026-03-01&end_date=2026-05-01"))
        .status,
    ).toBe(400);
  });

  test("groups by key, user and tag within one organization only", async () => {
    const id = organizations[2]!;
    const rows = await rowsOf(`organization_id=${id}&group_by=organization,key`);
    expect(rows[0]).toMatchObject({ organization_id: id, key_id: "key_0" });
    const all = await rowsOf(`organization_id=${id}`);
    for (const amount of ["cost_usd", "fee_usd", "provider_cost_usd"]) {
      expect(sumOf(rows, amount)).toBe(sumOf(all, amount));
      const byUser = await rowsOf(`organization_id=${id}&group_by=user`);
      expect(sumOf(byUser, amount)).toBe(sumOf(all, amount));
      const ofProvider = await rowsOf(`organization_id=${id}&group_by=key&provider=provider_1`);
      expect(sumOf(ofProvider, amount)).toBe(
        sumOf(await rowsOf(`organization_id=${id}&provider=provider_1`), amount),
      );
    }
    for (const wrong of ["group_by=key", "key_id=key_1", "group_by=organization,user"]) {
      const response = await ask(wrong);
      expect([wrong, response.status]).toEqual([wrong, 400]);
      expect(await response.text()).toContain("organization_id");
    }
    expect((await ask("organization_id=org_none")).status).toBe(404);
    expect((await ask("group_by=organisation")).status).toBe(400);
  });

  test("selects times, and pages", async () => {
    const [first, ...others] = await rowsOf("start_date=2026-03-30&end_date=2026-03-31");
    expect(others).toEqual([]);
    const hours = await rowsOf("start_date=2026-03-30T00:00:00Z&end_date=2026-03-31&interval=hour");
    expect(sumOf(hours, "cost_usd")).toBe(nanoFromUsd(first!.cost_usd!));
    const part = await rowsOf("start_date=2026-03-30T05:00:00Z&end_date=2026-03-30T07:00:00Z");
    const two = hours.filter(({ date }) => /T0[56]/.test(date!));
    expect(sumOf(part, "cost_usd")).toBe(sumOf(two, "cost_usd"));
    const page = async (offset: number) => {
      const response = await ask(`group_by=organization&limit=2&offset=${offset}`);
      return (await response.json()) as { data: Row[]; has_more: boolean };
    };
    const [one, next] = [await page(0), await page(2)];
    expect([one.data.length, one.has_more, next.has_more]).toEqual([2, true, true]);
    expect(one.data[0]!.organization_id).not.toBe(next.data[0]!.organization_id);
  });

  test("is for operators alone", async () => {
    for (const key of [gateway.managementKey, gateway.secretKey]) {
      expect((await ask("", key)).status).toBe(403);
    }
    expect((await ask("", "")).status).toBe(401);
  });
});

test("usage of earlier versions joins the sums once, with estimated fees, while charges are added", async () => {
  const database = await openTestDatabase(3);
  const { sql } = database;
  const ids = ["org_one", "org_other"];
  for (const id of ids) {
    await sql`INSERT INTO organizations (id, name, plan) VALUES (${id}, ${id}, 'pro')`;
    await charge(sql, id, { from: 1, count: 300, hasFees: false });
    while (await rollUpUsage(sql, id, 100));
  }
  // As the migration finds it: sums without fees, of which none is in the sums over all organizations.
  for (const table of ["usage_rollups", "usage_subjects", "usage_totals"]) {
    await sql`UPDATE ${sql(table)} SET fee_nano = 0, provider_cost_nano = 0`;
  }
  await sql`TRUNCATE usage_gateway, usage_gateway_latencies`;
  await sql`UPDATE usage_cursors SET gateway_since = 'infinity'`;
  const opened = [1, 2].map(() =>
    connectDatabase(database, { poolSize: 1, applicationName: "gateway" }),
  );
  const adding = opened.map(async (own, at) => {
    for (const id of at === 0 ? ids : ids.toReversed()) {
      while (await addUsageToGateway(own, id));
    }
  });
  for (const id of ids) await charge(sql, id, { from: 301, count: 200 });
  await Promise.all(adding);
  expect(await usageFaults(sql)).toEqual([]);
  const [sums] = await sql<{ cost: bigint; fee: bigint }[]>`
    SELECT sum(cost_nano)::bigint AS cost, sum(fee_nano)::bigint AS fee FROM usage_gateway WHERE grain = 'day'`;
  const [ledger] = await sql<{ cost: bigint }[]>`
    SELECT -sum(amount_nano)::bigint AS cost FROM transactions`;
  expect(sums!.cost).toBe(ledger!.cost);
  expect(sums!.fee).toBeGreaterThan(0n);
  await Promise.all(opened.map((one) => one.end()));
  await database.drop();
});

test("the fee that is estimated for a charge is that of the plan", async () => {
  for (const plan of PLANS) {
    const [row] = await gateway.sql<{ fee: bigint }[]>`
      SELECT usage_fee(${10_000n + planOf(plan).feeBasisPoints}::bigint, NULL, ${plan}) AS fee`;
    expect([plan, row!.fee]).toEqual([plan, planOf(plan).feeBasisPoints]);
  }
  const [custom] = await gateway.sql<{ fee: bigint }[]>`
    SELECT usage_fee(10700::bigint, 700, 'free') AS fee`;
  expect(custom!.fee).toBe(700n);
});
