import { afterAll, beforeAll, expect, test } from "bun:test";
import { extractText } from "unpdf";
import { rollUpStatements } from "../../db/queries/statements.ts";
import { csvLine } from "../../src/http/csv.ts";
import { nanoFromUsd, usdText } from "../../src/lib/money.ts";
import { KIND_NAMES, TRANSACTION_KINDS } from "../../src/lib/transaction-kinds.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { StripeServer } from "../support/stripe-server.ts";
import {
  fillWithAllKinds,
  forgetSums,
  HOSTILE_DESCRIPTION,
  type Subject,
} from "./ledger-of-all-kinds.ts";

let stripe: StripeServer;
let gateway: TestGateway;
let subject: Subject;

interface LedgerRow {
  readonly id: string;
  readonly sequence: bigint;
  readonly type: string;
  readonly amount_nano: bigint;
  readonly fee_nano: bigint | null;
  readonly balance_after_nano: bigint;
  readonly month: string;
}
let ledger: readonly LedgerRow[];

beforeAll(async () => {
  stripe = new StripeServer();
  gateway = await startTestGateway({ environment: stripe.environment });
  subject = await fillWithAllKinds(gateway, stripe);
  ledger = await gateway.sql<LedgerRow[]>`
    SELECT id, sequence, type, amount_nano, fee_nano, balance_after_nano,
      to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM') AS month
    FROM transactions WHERE organization_id = ${subject.id} ORDER BY sequence`;
}, 60_000);
afterAll(async () => {
  await gateway.stop();
  await stripe.stop();
});

const ask = (path: string, key = subject.managementKey) =>
  gateway.request("GET", path, undefined, { key });

// biome-ignore lint/suspicious/noExplicitAny: answers of several endpoints
async function read(path: string): Promise<any> {
  const response = await ask(path);
  const body = await response.json();
  expect({ status: response.status, body }).toMatchObject({ status: 200 });
  return body;
}

/** Rows of a CSV file by the names of its header. */
async function readCsv(path: string, key?: string): Promise<Record<string, string>[]> {
  const response = await ask(path, key);
  const text = await response.text();
  expect({ status: response.status, text }).toMatchObject({ status: 200 });
  expect(response.headers.get("content-type")).toBe("text/csv; charset=utf-8");
  const [header, ...rows] = text
    .split("\r\n")
    .slice(0, -1)
    .map((line) =>
      [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
        ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!,
      ),
    );
  return rows.map((cells) =>
    Object.fromEntries(header!.map((name, index) => [name, cells[index]!])),
  );
}

async function listAll(): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = [];
  for (;;) {
    const page = await read(`/v1/credits/transactions?limit=4&offset=${all.length}`);
    all.push(...page.data);
    if (!page.has_more) return all;
  }
}

const AMOUNTS = ["topups", "usage", "fees", "adjustments", "refunds"] as const;
const totals = (statement: Record<string, number>) =>
  AMOUNTS.map((column) => nanoFromUsd(statement[`${column}_usd`]!));
const sum = (amounts: readonly bigint[]) => amounts.reduce((all, one) => all + one, 0n);

test("every kind of transaction is listed once, with its running balance, in JSON and in CSV", async () => {
  const listed = (await listAll()).reverse();
  const exported = (await readCsv("/v1/credits/transactions?format=csv")).reverse();
  expect(new Set(listed.map(({ kind }) => kind))).toEqual(new Set(KIND_NAMES));
  expect(listed.map(({ id }) => id)).toEqual(ledger.map(({ id }) => id));
  expect(exported.map(({ id }) => id!)).toEqual(ledger.map(({ id }) => id));
  let balance = 0n;
  for (const [index, row] of ledger.entries()) {
    balance += row.amount_nano;
    expect(row.balance_after_nano).toBe(balance);
    const [one, cells] = [listed[index]!, exported[index]!];
    expect(nanoFromUsd(one.amount_usd as number)).toBe(row.amount_nano);
    expect(nanoFromUsd(one.balance_after_usd as number)).toBe(balance);
    expect(cells.amount_usd!).toBe(usdText(row.amount_nano));
    expect(cells.balance_after_usd!).toBe(usdText(balance));
    expect(cells.fee_usd!).toBe(row.fee_nano === null ? "" : usdText(row.fee_nano));
    expect(cells.kind).toBe(one.kind as string);
  }
  expect(nanoFromUsd((await read("/v1/credits")).balance_usd)).toBe(balance);
});

test("a transaction states its request or its payment", async () => {
  const listed = await listAll();
  const of = (kind: string) => listed.filter((one) => one.kind === kind);
  for (const kind of ["topup", "automatic_topup", "card_refund", "dispute"]) {
    for (const one of of(kind)) {
      expect(one.payment).toMatchObject({ method: { brand: "visa", last4: "4242" } });
    }
  }
  const [refund] = of("refund");
  expect((await ask(`/v1/requests/${refund!.refunded_request_id}`)).status).toBe(200);
  for (const one of of("charge")) expect(one.fee_usd as number).toBeGreaterThan(0);
  // A refund that failed was put back: the sum of both lines is zero.
  const cards = of("card_refund").map(({ amount_usd: amount }) => amount);
  expect(cards.toSorted()).toEqual([-5, -2, 2].toSorted());
});

