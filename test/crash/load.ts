import { steadyClock } from "../../src/lib/clock.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { KINDS, type Kind, limitOf, PROMPT } from "./kinds.ts";

/** One request, and all that its client knows of it in the end. */
export interface Sent {
  /** Unique; it reaches the ledger and the upstream as the request's `user`. */
  readonly tag: string;
  readonly kind: Kind;
  /** When each delivered token came, by the steady clock. */
  readonly tokenTimesMs: number[];
  /** The secret key and the gateway that it was sent with, and to, last. */
  key: string | undefined;
  baseUrl: string | undefined;
  tries: number;
  requestId: string | undefined;
  /** Undefined where no answer began. */
  status: number | undefined;
  hasContent: boolean;
  /** A whole body, or a stream up to [DONE]. */
  isWhole: boolean;
  isReplay: boolean;
  /** As told in a whole answer. */
  costUsd: number | undefined;
  /** Code of an error, in a body or in a stream. */
  errorCode: string | undefined;
  /** It was on its way, or its client had just left, when a process was killed. */
  wasCut: boolean;
  /** From when on its gateway stood still for longer than its lease, by the steady clock. */
  stoppedAtMs: number | undefined;
  startedAtMs: number;
  endedAtMs: number;
  /** From its begin to its end, without the waiting for a processor. */
  tookMs: number;
  retryAfter: string | undefined;
}

export interface LoadOptions {
  /** Clients; every other one sends quick requests alone. */
  readonly workers: number;
  readonly random: () => number;
  /** Secret keys and how often each is used, in comparison. */
  readonly keys: readonly { readonly secret: string; readonly weight: number }[];
  /** Responses too, whose streams do not outlast an outage of the database. */
  readonly sendsResponses?: true;
  /** Of gateways and of the upstream, whose waiting for a processor `tookMs` leaves out. */
  readonly pids?: readonly number[];
}

const CUT_RETRY_MS = 5;
/** What is not answered by then will never be. */
const MAX_TRIES = 100;
/** So long after its client has left, a stream's charge may still be on its way to the ledger. */
const LEAVING_MS = 3_000;

/** Clients that send one request after the other, whenever a gateway is there to take them. */
export class Load {
  readonly #options: LoadOptions;
  readonly #pending = new Set<Sent>();
  /** To be sent again. */
  readonly #insisting: { sent: Sent; key: string }[] = [];
  #finished: Sent[] = [];
  #baseUrls: readonly string[] = [];
  #isEnding = false;
  #wake: (() => void)[] = [];
  #count = 0;
  readonly #workers: Promise<void>[];

