import { afterAll, beforeAll, expect, test } from "bun:test";
import { readEnvelope } from "../support/error-envelope.ts";
import {
  ANSWER,
  BEGINNING,
  type FailingProviders,
  type Fault,
  RETRY_AFTER_SECONDS,
  startFailingProviders,
  USAGE,
  type WireName,
} from "../support/failing-providers.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";

/*
 * A model with two endpoints, of two wires, of which the first fails: what the client sees, what it is
 * charged, and how often each provider is called. GATEWAY_TEST_TABLES=1 prints what was seen as Markdown.
 */

/** The second serves, or the client gets a status and code, which is in the stream where that is 200. */
type Ending = "second" | readonly [status: number, code: string];

interface Row {
  readonly fault: Fault;
  /** Where the second endpoint would answer: unstreamed, streamed. */
  readonly whole: Ending;
  readonly streamed: Ending;
  /** Where the second endpoint fails in the same way, and how often each is called then. */
  readonly bothWhole: Ending;
  readonly bothStreamed: Ending;
  readonly bothCalls: number;
}

const FAILED = [502, "provider_error"] as const;
const LATE = [408, "provider_timeout"] as const;
const LIMITED = [429, "rate_limit_exceeded"] as const;
const BROKEN_STREAM = [200, "provider_error"] as const;
const SILENT_STREAM = [200, "provider_timeout"] as const;

/** What the client gets where nothing of an answer came; a second round follows only what may pass. */
const before = (fault: Fault, ending: Ending, bothCalls: number): Row => ({
  fault,
  whole: "second",
  streamed: "second",
  bothWhole: ending,
  bothStreamed: ending,
  bothCalls,
});

/** Three rounds, of which the second and third are retries. */
const ROUNDS = 3;
/** Cases that wait for timeouts start first, so that the others run in the meantime. */
const MATRIX: readonly Row[] = [
  // The total timeout is that of all tries together, the timeout of the first token that of each.
  { ...before("silent", LATE, 1), whole: LATE },
  {
    ...before("silent behind it", LATE, 1),
    whole: LATE,
    streamed: SILENT_STREAM,
    bothStreamed: SILENT_STREAM,
  },
  before("refused", FAILED, ROUNDS),
  before(401, FAILED, 1),
  // Longer than a caller is kept waiting.
  before(429, LIMITED, 1),
  before(500, FAILED, ROUNDS),
  before(529, FAILED, ROUNDS),
  before("garbage", FAILED, ROUNDS),
  {
    ...before("cut behind it", FAILED, ROUNDS),
    streamed: BROKEN_STREAM,
    bothStreamed: BROKEN_STREAM,
  },
  {
    ...before("garbage behind it", FAILED, ROUNDS),
    streamed: BROKEN_STREAM,
    bothStreamed: BROKEN_STREAM,
  },
];

/** One call: a row of the matrix, the wires in their order, streamed or not. */
interface Case {
  readonly fault: Fault;
  readonly wires: readonly [first: WireName, second: WireName];
  readonly isStream: boolean;
  readonly bothFail: boolean;
  readonly ending: Ending;
  /** Of both endpoints. */
  readonly calls: readonly [number, number];
  /** Of the model, whose name each endpoint has with its place behind it. */
  readonly slug: string;
}

const ORDERS = [
  ["openai", "anthropic"],
  ["anthropic", "openai"],
] as const;
const CASES: readonly Case[] = MATRIX.flatMap((row) =>
  ORDERS.flatMap((wires) =>
    [false, true].flatMap((isStream) =>
      [false, true].map((bothFail) => caseOf(row, wires, isStream, bothFail)),
    ),
  ),
).map((one, index) => ({ ...one, slug: `case-${index}` }));

function caseOf(
  row: Row,
  wires: Case["wires"],
  isStream: boolean,
  bothFail: boolean,
): Omit<Case, "slug"> {
  const single = isStream ? row.streamed : row.whole;
  const both = isStream ? row.bothStreamed : row.bothWhole;
  const ending = bothFail ? both : single;
  const { fault } = row;
  return { fault, wires, isStream, bothFail, ending, calls: callsOf(row, single, ending) };
}