test("statements add up to the nano-USD, join without a gap, and contain every transaction once", async () => {
  const { data } = await read("/v1/billing/statements");
  const months = data.toReversed();
  expect(months).toHaveLength(3);
  let balance = 0n;
  for (const month of months) {
    const rows = ledger.filter((row) => row.month === month.month);
    expect(rows.length).toBeGreaterThan(3);
    expect(nanoFromUsd(month.opening_balance_usd)).toBe(balance);
    balance += sum(rows.map((row) => row.amount_nano));
    expect(nanoFromUsd(month.closing_balance_usd)).toBe(balance);
    expect(nanoFromUsd(month.opening_balance_usd) + sum(totals(month))).toBe(balance);
    const ofType = (type: string) => rows.filter((row) => row.type === type);
    const amount = (type: string) => sum(ofType(type).map((row) => row.amount_nano));
    const fees = sum(ofType("usage").map((row) => row.fee_nano ?? 0n));
    expect(totals(month)).toEqual([
      amount("topup"),
      amount("usage") + fees,
      -fees,
      amount("adjustment"),
      amount("refund"),
    ]);
    expect(fees).toBeGreaterThan(0n);
  }
  expect(months.map((month: { is_final: boolean }) => month.is_final)).toEqual([true, true, false]);
});

test("a statement has the same amounts in JSON, in CSV and in PDF", async () => {
  const { data } = await read("/v1/billing/statements");
  for (const listed of data) {
    const path = `/v1/billing/statements/${listed.month}`;
    const statement = await read(path);
    expect(statement).toMatchObject(listed);
    const models = statement.models as { usage_usd: number; fees_usd: number }[];
    expect(sum(models.map((one) => nanoFromUsd(one.usage_usd)))).toBe(
      nanoFromUsd(listed.usage_usd),
    );
    expect(sum(models.map((one) => nanoFromUsd(one.fees_usd)))).toBe(nanoFromUsd(listed.fees_usd));
    const lines = await readCsv(`${path}?format=csv`);
    const amounts = lines.map((line) => nanoFromUsd(line.amount_usd!));
    expect(lines[0]!.line).toBe("opening_balance");
    expect(lines.at(-1)!.line).toBe("closing_balance");
    expect(sum(amounts.slice(0, -1))).toBe(amounts.at(-1)!);
    for (const column of AMOUNTS) {
      const ofColumn = lines.filter(({ line }) => line === column);
      expect(sum(ofColumn.map((line) => nanoFromUsd(line.amount_usd!)))).toBe(
        nanoFromUsd(listed[`${column}_usd`]),
      );
    }
    const file = await ask(`${path}?format=pdf`);
    expect(file.headers.get("content-type")).toBe("application/pdf");
    expect(file.headers.get("content-disposition")).toContain(`statement-${listed.month}.pdf`);
    const { text } = await extractText(await file.bytes(), { mergePages: true });
    expect(text).toContain(`Statement ${listed.month}`);
    expect(text).toContain("Zó?w");
    expect(text).toContain("sandbox/chat");
    for (const { kind, amount_usd: amount } of statement.movements) {
      expect(text).toContain(TRANSACTION_KINDS[kind as "charge"].title);
      expect(text).toContain(usdText(nanoFromUsd(amount)));
    }
    for (const name of ["opening_balance_usd", "closing_balance_usd", "fees_usd"]) {
      expect(text).toContain(usdText(nanoFromUsd(listed[name])));
    }
  }
});

test("transactions of any months, added in any steps and by several at the same time, are added once", async () => {
  const before = await read("/v1/billing/statements");
  await forgetSums(gateway, subject.id);
  for (let more = true; more; ) {
    const rounds = await Promise.all(
      [1, 2, 3, 5].map((most) => rollUpStatements(gateway.sql, subject.id, most)),
    );
    more = rounds.some(Boolean);
  }
  expect(await read("/v1/billing/statements")).toEqual(before);
});

test("statements stay when requests, keys and payment methods are deleted", async () => {
  const before = await read("/v1/billing/statements");
  await gateway.sql`UPDATE api_keys SET deleted_at = clock_timestamp()
    WHERE organization_id = ${subject.id} AND kind = 'secret'`;
  await gateway.sql`DELETE FROM failed_requests WHERE organization_id = ${subject.id}`;
  await gateway.sql`UPDATE payment_methods SET state = 'detached', is_default = false
    WHERE organization_id = ${subject.id}`;
  expect(await read("/v1/billing/statements")).toEqual(before);
  const [row] = await readCsv("/v1/credits/transactions?format=csv&type=usage");
  expect(row!.key_name).toBe("'@SUM(A1:A9)");
});

