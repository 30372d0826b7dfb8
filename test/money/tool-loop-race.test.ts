import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chargeNanoUsd } from "../../src/lib/money.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, PRICES, startChatGateway } from "../support/chat-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { findTestRedis } from "../support/redis.ts";
import { vectorStoreOf } from "../support/vector-store.ts";

/* More loops of tools at once than there is money for: each step is paid for, or never begun. */

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const LOOPS = 200;
const TIMEOUT_MS = 120_000;
const SEARCH_FEMTO = 500_000_000_000n;
const FEE_BASIS_POINTS = 400n;
const MODEL_LIMIT = 4_096;
const redis = await findTestRedis();

describe.each([
  ["single-node", {}],
  ["clustered", redis === undefined ? undefined : { REDIS_URL: redis.url }],
] as const)("200 loops at once, %s", (_, environment) => {
  if (environment === undefined) return;
  let gateway: ChatGateway;
  let storeId: string;
  beforeAll(async () => {
    gateway = await startChatGateway({
      environment: { ...environment, GATEWAY_FILE_SEARCH_COST_USD: "0.0005" },
      startingCreditUsd: 5,
    });
    storeId = await vectorStoreOf(gateway, { "harbour.txt": "The harbour opens at six." });
  }, TIMEOUT_MS);
  afterAll(() => gateway?.stop());

  /** What a free-plan organization is charged for what the upstream has served to a request, and its searches. */
  function chargeOfServed(user: string, searches: number): bigint {
    const served = gateway.upstream.served.filter(({ requestBody }) => requestBody?.user === user);
    const femto = served.reduce((sum, { usageReported }) => {
      const usage = usageReported as Json;
      return (
        sum +
        BigInt(usage.prompt_tokens) * PRICES.inputFemto +
        BigInt(usage.completion_tokens) * PRICES.outputFemto
      );
    }, 0n);
    return chargeNanoUsd(femto + BigInt(searches) * SEARCH_FEMTO, FEE_BASIS_POINTS);
  }

  test.each([
    ["with a limit of their own", { max_output_tokens: 400 }],
    ["with the limit of the model", {}],
  ] as const)(
    "%s are charged for exactly what was served to them, and never beyond the budget",
    async (_, limits) => {
      const slug = gateway.modelThat({
        do: "complete",
        toolCalls: [{ name: "file_search", arguments: '{"query":"harbour"}' }],
      });
      const budgetNano = 30_000_000n;
      const key = await addSecretKey(gateway, { dailyBudgetNano: budgetNano });
      const answers = await Promise.all(
        Array.from({ length: LOOPS }, async (_, i) => {
          const user = `${slug} ${i}`;
          const response = await gateway.request(
            "POST",
            "/v1/responses",
            {
              model: `test/${slug}`,
              input: "hello",
              user,
              max_tool_calls: 4,
              tools: [{ type: "file_search", vector_store_ids: [storeId] }],
              ...limits,
            },
            { key },
          );
          return { user, status: response.status, body: (await response.json()) as Json };
        }),
      );
      await expectBooksClosed(gateway);
      const rows = await gateway.sql<{ user: string; charge: string }[]>`
        SELECT details ->> 'user' AS user, -amount_nano AS charge
        FROM transactions WHERE type = 'usage' AND model = ${`test/${slug}`}`;
      const charges = new Map(rows.map(({ user, charge }) => [user, BigInt(charge)]));
      const seen = { refused: 0, short: 0, whole: 0 };
      for (const { user, status, body } of answers) {
        const output: Json[] = body.output ?? [];
        const searches = output.filter((item) => item.status === "completed").length;
        if (status === 402) seen.refused++;
        else if (body.incomplete_details?.reason === "max_cost") seen.short++;
        else seen.whole++;
        expect([200, 402]).toContain(status);
        expect({ user, charge: charges.get(user) ?? 0n }).toEqual({
          user,
          charge: chargeOfServed(user, searches),
        });
      }
      const sum = [...charges.values()].reduce((total, charge) => total + charge, 0n);
      expect(sum).toBeLessThanOrEqual(budgetNano);
      // The money covers some of them, and not all: the more run at once, the more of it is held.
      expect(sum).toBeGreaterThan(budgetNano / 10n);
      expect(seen.short).toBeGreaterThan(0);
      expect(rows).toHaveLength(LOOPS - seen.refused);
      for (const { requestBody } of gateway.upstream.served) {
        const { max_tokens: limit = MODEL_LIMIT } = requestBody as Json;
        expect(limit).toBeLessThanOrEqual(MODEL_LIMIT);
      }
    },
    TIMEOUT_MS,
  );
});
