import { afterAll, beforeAll, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

interface Shown {
  readonly transaction_id: string | null;
  readonly estimated: boolean | null;
  readonly queue_ms: number | null;
  readonly first_token_ms: number | null;
  readonly routing: {
    readonly tries: readonly { readonly endpoint: string; readonly result: string }[];
    readonly postponed?: readonly string[];
  } | null;
}

const PAIRS = 4;

let gateway: ChatGateway;
let usedPairs = 0;
beforeAll(async () => {
  const pairs = Array.from({ length: PAIRS }, (_, i): [string, string[]] => [
    `pair-${i}`,
    [`primary/pair-${i}-a`, `secondary/pair-${i}-b`],
  ]);
  gateway = await startChatGateway({ models: Object.fromEntries(pairs) });
});
afterAll(() => gateway.stop());

function pairThat(first: Behaviour, second: Behaviour): string {
  const slug = `pair-${usedPairs++}`;
  gateway.upstream.behave(`${slug}-a`, first);
  gateway.upstream.behave(`${slug}-b`, second);
  return slug;
}

/** The request as it is shown once it is charged, or its failure is written down. */
async function shownOf(response: Response): Promise<Shown> {
  const id = response.headers.get("x-gateway-request-id")!;
  return until(`${id} is shown`, async () => {
    const shown = await gateway.request("GET", `/v1/requests/${id}`);
    return shown.status === 200 && ((await shown.json()) as Shown);
  });
}

test.each([false, true])(
  "a request shows each call of a provider that was made for it; streamed: %p",
  async (stream) => {
    const slug = pairThat({ do: "error", status: 500 }, { do: "complete" });
    const response = await gateway.chat(slug, { stream });
    if (stream) expect((await readStream(response)).isDone).toBeTrue();
    else await response.arrayBuffer();
    const shown = await shownOf(response);
    expect(shown.routing).toEqual({
      tries: [
        {
          endpoint: `primary/${slug}-a`,
          result: "unavailable",
          status: 500,
          ms: expect.any(Number),
        },
        { endpoint: `secondary/${slug}-b`, result: "ok", ms: expect.any(Number) },
      ],
    } as never);
    expect(shown.transaction_id).toStartWith("txn_");
    expect(shown.estimated).toBeFalse();
    expect(shown.first_token_ms === null).toBe(!stream);
  },
);

test("one that failed shows them too, without a charge", async () => {
  const slug = pairThat({ do: "error", status: 404 }, { do: "error", status: 401 });
  const response = await gateway.chat(slug);
  expect(response.status).toBe(502);
  const shown = await shownOf(response);
  expect(shown.transaction_id).toBeNull();
  expect(shown.routing?.tries).toMatchObject([
    { endpoint: `primary/${slug}-a`, status: 404 },
    { endpoint: `secondary/${slug}-b`, status: 401 },
  ]);
});

test("where the first endpoint answers there is nothing to show", async () => {
  const response = await gateway.chat(gateway.modelThat({ do: "complete" }));
  await response.arrayBuffer();
  expect((await shownOf(response)).routing).toBeNull();
});

test("an endpoint that came last because it is unhealthy is named", async () => {
  const slug = pairThat({ do: "error", status: 401 }, { do: "complete" });
  // A refused key opens the circuit of its endpoint.
  await (await gateway.chat(slug)).arrayBuffer();
  const response = await gateway.chat(slug);
  await response.arrayBuffer();
  expect((await shownOf(response)).routing).toEqual({
    postponed: [`primary/${slug}-a`],
    tries: [{ endpoint: `secondary/${slug}-b`, result: "ok", ms: expect.any(Number) }],
  } as never);
});

test("a request that waited for money shows how long", async () => {
  const slug = gateway.modelThat({ do: "slow-drip", pieceBytes: 16, pieceDelayMs: 5 });
  // Room for the hold of one of the two.
  const key = await addSecretKey(gateway, { dailyBudgetNano: 100_000n });
  const answers = await Promise.all(
    [1, 2].map(() => gateway.chat(slug, { max_tokens: 100 }, { key })),
  );
  for (const answer of answers) {
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
  }
  const waited = (await Promise.all(answers.map(shownOf))).map(({ queue_ms: ms }) => ms ?? 0);
  expect(Math.max(...waited)).toBeGreaterThanOrEqual(20);
});