test("cells that a spreadsheet would run are guarded, and amounts stay numbers", async () => {
  const exported = await readCsv("/v1/credits/transactions?format=csv&type=adjustment");
  const hostile = exported.find(({ description }) => description!.includes("evil"));
  expect(hostile!.description).toBe(`'${HOSTILE_DESCRIPTION}`);
  expect(hostile!.amount_usd).toBe("1.5");
  expect(exported.some(({ amount_usd: amount }) => amount === "-0.25")).toBe(true);
  expect(csvLine(["\n=1+1", "\uff1d1+1", -1])).toBe(`"'\n=1+1",'\uff1d1+1,-1\r\n`);
  const requests = await readCsv("/v1/requests?format=csv");
  expect(requests).toHaveLength(5);
  for (const one of requests) expect(one.key_name).toBe("'@SUM(A1:A9)");
  const listed = await read("/v1/requests");
  expect(requests.map(({ id }) => id!)).toEqual(listed.data.map(({ id }: { id: string }) => id));
  const [usage] = await readCsv("/v1/usage?format=csv&group_by=key");
  expect(usage!.key_name).toBe("'@SUM(A1:A9)");
});

test("exports name no keys, teams and owners to callers that may not list them", async () => {
  const body = { name: "Finance", scopes: ["usage:read", "billing:read"] };
  const created = await gateway.request("POST", "/v1/keys", body, { key: subject.managementKey });
  const { key } = (await created.json()) as { key: string };
  for (const path of ["credits/transactions?type=usage&", "requests?", "usage?group_by=key&"]) {
    const [row] = await readCsv(`/v1/${path}format=csv`, key);
    expect(row!.key_id).toStartWith("key_");
    expect(row!.key_name).toBe("");
  }
});

test("a search finds a transaction by its id, its request, its payment or its description", async () => {
  const listed = await listAll();
  const find = async (search: string, more = "") => {
    const query = new URLSearchParams({ search });
    const { data } = await read(`/v1/credits/transactions?${query}${more}`);
    return data.map(({ id }: { id: string }) => id);
  };
  for (const one of listed) expect(await find(one.id as string)).toEqual([one.id]);
  const refund = listed.find(({ kind }) => kind === "refund")!;
  const request = refund.refunded_request_id as string;
  expect(await find(request)).toContain(`txn_${request.slice(4)}`);
  const top = listed.find(({ kind }) => kind === "topup") as {
    id: string;
    payment: { id: string };
  };
  expect(await find(top.payment.id)).toEqual([top.id]);
  const correction = listed.find(({ description }) => description === "Correction")!;
  expect(await find("CORRECT")).toEqual([correction.id]);
  expect(await find("CORRECT", "&type=topup")).toEqual([]);
  expect(await find("%")).toEqual([]);
  expect(await find(`txn_${"f".repeat(32)}`)).toEqual([]);
  const other = await gateway.addOrganization();
  const foreign = await ask(`/v1/credits/transactions?search=${top.id}`, other.managementKey);
  expect(await foreign.json()).toMatchObject({ data: [], total: 0 });
});

test("payments that failed are listed with their reason, and others with refunds and disputes", async () => {
  const { data } = await read("/v1/billing/payments");
  const failed = data.find(({ status }: { status: string }) => status === "failed");
  expect(failed).toMatchObject({ amount_usd: 7, error_reason: "insufficient_funds" });
  expect(failed.error_message).toContain("insufficient funds");
  expect(await read("/v1/billing/payments?status=failed")).toEqual({
    data: [failed],
    has_more: false,
  });
  const of = (amount: number) =>
    data.find((one: { amount_usd: number }) => one.amount_usd === amount).returns;
  expect(of(20)).toMatchObject([
    { kind: "refund", status: "succeeded", amount_usd: 5 },
    { kind: "refund", status: "failed", amount_usd: 2 },
  ]);
  expect(of(5)).toMatchObject([{ kind: "dispute", status: "returned", amount_usd: 5 }]);
});

test("months that an organization does not have are not found", async () => {
  for (const month of ["2020-01", "2099-01", "2026-13", "2026-1", "x"]) {
    const response = await ask(`/v1/billing/statements/${month}`);
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ error: { code: "statement_not_found" } });
  }
  const other = await gateway.addOrganization({ creditUsd: 0 });
  const response = await ask("/v1/billing/statements", other.managementKey);
  expect(await response.json()).toMatchObject({
    data: [{ opening_balance_usd: 0, closing_balance_usd: 0, is_final: false }],
  });
});

test("an export of a page says whether more follow, and two exports run at a time", async () => {
  const page = await ask("/v1/credits/transactions?format=csv&limit=2");
  expect(page.headers.get("x-gateway-has-more")).toBe("true");
  expect((await page.text()).split("\r\n")).toHaveLength(4);
  const exports = await Promise.all(
    Array.from({ length: 6 }, () => ask("/v1/credits/transactions?format=csv")),
  );
  for (const one of exports) {
    await one.text();
    expect([200, 429]).toContain(one.status);
  }
  // All are released.
  expect((await ask("/v1/requests?format=csv")).status).toBe(200);
});
