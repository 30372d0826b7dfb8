import type { Clock } from "../../src/lib/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

/** What an organization of the free plan pays for one output token of the test models: their input is free. */
export const TOKEN_CHARGE_NANO = 1_040n;
const OUTPUT_USD_PER_TOKEN = 1e-6;
/** `test/exact` is asked for this many tokens and gives as many: its hold is its charge. */
export const EXACT_TOKENS = 10;
/** `test/roomy` may give this many, which is what a request without a limit holds. */
export const ROOMY_LIMIT_TOKENS = 20_000;
/** `test/brief` may give this many. */
export const BRIEF_LIMIT_TOKENS = 300;
/** `test/roomy` gives this many. */
export const ROOMY_TOKENS = 1_000;

export interface MoneyGateway extends TestGateway {
  readonly upstream: Upstream;
  /** A key made over HTTP by the organization's management key, or by that of another one. */
  addKey(
    settings: Record<string, unknown>,
    managementKey?: string,
  ): Promise<{ id: string; secret: string }>;
  /** Asks `test/exact` with this key, unless `body` says otherwise. */
  chat(key: string, body?: Record<string, unknown>): Promise<Response>;
}

/** A gateway whose models cost so much an output token and nothing else, at a replaying upstream. */
export async function startMoneyGateway(
  options: { creditUsd?: number; plan?: string; clock?: Clock } = {},
): Promise<MoneyGateway> {
  const upstream = await startUpstream();
  for (const [model, behaviour] of MONEY_BEHAVIOURS) upstream.behave(model, behaviour);
  const gateway = await startTestGateway({
    configuration: moneyConfiguration(upstream.baseUrl),
    startingCreditUsd: options.creditUsd,
    plan: options.plan,
    clock: options.clock,
  });
  let keys = 0;
  return {
    ...gateway,
    upstream,
    async addKey(settings, managementKey = gateway.managementKey) {
      const body = { name: `Key ${keys++}`, ...settings };
      const response = await gateway.request("POST", "/v1/keys", body, { key: managementKey });
      if (response.status !== 201) throw new Error(`no key: ${await response.text()}`);
      const { id, key } = (await response.json()) as { id: string; key: string };
      return { id, secret: key };
    },
    chat: (key, body) =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        {
          model: "test/exact",
          max_tokens: EXACT_TOKENS,
          messages: [{ role: "user", content: "hi" }],
          ...body,
        },
        { key },
      ),
    async stop() {
      await upstream.stop();
      await gateway.stop();
    },
  };
}

/** An answer of that many tokens as both sides count them: four characters each, one an event. */
function answerOf(tokens: number) {
  return { do: "complete", content: "word".repeat(tokens), events: Math.min(tokens, 10) } as const;
}

/** `test/silent` says nothing for longer than any test: what was held for it stays held. */
const SILENCE_MS = 600_000;

export const MONEY_BEHAVIOURS = [
  ["exact", answerOf(EXACT_TOKENS)],
  ["brief", answerOf(EXACT_TOKENS)],
  ["roomy", answerOf(ROOMY_TOKENS)],
  ["silent", { ...answerOf(EXACT_TOKENS), firstDelayMs: SILENCE_MS }],
] as const;

export function moneyConfiguration(baseUrl: string) {
  const model = (slug: string, maxOutputTokens: number) => ({
    id: `test/${slug}`,
    category: "chat",
    context_length: 128_000,
    max_output_tokens: maxOutputTokens,
    input_cost_per_token: 0,
    output_cost_per_token: OUTPUT_USD_PER_TOKEN,
    capabilities: ["streaming"],
    endpoints: [{ provider: "upstream", model: slug }],
  });
  return {
    providers: [
      { id: "upstream", type: "openai-compatible", base_url: baseUrl, api_key: "sk-upstream" },
    ],
    models: [
      model("exact", 4_096),
      model("brief", BRIEF_LIMIT_TOKENS),
      model("roomy", ROOMY_LIMIT_TOKENS),
      model("silent", 4_096),
    ],
  };
}