/** What the providers see: nothing of connections to a closed port. */
function callsOf({ fault, bothCalls }: Row, single: Ending, ending: Ending): [number, number] {
  const isReached = fault === "refused" ? 0 : 1;
  if (ending === "second") return [isReached, 1];
  // The first ends the call for the second.
  if (single !== "second") return [1, 0];
  return [bothCalls * isReached, bothCalls * isReached];
}

/** Nano-USD a token, so that the charge tells whose it is. */
const PRICES = {
  openai: { input: 100, output: 400 },
  anthropic: { input: 300, output: 1_500 },
} as const;
const PLAN_FEE_PERCENT = 4;
const CREDIT_NANO = 1_000_000_000n;

const FIRST_TOKEN_MS = 800;
const TOTAL_MS = 2_500;

let providers: FailingProviders;
let gateway: TestGateway;
beforeAll(async () => {
  providers = startFailingProviders();
  gateway = await startTestGateway({
    configuration: configuration(),
    environment: {
      GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS: String(FIRST_TOKEN_MS),
      GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: String(FIRST_TOKEN_MS),
      GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: String(TOTAL_MS),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await providers.stop();
});

/** Each case has endpoints of its own, so that their health decides nothing in another. */
function configuration() {
  const providersOf = (name: WireName) => {
    const type = name === "openai" ? "openai-compatible" : "anthropic";
    const api_key = "key-of-a-failing-provider";
    return [
      { id: name, type, api_key, base_url: providers.baseUrls[name] },
      // No process of a user may listen there.
      { id: `${name}-refused`, type, api_key, base_url: "http://127.0.0.1:1/v1" },
    ];
  };
  return {
    providers: [...providersOf("openai"), ...providersOf("anthropic")],
    models: CASES.map(({ slug, wires, fault, bothFail }) => ({
      id: `test/${slug}`,
      category: "chat",
      context_length: 128_000,
      max_output_tokens: 1_000,
      endpoints: wires.map((wire, place) => {
        const isFailing = place === 0 || bothFail;
        if (isFailing) providers.behave(`${slug}-${place}`, fault);
        return {
          provider: isFailing && fault === "refused" ? `${wire}-refused` : wire,
          model: `${slug}-${place}`,
          input_cost_per_token: PRICES[wire].input / 1e9,
          output_cost_per_token: PRICES[wire].output / 1e9,
        };
      }),
    })),
  };
}

/** Of each case, for the printed table. */
const seen = new Map<Case, string>();

test.concurrent.each(CASES.map((one): [string, Case] => [titleOf(one), one]))(
  "%s",
  async (_title, one) => {
    const organization = await gateway.addOrganization({ creditUsd: Number(CREDIT_NANO) / 1e9 });
    const response = await gateway.request(
      "POST",
      "/v1/chat/completions",
      {
        model: `test/${one.slug}`,
        stream: one.isStream,
        messages: [{ role: "user", content: "hello" }],
      },
      { key: organization.secretKey },
    );
    const requestId = response.headers.get("x-gateway-request-id")!;
    const client = await expectEnding(one, response);
    const charge = await expectCharge(one, requestId, organization.organization.id);
    const calls = [providers.callsOf(`${one.slug}-0`), providers.callsOf(`${one.slug}-1`)];
    expect(calls).toEqual([...one.calls]);
    seen.set(one, `${client} | ${charge} | ${calls.join(" + ")}`);
  },
);

/** What the client gets, in words. */
async function expectEnding(one: Case, response: Response): Promise<string> {
  const { ending, isStream } = one;
  if (typeof ending === "string") {
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-provider")).toBe(serverOf(one)!);
    if (isStream) {
      const read = await readStream(response);
      expect(read).toMatchObject({ content: ANSWER, finishReason: "stop", isDone: true });
      expect(read.error).toBeUndefined();
    } else {
      const { choices } = (await response.json()) as { choices: { message: object }[] };
      expect(choices[0]).toMatchObject({ message: { content: ANSWER }, finish_reason: "stop" });
    }
    return `200, the answer of ${serverOf(one)}`;
  }
  const [status, code] = ending;
  expect(response.status).toBe(status);
  if (status === 200) {
    const read = await readStream(response);
    expect(read).toMatchObject({ content: BEGINNING, finishReason: null, isDone: false });
    expect(read.error!.error.code).toBe(code);
    return `200, the beginning, then \`${code}\` in the stream`;
  }
  const { error } = await readEnvelope(response);
  expect(error.code).toBe(code);
  if (status === 429) expect(response.headers.get("retry-after")).toBe(String(RETRY_AFTER_SECONDS));
  return `${status} \`${code}\``;
}

/** At most one charge, of who served, which is all that is missing from the balance; no hold is left. */
async function expectCharge(one: Case, requestId: string, organizationId: string): Promise<string> {
  const wire = serverOf(one);
  const bill = await billOf(gateway, requestId);
  expect(bill?.provider).toBe(wire);
  const chargeNano = bill?.chargeNano ?? 0n;
  if (bill !== undefined && wire !== undefined) {
    const { promptTokens, completionTokens } = bill;
    expect(bill).toMatchObject(tokensOf(one, wire));
    const { input, output } = PRICES[wire];
    const cost = promptTokens * input + completionTokens * output;
    expect(Number(chargeNano)).toBe(Math.round((cost * (100 + PLAN_FEE_PERCENT)) / 100));
  }
  const rows = await gateway.sql`
    SELECT type, amount_nano AS amount FROM transactions
    WHERE organization_id = ${organizationId} ORDER BY sequence`;
  const amounts = bill === undefined ? [CREDIT_NANO] : [CREDIT_NANO, -chargeNano];
  expect(rows.map(({ amount }) => BigInt(amount))).toEqual(amounts);
  const balance = await until("the hold is gone", async () => {
    const answered = await gateway.sql`
      SELECT a.credit_nano - a.posted_nano AS balance FROM accounts a
      WHERE a.organization_id = ${organizationId} AND a.kind = 'org' AND a.held_nano = 0
        AND NOT EXISTS (SELECT FROM attempts t WHERE t.organization_id = a.organization_id)`;
    return answered[0] && BigInt(answered[0].balance);
  });
  expect(balance).toBe(CREDIT_NANO - chargeNano);
  if (bill === undefined) return "nothing";
  const tokens = `${bill.promptTokens} + ${bill.completionTokens} tokens`;
  return `${tokens} of ${wire}${bill.estimated ? ", counted here" : ""}: ${chargeNano} nano-USD`;
}

/** Whose answer came, whole or in part. */
function serverOf({ wires, ending }: Case): WireName | undefined {
  if (ending === "second") return wires[1];
  return ending[0] === 200 ? wires[0] : undefined;
}

/** Of a part of an answer nothing was reported but Anthropic's prompt. */
function tokensOf({ ending }: Case, wire: WireName) {
  const { prompt, completion } = USAGE[wire];
  if (typeof ending === "string") {
    return { promptTokens: prompt, completionTokens: completion, estimated: false };
  }
  const counted = { openai: COUNTED_PROMPT, anthropic: prompt };
  return { promptTokens: counted[wire], completionTokens: 1, estimated: true };
}

/** "hello", and what a message takes. */
const COUNTED_PROMPT = 6;

function titleOf({ fault, wires, isStream, bothFail }: Case): string {
  const who = bothFail ? `${wires[0]} and ${wires[1]}` : `${wires[0]} before ${wires[1]}`;
  return `${fault} at ${who}${isStream ? ", streamed" : ""}`;
}

test("no case was charged twice, and the books are closed", async () => {
  await expectBooksClosed(gateway);
  const twice = await gateway.sql`
    SELECT organization_id FROM transactions WHERE type = 'usage'
    GROUP BY organization_id HAVING count(*) > 1`;
  expect([...twice]).toEqual([]);
  if (process.env.GATEWAY_TEST_TABLES === "1") console.log(asMarkdown());
});

function asMarkdown(): string {
  const rows = CASES.map((one) => {
    const [first, second] = one.wires;
    const who = one.bothFail ? `${first} and ${second}` : first;
    const form = one.isStream ? "stream" : "whole";
    return `| ${one.fault} | ${who} | ${form} | ${seen.get(one)} |`;
  });
  return [
    "| fault | of | asked for | the client gets | it is charged | calls |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
}
