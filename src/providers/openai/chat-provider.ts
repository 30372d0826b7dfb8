import type { Clock } from "../../lib/clock.ts";
import { type ChatFields, chatFieldsOf } from "../chat-fields.ts";
import type {
  ChatAnswer,
  ChatCall,
  ChatProvider,
  PieceReader,
  ProviderFailure,
  ProviderSettings,
} from "../interface.ts";
import { createHttpClient } from "../transport/http-client.ts";
import type { HttpClient, ProviderResponse } from "../transport/provider-response.ts";
import { isPlainHttp } from "../transport/request-head.ts";
import { MAX_COMPLETION_BYTES, readErrorBody, readWhole } from "./bounded-body.ts";
import { brokenAnswer, connectTimeout, failureOfThrown } from "./call-failures.ts";
import { type AnswerReader, ClientCall } from "./client-call.ts";
import { completionToStream } from "./completion-to-stream.ts";
import { ConnectGuard } from "./connect-guard.ts";
import { isEventStream, isJson } from "./content-type.ts";
import { endpointUrl } from "./endpoint-url.ts";
import {
  type FailureContext,
  failureInside,
  failureOfStatus,
  failureTold,
} from "./failure-mapping.ts";
import { nestsDeeperThan } from "./nesting.ts";
import { bodyShaper } from "./shape-body.ts";
import { openTcpProbe, type TcpProbe, tcpTargetOf } from "./tcp-probe.ts";
import { type WireDialect, wireDialect } from "./wire-dialects.ts";

/** Deeper completions parse, but cannot be serialised again. */
const MAX_COMPLETION_DEPTH = 1024;

export type Fetch = (url: string, init: BunFetchRequestInit) => Promise<ProviderResponse>;

export interface OpenAiDependencies {
  readonly clock: Clock;
  /** Sends everything; where it is left out, `http:` addresses have a client of their own. */
  readonly fetch?: Fetch;
  /**
   * Finds out whether an endpoint can be reached, for calls that `fetch` sends, which a probe that is
   * given makes of all.
   */
  readonly probe?: TcpProbe;
  /** Of URLs whose connections go through a proxy: only `fetch` knows of those, and no probe gets past it. */
  readonly proxiedProtocols?: readonly string[];
  /** The client of `http:` addresses, shared between providers. */
  readonly httpClient?: HttpClient;
}

/**
 * A provider that speaks OpenAI's chat wire format. A streamed answer is the response body itself,
 * untouched. Throws when the base URL or the key cannot be used at all.
 */
export function createOpenAiProvider(
  settings: ProviderSettings,
  dependencies: OpenAiDependencies,
): ChatProvider {
  return new OpenAiChatProvider(settings, wireDialect(settings.type), dependencies);
}

class OpenAiChatProvider implements ChatProvider, AnswerReader {
  readonly fields: ChatFields;
  readonly #url: string;
  readonly #failureContext: FailureContext;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #fetch: Fetch;
  readonly #client: HttpClient | undefined;
  readonly #connectTimeoutMs: number;
  readonly #guard: ConnectGuard | undefined;
  readonly #shape: ReturnType<typeof bodyShaper>;
  /** `fetch` has had an answer, and may keep its connection. */
  #hasAnswered = false;