  constructor(options: LoadOptions) {
    this.#options = options;
    const kinds = KINDS.filter(({ isResponse }) => options.sendsResponses || !isResponse);
    const quick = kinds.filter(({ isQuick }) => isQuick);
    this.#workers = Array.from({ length: options.workers }, (_, i) =>
      this.#work(i % 2 === 0 ? kinds : quick),
    );
  }

  /** Requests whose answers have not ended. */
  get pending(): number {
    return this.#pending.size;
  }

  /** These gateways are there, and no others. */
  open(...baseUrls: readonly string[]): void {
    this.#baseUrls = baseUrls;
    for (const wake of this.#wake.splice(0)) wake();
  }

  /** No request begins from now on. */
  close(): void {
    this.#baseUrls = [];
  }

  /** Now a process is killed: what is on its way, to this gateway or to any, may be cut. */
  noteCut(baseUrl?: string): void {
    const isThere = (sent: Sent) => baseUrl === undefined || sent.baseUrl === baseUrl;
    for (const sent of this.#pending) if (isThere(sent)) sent.wasCut = true;
    const sinceMs = performance.now() - LEAVING_MS;
    for (const sent of this.#finished) {
      const hasLeft = sent.kind.leavesAfterTokens !== undefined && sent.endedAtMs > sinceMs;
      if (hasLeft && isThere(sent)) sent.wasCut = true;
    }
  }

  /** The gateway stands still from now on, for longer than its lease. */
  noteStopped(baseUrl: string): void {
    const nowMs = steadyClock.nowMs();
    for (const sent of this.#pending) if (sent.baseUrl === baseUrl) sent.stoppedAtMs = nowMs;
  }

  /** What has ended since the last call. */
  takeFinished(): Sent[] {
    return this.#finished.splice(0);
  }

  /** Ends the clients once their last answers have ended. */
  async end(): Promise<void> {
    this.#isEnding = true;
    this.open(...this.#baseUrls);
    await Promise.all(this.#workers);
  }

  async #work(kinds: readonly Kind[]): Promise<void> {
    for (;;) {
      while (this.#baseUrls.length === 0 && !this.#isEnding) {
        await new Promise<void>((resolve) => this.#wake.push(resolve));
      }
      const again = this.#insisting.shift();
      if (again === undefined && this.#isEnding) return;
      const key = again?.key ?? pick(this.#options.keys, this.#options.random).secret;
      const sent =
        again?.sent ?? sentOf(`request-${this.#count++}`, pick(kinds, this.#options.random));
      await this.#exchange(sent, key);
    }
  }

  async #exchange(sent: Sent, key: string): Promise<void> {
    this.#pending.add(sent);
    sent.tries++;
    sent.startedAtMs = performance.now();
    const elapsedMs = startStopwatch(...(this.#options.pids ?? []));
    const place = Math.floor(this.#options.random() * this.#baseUrls.length);
    sent.key = key;
    sent.baseUrl = this.#baseUrls[place] ?? "";
    try {
      await receive(sent, sent.baseUrl, key);
    } catch {
      // Connections break when a gateway dies; what had come until then is noted.
    }
    this.#pending.delete(sent);
    sent.endedAtMs = performance.now();
    sent.tookMs = elapsedMs();
    const isOver = sent.isWhole || sent.status === 402 || sent.tries === MAX_TRIES;
    if (sent.kind.insists && !isOver) {
      this.#insisting.push({ sent, key });
      await Bun.sleep(CUT_RETRY_MS);
    } else {
      this.#finished.push(sent);
    }
  }
}

/** A request that is still to be sent. */
export function sentOf(tag: string, kind: Kind): Sent {
  return {
    tag,
    kind,
    tokenTimesMs: [],
    key: undefined,
    baseUrl: undefined,
    tries: 0,
    requestId: undefined,
    status: undefined,
    hasContent: false,
    isWhole: false,
    isReplay: false,
    costUsd: undefined,
    errorCode: undefined,
    wasCut: false,
    stoppedAtMs: undefined,
    startedAtMs: 0,
    endedAtMs: 0,
    tookMs: 0,
    retryAfter: undefined,
  };
}

function pick<Item extends { readonly weight: number }>(
  items: readonly Item[],
  random: () => number,
): Item {
  let left = random() * items.reduce((sum, { weight }) => sum + weight, 0);
  for (const item of items) {
    left -= item.weight;
    if (left < 0) return item;
  }
  return items.at(-1)!;
}

/** Sends it and notes what comes back. Rejects where the connection breaks. */
export async function receive(sent: Sent, baseUrl: string, key: string): Promise<void> {
  const { kind, tag } = sent;
  const abort = new AbortController();
  const limit = limitOf(kind);
  const response = await fetch(
    `${baseUrl}/v1/${kind.isResponse ? "responses" : "chat/completions"}`,
    {
      method: "POST",
      // A connection that is used again could send a request twice when it breaks.
      keepalive: false,
      signal: abort.signal,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: `test/${kind.name}`,
        ...(kind.isResponse
          ? { input: PROMPT, max_output_tokens: limit, stream: kind.stream }
          : { messages: [{ role: "user", content: PROMPT }], max_tokens: limit }),
        user: tag,
        ...(kind.insists ? { metadata: { idempotency_key: tag } } : {}),
        ...(kind.stream && !kind.isResponse
          ? { stream: true, stream_options: { include_usage: true } }
          : {}),
      }),
    },
  );
  sent.status = response.status;
  sent.requestId = response.headers.get("x-gateway-request-id") ?? undefined;
  sent.retryAfter = response.headers.get("retry-after") ?? undefined;
  sent.isReplay = response.headers.has("x-gateway-idempotent-replay");
  if (kind.stream && response.status === 200) return receiveStream(sent, response, abort);
  sent.errorCode = undefined;
  const body = (await response.json()) as {
    error?: { code: string };
    usage?: { cost: number };
  };
  sent.errorCode = body.error?.code;
  sent.isWhole = response.status === 200;
  sent.costUsd = body.usage?.cost;
}

async function receiveStream(
  sent: Sent,
  response: Response,
  abort: AbortController,
): Promise<void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of response.body!) {
    const frames = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
    rest = frames.pop()!;
    for (const frame of frames) takeFrame(sent, frame, steadyClock.nowMs());
    if (sent.tokenTimesMs.length >= (sent.kind.leavesAfterTokens ?? Number.POSITIVE_INFINITY)) {
      abort.abort();
      return;
    }
  }
}

function takeFrame(sent: Sent, frame: string, nowMs: number): void {
  const [, data] = /^(?:event: .*\n)?data: (.*)$/.exec(frame) ?? [];
  if (data === undefined) return;
  sent.hasContent = true;
  if (data === "[DONE]") {
    sent.isWhole = true;
    return;
  }
  const chunk = JSON.parse(data);
  sent.errorCode ??= chunk.error?.code;
  sent.costUsd ??= (chunk.response ?? chunk).usage?.cost;
  const isToken = chunk.type === "response.output_text.delta" || chunk.choices?.[0]?.delta.content;
  if (isToken) sent.tokenTimesMs.push(nowMs);
}
