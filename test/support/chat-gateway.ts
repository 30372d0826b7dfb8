import type { Clock } from "../../src/lib/clock.ts";
import type { Behaviour } from "../upstream/behaviours.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";
import { startTestGateway, type TestGateway } from "./gateway.ts";

/** Prices of the test models in femto-USD a token, such that charges seldom come out even. */
export const PRICES = {
  inputFemto: 123_000_000n,
  outputFemto: 456_700_000n,
  cachedFemto: 33_000_000n,
} as const;
export const MAX_OUTPUT_TOKENS = 4096;
/** The fee of the free plan, in basis points (spec 1). */
const FEE_BASIS_POINTS = 400n;

export interface ChatGatewayOptions {
  readonly environment?: Record<string, string>;
  /** Endpoints of `test/<slug>`, as `provider/upstream model`; alone, `primary/<slug>`. */
  readonly models?: Readonly<Record<string, readonly string[]>>;
  /** Type of the provider `primary`, whose differences of the wire format then hold. */
  readonly primaryType?: string;
  readonly startingCreditUsd?: number;
  readonly clock?: Clock;
  /** False switches the sandbox off. */
  readonly sandbox?: boolean;
}

export interface ChatGateway extends TestGateway {
  readonly upstream: Upstream;
  /** Sends a chat completion: `hello` to `test/<slug>` unless the body says otherwise. */
  chat(
    slug: string,
    body?: Record<string, unknown>,
    init?: RequestInit & { key?: string },
  ): Promise<Response>;
  /** The model `test/<name of a new slug>` whose upstream does these things, the last one from then on. */
  modelThat(...behaviours: Behaviour[]): string;
}

const SPARE_MODELS = 80;
const PROVIDER_KEY = "sk-upstream-0123456789";

/**
 * A gateway with the providers `primary` and `secondary`, both at the same replaying upstream. In addition
 * to the named models it has spare ones, each with an endpoint of its own, so that the health of one
 * test's endpoint decides nothing in another.
 */
export async function startChatGateway(options: ChatGatewayOptions = {}): Promise<ChatGateway> {
  const upstream = await startUpstream();
  const gateway = await startTestGateway({
    configuration: configuration(upstream.baseUrl, options),
    environment: options.environment,
    startingCreditUsd: options.startingCreditUsd,
    clock: options.clock,
  });
  let usedModels = 0;
  return {
    ...gateway,
    upstream,
    chat: (slug, body, init) =>
      gateway.request("POST", "/v1/chat/completions", chatBody(slug, body), init),
    modelThat(...behaviours) {
      const slug = `spare-${usedModels++}`;
      if (usedModels > SPARE_MODELS) throw new Error("no spare model is left");
      const last = behaviours.pop();
      upstream.enqueue(slug, ...behaviours);
      if (last) upstream.behave(slug, last);
      return slug;
    },
    async stop() {
      await upstream.stop();
      await gateway.stop();
    },
  };
}

export function chatBody(slug: string, body: Record<string, unknown> = {}) {
  return { model: `test/${slug}`, messages: [{ role: "user", content: "hello" }], ...body };
}

/** What a free-plan organization pays for these tokens, in nano-USD. */
export function chargeNano(tokens: { prompt: number; cached?: number; completion: number }) {
  const cached = tokens.cached ?? 0;
  const costFemto =
    BigInt(tokens.prompt - cached) * PRICES.inputFemto +
    BigInt(cached) * PRICES.cachedFemto +
    BigInt(tokens.completion) * PRICES.outputFemto;
  const scaled = costFemto * (10_000n + FEE_BASIS_POINTS);
  return (scaled + 5_000_000_000n) / 10_000_000_000n;
}

function configuration(baseUrl: string, options: ChatGatewayOptions) {
  const named = Object.entries(options.models ?? {});
  const spare = Array.from({ length: SPARE_MODELS }, (_, i): [string, string[]] => [
    `spare-${i}`,
    [`primary/spare-${i}`],
  ]);
  return {
    ...(options.sandbox === false && { sandbox: false }),
    providers: [
      {
        id: "primary",
        type: options.primaryType ?? "openai-compatible",
        base_url: baseUrl,
        api_key: PROVIDER_KEY,
      },
      { id: "secondary", type: "openai-compatible", base_url: baseUrl, api_key: PROVIDER_KEY },
    ],
    models: [...named, ...spare].map(([slug, endpoints]) => modelEntry(slug, endpoints)),
  };
}

function modelEntry(slug: string, endpoints: readonly string[]) {
  const usd = (femto: bigint) => Number(femto) / 1e15;
  return {
    id: `test/${slug}`,
    category: "chat",
    context_length: 128_000,
    max_output_tokens: MAX_OUTPUT_TOKENS,
    input_cost_per_token: usd(PRICES.inputFemto),
    output_cost_per_token: usd(PRICES.outputFemto),
    cached_input_cost_per_token: usd(PRICES.cachedFemto),
    capabilities: ["streaming", "function_calling", "vision", "json_mode"],
    endpoints: endpoints.map((endpoint) => {
      const slash = endpoint.indexOf("/");
      return { provider: endpoint.slice(0, slash), model: endpoint.slice(slash + 1) };
    }),
  };
}