  constructor(settings: ProviderSettings, dialect: WireDialect, dependencies: OpenAiDependencies) {
    const { clock, fetch: send, probe } = dependencies;
    this.fields = chatFieldsOf(settings.type);
    this.#url = endpointUrl(settings.baseUrl, "/chat/completions");
    this.#failureContext = {
      apiKey: settings.apiKey,
      get nowMs() {
        return clock.nowMs();
      },
    };
    this.#headers = requestHeaders(settings, dialect);
    this.#clock = clock;
    this.#fetch = send ?? fetch;
    this.#connectTimeoutMs = settings.connectTimeoutMs;
    const url = new URL(this.#url);
    const isProxied = dependencies.proxiedProtocols?.includes(url.protocol) === true;
    if (send === undefined && probe === undefined && !isProxied && isPlainHttp(url)) {
      this.#client = dependencies.httpClient ?? createHttpClient({ clock });
    }
    const target = tcpTargetOf(this.#url);
    this.#shape = bodyShaper(dialect, { plainDeltas: isOpenAiItself(settings.type, target.host) });
    if (!isProxied && this.#client === undefined) {
      this.#guard = new ConnectGuard({
        clock,
        probe: probe ?? openTcpProbe,
        target,
        timeoutMs: settings.connectTimeoutMs,
      });
    }
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    return this.#client === undefined
      ? this.#chatByFetch(call)
      : this.#chatByClient(this.#client, call);
  }

  #chatByClient(client: HttpClient, call: ChatCall): Promise<ChatAnswer> {
    try {
      const body = this.#bodyOf(call);
      const sent = new ClientCall(call, body, this.#headers, this.#connectTimeoutMs, this);
      client.send(this.#url, sent, sent);
      return sent.answer;
    } catch (error) {
      return Promise.reject(failureOfThrown(error, call.abortNotice ?? call.signal));
    }
  }

  async #chatByFetch(call: ChatCall): Promise<ChatAnswer> {
    let response: ProviderResponse | undefined;
    try {
      response = await this.#send(call);
      this.#guard?.sawAnswer(this.#clock.nowMs());
      this.#hasAnswered = true;
      return await this.answerOf(response, call);
    } catch (error) {
      const isLost = response === undefined && this.#mayHaveLostUsed(error, call);
      throw failureOfThrown(error, call.abortNotice ?? call.signal, isLost);
    }
  }

  /** `fetch` does not tell whether a connection that ended before an answer was a new one. */
  #mayHaveLostUsed(error: unknown, call: ChatCall): boolean {
    const { code } = error as { code?: unknown };
    return this.#hasAnswered && call.onNewConnection !== true && code === "ECONNRESET";
  }

  /** Throws, or rejects, where the response is no answer. */
  answerOf(response: ProviderResponse, call: ChatCall): ChatAnswer | Promise<ChatAnswer> {
    if (response.status < 200 || response.status > 299) return this.#refuse(response);
    if (call.stream) return this.#streamOf(response);
    const text = readWhole(response, MAX_COMPLETION_BYTES);
    return text instanceof Promise ? this.#completionLater(text) : this.#completionOf(text);
  }

  async #completionLater(text: Promise<string | undefined>): Promise<ChatAnswer> {
    return this.#completionOf(await text);
  }

  #completionOf(text: string | undefined): ChatAnswer {
    return { kind: "completion", completion: this.#parsed(text) };
  }

  #bodyOf(call: ChatCall): string {
    return JSON.stringify(this.#shape(call.body, call.model, call.modelId));
  }

  #send(call: ChatCall): Promise<ProviderResponse> {
    const init: BunFetchRequestInit = {
      method: "POST",
      headers: this.#headers,
      body: this.#bodyOf(call),
      redirect: "manual",
      signal: call.signal,
      // Bun's own idle timeout is off: how long silence may last is the caller's to decide.
      timeout: false,
      keepalive: call.onNewConnection !== true,
    };
    const guard = this.#guard;
    if (guard === undefined || guard.isReachable(this.#clock.nowMs())) {
      return this.#fetch(this.#url, init);
    }
    return this.#sendWatched(guard, init, call.signal);
  }

  /** Sends with the connect timeout, which needs a signal of its own to abort with. */
  async #sendWatched(
    guard: ConnectGuard,
    init: BunFetchRequestInit,
    signal: AbortSignal,
  ): Promise<ProviderResponse> {
    const controller = new AbortController();
    const forward = () => controller.abort(signal.reason);
    if (signal.aborted) forward();
    // Stays for as long as the body may be read: an abort must reach a stream too.
    signal.addEventListener("abort", forward, { once: true });
    const stopWatching = guard.watch(() => controller.abort(connectTimeout()));
    try {
      return await this.#fetch(this.#url, { ...init, signal: controller.signal });
    } catch (error) {
      signal.removeEventListener("abort", forward);
      throw controller.signal.aborted ? controller.signal.reason : error;
    } finally {
      stopWatching();
    }
  }

  async #refuse(response: ProviderResponse): Promise<never> {
    const text = await readErrorBody(response, this.#clock);
    throw failureOfStatus(response.status, response.headers, text, this.#failureContext);
  }

  #streamOf(response: ProviderResponse): ChatAnswer | Promise<ChatAnswer> {
    const contentType = response.headers.get("content-type");
    if (contentType === "text/event-stream" || isEventStream(contentType)) {
      if (!hasBody(response)) throw brokenAnswer("an empty body");
      return new StreamAnswer(response, this.#failureContext);
    }
    if (!isJson(contentType)) {
      response.body?.cancel().catch(() => undefined);
      throw brokenAnswer("a content type that is no event stream");
    }
    return this.#wholeAsStream(response);
  }

  /** Some servers answer a request for a stream with a whole completion. */
  async #wholeAsStream(response: ProviderResponse): Promise<ChatAnswer> {
    const body = completionToStream(this.#parsed(await readWhole(response, MAX_COMPLETION_BYTES)));
    if (body === undefined) throw brokenAnswer("a body that is no completion");
    return { kind: "stream", body };
  }

  #parsed(text: string | undefined): unknown {
    if (text === undefined) throw brokenAnswer("more bytes than a completion may have");
    let parsed: unknown;
    try {
      parsed = JSON.parse(text);
    } catch {
      throw brokenAnswer("a body that is no JSON");
    }
    const failure = failureInside(parsed, this.#failureContext);
    if (failure !== undefined) throw failure;
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
      throw brokenAnswer("JSON that is no object");
    }
    // A level of nesting takes two characters, so a short body needs no look.
    if (text.length > 2 * MAX_COMPLETION_DEPTH && nestsDeeperThan(parsed, MAX_COMPLETION_DEPTH)) {
      throw brokenAnswer("JSON that is nested too deeply");
    }
    return parsed;
  }
}

