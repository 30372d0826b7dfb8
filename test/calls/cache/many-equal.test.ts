import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { expectBooksClosed } from "../../support/ledger-checks.ts";
import { IS_THOROUGH } from "../../support/thorough.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());

const CALLS = IS_THOROUGH ? 10_000 : 1_000;
const AT_ONCE = 64;

test(`${CALLS} equal calls are one call of the provider, and the bill of one`, async () => {
  const slug = gateway.modelThat({ do: "complete", content: "one for all" });
  const headers = { "x-gateway-cache": "on", "x-gateway-cache-single-flight": "on" };
  const [before] = await balance();
  const outcomes = new Map<string | null, number>();
  let begun = 0;
  const caller = async () => {
    while (begun < CALLS) {
      const stream = begun++ % 2 === 1;
      const response = await gateway.chat(slug, { stream }, { headers });
      expect(await response.text()).toContain("one for all");
      const outcome = response.headers.get("x-gateway-cache");
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, caller));
  expect(Object.fromEntries(outcomes)).toEqual({ miss: 1, hit: CALLS - 1 });
  expect(gateway.upstream.servedOf(slug).length).toBe(1);
  const [bills] = await gateway.sql`
    SELECT count(*)::int AS calls, count(*) FILTER (WHERE amount_nano <> 0)::int AS charged,
      -sum(amount_nano)::bigint AS spent, sum(prompt_tokens)::int AS tokens, max(prompt_tokens)::int AS of_one
    FROM transactions WHERE model = ${`test/${slug}`}`;
  expect(bills).toMatchObject({ calls: CALLS, charged: 1 });
  expect(bills!.tokens).toBe(bills!.of_one);
  const [after] = await balance();
  expect(before!.balance - after!.balance).toBe(bills!.spent);
  await expectBooksClosed(gateway);
}, 240_000);

function balance() {
  return gateway.sql<{ balance: bigint }[]>`
    SELECT credit_nano - posted_nano AS balance FROM accounts
    WHERE organization_id = ${gateway.organizationId} AND kind = 'org'`;
}
