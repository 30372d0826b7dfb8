import { endpointActor } from "../../actors/endpoint/actor.ts";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import type { Hold } from "../../src/billing/ledger/interface.ts";
import type { StreamForm } from "../../src/inference/call/endpoint.ts";
import type { Candidate } from "../../src/inference/call/routing/plan-route.ts";
import { StreamRun } from "../../src/inference/call/stream/streamed-answer.ts";
import { StreamTicker } from "../../src/inference/call/stream/ticker.ts";
import {
  AcceptedChat,
  type AdmittedChat,
  ChatEndpoint,
} from "../../src/inference/endpoints/chat-completions/endpoint.ts";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";
import { DeadlineQueue } from "../../src/lib/deadlines.ts";
import type { RequestLifetime, RequestLog } from "../../src/lib/request-log.ts";
import type { Provider } from "../../src/providers/interface.ts";
import { OpenAiStream } from "../../src/providers/openai/chat/chat-answers.ts";
import type { OwnedMoney } from "../contracts/money/owned-money.ts";
import { noLimits } from "../support/no-limits.ts";
import { noTools } from "../support/no-tools.ts";

export const TOTAL_TIMEOUT_MS = 60_000;
/** A nano-USD for each token of the answer; the prompt costs nothing. */
const TOKEN_FEMTO = 1_000_000n;

export const testModel: CatalogueModel = {
  id: "test/model",
  name: "Model",
  description: "",
  provider: "test",
  ownedBy: "test",
  category: "chat",
  contextLength: 10_000,
  maxOutputTokens: 10_000,
  prices: {
    inputTokenFemto: 0n,
    outputTokenFemto: TOKEN_FEMTO,
    cachedInputTokenFemto: 0n,
    cacheWriteTokenFemto: 0n,
  },
  capabilities: [],
  isActive: true,
  created: 0,
  endpoints: [],
};

/** A provider's answer in the hands of a test. */
export interface ScriptedProvider {
  /** Calls that were made, and whether each was aborted. */
  readonly calls: { isAborted: boolean }[];
  /** The provider sends these pieces of content, one token each. */
  say(...contents: string[]): void;
  finish(): void;
  breakOff(): void;
}

export interface ScriptedStream {
  readonly stream: StreamRun<AcceptedChat>;
  readonly provider: ScriptedProvider;
  readonly log: RequestLog;
  readonly errors: unknown[];
  readonly ticker: StreamTicker;
  /** Requests that are noted as not delivered. */
  readonly notes: ReadonlySet<string>;
  /** The client goes away. */
  leave(): void;
  /** How often the request was reported to have ended. */
  readonly finished: { times: number };
  /** From here on the instance may have been taken for dead; returns the way to end that. */
  doubt(): () => void;
}

export interface ScriptOptions {
  /** The client has gone before the stream begins. */
  readonly isGoneAtOnce?: boolean;
  /** Frees the idempotency key of the request; absent: it has none. */
  readonly free?: () => Promise<void>;
  /** What the endpoint makes of the stream; absent: a chat completion. */
  readonly form?: StreamForm<AcceptedChat>;
}

export const KEEPALIVE_MS = 15_000;

/** A stream over a provider and a client that a test plays, with real money. */
export function scriptedStream(
  owned: OwnedMoney,
  hold: Hold,
  { isGoneAtOnce, free, form }: ScriptOptions = {},
): ScriptedStream {
  const { clock, money } = owned;
  const calls: { isAborted: boolean }[] = [];
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const send = (data: string) => controller!.enqueue(Buffer.from(`data: ${data}\n\n`));
  const choice = (delta: Record<string, unknown>, reason: string | null) =>
    send(JSON.stringify({ id: "x", choices: [{ index: 0, delta, finish_reason: reason }] }));
  const chat: NonNullable<Provider["chat"]> = async ({ signal }) => {
    const call = { isAborted: signal.aborted };
    calls.push(call);
    const body = new ReadableStream<Uint8Array>({
      start(started) {
        controller = started;
      },
      cancel() {
        call.isAborted = true;
      },
    });
    signal.addEventListener("abort", () => {
      if (call.isAborted) return;
      call.isAborted = true;
      controller!.error(new Error("aborted"));
    });
    return new OpenAiStream(body.getReader(), clock);
  };
  const candidate: Candidate = {
    model: testModel,
    terms: testModel,
    providerId: "test",
    provider: { chat },
    upstreamModel: "model",
    baseEndpointId: "place",
    endpointId: crypto.randomUUID(),
  };
  const endpoints = new ActorRegistry(endpointActor, {
    clock,
    context: turnContextOf(clock, () => 0),
    commit: () => Promise.reject(new Error("writes nothing")),
    read: () => Promise.reject(new Error("reads nothing")),
  });
  const finished = { times: 0 };
  const log: RequestLog = {};
  const lifetime: RequestLifetime = {
    finish() {
      finished.times++;
    },
  };
  const client = new AbortController();
  if (isGoneAtOnce) client.abort();
  const errors: unknown[] = [];
  const notes = new Set<string>();
  let doubt: Promise<void> | undefined;
  const ticker = new StreamTicker(clock);
  const request = new AcceptedChat({ model: testModel.id, messages: [], stream: true });
  const stream = new StreamRun(
    {
      money,
      // A stream that is kept under a key ends in these tests before there is something to keep.
      idempotency: { free } as never,
      calls: {
        endpoints,
        clock,
        steadyClock: clock,
        slots: noLimits,
        random: () => 0,
        onKeyRejected: () => undefined,
        isDown: () => false,
      },
      ticker,
      openings: new DeadlineQueue(clock, TOTAL_TIMEOUT_MS),
      keepaliveMs: KEEPALIVE_MS,
      firstTokenTimeoutMs: TOTAL_TIMEOUT_MS,
      idleTimeoutMs: TOTAL_TIMEOUT_MS,
      totalTimeoutMs: TOTAL_TIMEOUT_MS,
      membership: { whenCurrent: () => doubt },
      notes: {
        add: ({ requestId }) => void notes.add(requestId),
        remove: (id) => void notes.delete(id),
      },
      onError: (error) => void errors.push(error),
    },
    form ?? new ChatEndpoint(clock, noTools).stream,
    {
      requestId: hold.requestId,
      startedMs: clock.nowMs(),
      request,
      clientSignal: client.signal,
      log,
      lifetime,
      plan: { models: [testModel], candidates: [candidate] },
      hold,
      fees: { of: () => hold.feeBasisPoints, highest: hold.feeBasisPoints },
      statedLimit: undefined,
      explainsRoute: false,
      route: "POST /v1/chat/completions",
      title: "Chat completion",
      details: null,
      claim: free && ({ idempotencyKey: "key" } as AdmittedChat["claim"]),
    },
  );
  return {
    stream,
    log,
    errors,
    notes,
    ticker,
    finished,
    leave: () => client.abort(),
    doubt() {
      const { promise, resolve } = Promise.withResolvers<void>();
      doubt = promise;
      return () => {
        doubt = undefined;
        resolve();
      };
    },
    provider: {
      calls,
      say(...contents) {
        for (const content of contents) choice({ content }, null);
      },
      finish() {
        choice({}, "stop");
        send("[DONE]");
        controller!.close();
      },
      breakOff() {
        controller!.error(new Error("connection reset"));
      },
    },
  };
}
