import { writeFileSync } from "node:fs";
import { chargeNanoUsd } from "../../src/lib/money.ts";
import type { Behaviour } from "../upstream/behaviours.ts";
import type { UpstreamProcess } from "./upstream-process.ts";

/** Both sides count four characters as one token, and each event of a stream brings as many. */
export const TOKEN = "word";
/** What the upstream counts for the prompt below. */
export const PROMPT = "eightchr";
export const PROMPT_TOKENS = 2;
/** UTF-8 bytes of the prompt, and what is added for its message and for the request. */
const PROMPT_BOUND = 8 + 8 + 16;
const INPUT_FEMTO = 2_000_000_000n;
const OUTPUT_FEMTO = 1_000_000_000n;
const FREE_PLAN_FEE = 400n;

export interface Kind {
  readonly name: string;
  readonly stream: boolean;
  /** Sent to /v1/responses, and stored; otherwise a chat. */
  readonly isResponse?: true;
  readonly behaviour: Behaviour;
  /** Tokens of a whole answer; undefined where there never is one. */
  readonly tokens: number | undefined;
  /** The client goes away after so many tokens. */
  readonly leavesAfterTokens?: number;
  /** Sent again with the same idempotency key until an answer has come whole. */
  readonly insists?: true;
  /** How often it is sent, in comparison with the others. */
  readonly weight: number;
  /** Answered within milliseconds: some clients send only such. */
  readonly isQuick?: true;
}

const whole = (tokens: number, options: Partial<Behaviour> = {}): Behaviour => ({
  do: "complete",
  content: TOKEN.repeat(tokens),
  events: tokens,
  ...options,
});

/** Everything that the load consists of. */
export const KINDS: readonly Kind[] = [
  { name: "plain", stream: false, tokens: 20, behaviour: whole(20), weight: 4, isQuick: true },
  {
    name: "slow-plain",
    stream: false,
    tokens: 30,
    behaviour: whole(30, { firstDelayMs: 60 }),
    weight: 2,
  },
  {
    name: "insistent",
    stream: false,
    tokens: 25,
    behaviour: whole(25),
    insists: true,
    weight: 3,
    isQuick: true,
  },
  {
    name: "slow-insistent",
    stream: false,
    tokens: 35,
    behaviour: whole(35, { firstDelayMs: 80 }),
    insists: true,
    weight: 1,
  },
  { name: "short", stream: true, tokens: 12, behaviour: whole(12), weight: 3, isQuick: true },
  { name: "steady", stream: true, tokens: 300, behaviour: whole(300, { delayMs: 3 }), weight: 5 },
  { name: "crawling", stream: true, tokens: 40, behaviour: whole(40, { delayMs: 50 }), weight: 3 },
  { name: "torrent", stream: true, tokens: 8_000, behaviour: whole(8_000), weight: 4 },
  {
    name: "uncounted",
    stream: true,
    tokens: 80,
    behaviour: whole(80, { do: "no-usage", delayMs: 2 }),
    weight: 2,
  },
  {
    name: "left",
    stream: true,
    tokens: 200,
    behaviour: whole(200, { delayMs: 3 }),
    leavesAfterTokens: 25,
    weight: 2,
  },
  {
    name: "broken",
    stream: true,
    tokens: undefined,
    behaviour: whole(50, { do: "cut", afterEvents: 30, delayMs: 2 }),
    weight: 1,
  },
  {
    name: "response",
    stream: false,
    isResponse: true,
    tokens: 22,
    behaviour: whole(22),
    weight: 2,
    isQuick: true,
  },
  {
    name: "insistent-response",
    stream: false,
    isResponse: true,
    tokens: 24,
    behaviour: whole(24, { firstDelayMs: 20 }),
    insists: true,
    weight: 2,
  },
  {
    name: "streamed-response",
    stream: true,
    isResponse: true,
    tokens: 60,
    behaviour: whole(60, { delayMs: 3 }),
    weight: 3,
  },
  {
    name: "failing",
    stream: false,
    tokens: undefined,
    behaviour: { do: "error", status: 400 },
    weight: 1,
    isQuick: true,
  },
];

/** The limit that a request of this kind sets: a little more than it uses. */
export function limitOf({ tokens = 60 }: Kind): number {
  return Math.ceil(tokens * 1.1);
}

/** What is held for a request of this kind. */
export function holdOf(kind: Kind): bigint {
  return chargeOf(PROMPT_BOUND, limitOf(kind));
}

/** What a free-plan organization is charged for these tokens. */
export function chargeOf(promptTokens: number, completionTokens: number): bigint {
  const femto = BigInt(promptTokens) * INPUT_FEMTO + BigInt(completionTokens) * OUTPUT_FEMTO;
  return chargeNanoUsd(femto, FREE_PLAN_FEE);
}

/** Tells the upstream what to do, and writes the gateway's configuration. */
export async function prepareKinds(upstream: UpstreamProcess, configPath: string): Promise<void> {
  for (const { name, behaviour } of KINDS) await upstream.behave(name, behaviour);
  const usd = (femto: bigint) => Number(femto) / 1e15;
  const configuration = {
    providers: [
      {
        id: "upstream",
        type: "openai-compatible",
        base_url: upstream.baseUrl,
        api_key: "sk-upstream",
      },
    ],
    models: KINDS.map(({ name }) => ({
      id: `test/${name}`,
      category: "chat",
      context_length: 128_000,
      max_output_tokens: 16_384,
      input_cost_per_token: usd(INPUT_FEMTO),
      output_cost_per_token: usd(OUTPUT_FEMTO),
      capabilities: ["streaming"],
      endpoints: [{ provider: "upstream", model: name }],
    })),
  };
  writeFileSync(configPath, JSON.stringify(configuration));
}