function hasBody(response: ProviderResponse): boolean {
  return response.hasBody ?? response.body !== null;
}

/** The body of a response, as a stream or piece by piece, as its reader wants it. */
class StreamAnswer {
  readonly kind = "stream";
  readonly #response: ProviderResponse;
  readonly #failureContext: FailureContext;

  constructor(response: ProviderResponse, failureContext: FailureContext) {
    this.#response = response;
    this.#failureContext = failureContext;
  }

  get body(): ReadableStream<Uint8Array> {
    return this.#response.body!;
  }

  reader(): PieceReader {
    return this.#response.reader?.() ?? this.body.getReader();
  }

  failureOf(event: unknown): ProviderFailure {
    return failureTold(event, this.#failureContext);
  }
}

export function requestHeaders(
  settings: ProviderSettings,
  dialect: WireDialect,
): Record<string, string> {
  const headers: Record<string, string> = {
    "content-type": "application/json",
    // Expanding costs more than the local network does, and would need a bound of its own.
    "accept-encoding": "identity",
  };
  if (settings.apiKey === undefined) return headers;
  if (!/^[\x21-\x7e]+$/.test(settings.apiKey)) {
    throw new Error(`the key of provider "${settings.id}" has characters that no header can carry`);
  }
  if (dialect.keyHeader === "api-key") headers["api-key"] = settings.apiKey;
  else headers.authorization = `Bearer ${settings.apiKey}`;
  return headers;
}

function isOpenAiItself(type: string, host: string): boolean {
  return type === "openai" && (host === "openai.com" || host.endsWith(".openai.com"));
}
