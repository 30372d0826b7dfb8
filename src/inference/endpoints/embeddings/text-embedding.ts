import type { RequestContext } from "../../../http/route.ts";
import { type ApiKeyRecord, holdsScope } from "../../../lib/api-key-record.ts";
import { GatewayError, stopping } from "../../../lib/errors.ts";
import { newId } from "../../../lib/ids.ts";
import type { Embeddings } from "../../../providers/interface.ts";
import type { AcceptedCall, InternalIdempotencyKey } from "../../call/call.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { embeddingsEndpoint } from "./endpoint.ts";

export interface PaidTextEmbeddingDependencies {
  readonly calls: PaidCallDependencies;
  /** Counts running requests, which a shutdown waits for. */
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** Returns the key with its current rights. Rejects if the key can no longer call. */
  usableKey(keyId: string): Promise<ApiKeyRecord>;
}

type Caller = RequestContext["caller"];

interface QuestionContext
  extends Pick<
    RequestContext,
    "caller" | "requestId" | "startedMs" | "admittedRateHeaders" | "log" | "lifetime" | "admitAgain"
  > {
  readonly request: Pick<Request, "signal">;
}

/** Embeds texts for the gateway's own features, as paid calls like the callers' own embedding requests. */
export class PaidTextEmbedding {
  readonly #dependencies: PaidTextEmbeddingDependencies;
  readonly #call: PaidCall<ReturnType<typeof embeddingsEndpoint.accept>, Embeddings>;

  constructor(dependencies: PaidTextEmbeddingDependencies) {
    this.#dependencies = dependencies;
    this.#call = new PaidCall(dependencies.calls, embeddingsEndpoint);
  }

  /** Returns true if the key can call the model. Throws 404 if the model does not exist. */
  async mayUse(caller: Caller, model: string): Promise<boolean> {
    if (!holdsScope(caller.key, "embeddings")) return false;
    const request = embeddingsEndpoint.accept({ model, input: "text" }, NO_HEADERS);
    try {
      await this.#call.route({ caller, log: {}, request });
      return true;
    } catch (error) {
      if (error instanceof GatewayError && error.code === "model_not_allowed") return false;
      throw error;
    }
  }

  /**
   * Embeds texts for a request, which pays for them and counts in the rate window of its key. Rejects like a
   * paid call.
   */
  ofQuestions(
    {
      caller,
      requestId,
      startedMs,
      admittedRateHeaders,
      log,
      lifetime,
      request,
      admitAgain,
    }: QuestionContext,
    model: string,
    texts: readonly string[],
  ): Promise<readonly Float32Array[]> {
    const accepted = { caller, requestId, startedMs, admittedRateHeaders, log, lifetime };
    return this.#embed(model, texts, {
      ...accepted,
      clientSignal: request.signal,
      idempotencyHeader: null,
      admitAgain,
    });
  }

  /**
   * Embeds texts in the background. All calls with the same idempotency key are charged once, on any
   * instance. Rejects like a paid call.
   */
  async ofChunks(batch: {
    readonly keyId: string;
    readonly model: string;
    readonly texts: readonly string[];
    readonly idempotency: InternalIdempotencyKey;
  }): Promise<readonly Float32Array[]> {
    const { inFlight, usableKey } = this.#dependencies;
    if (inFlight.isStopping) throw stopping();
    const admitAgain = async () => ({ key: await usableKey(batch.keyId) });
    inFlight.begin();
    try {
      return await this.#embed(batch.model, batch.texts, {
        caller: await admitAgain(),
        requestId: newId("req"),
        startedMs: performance.now(),
        // The rate window limits client requests. This call follows from an earlier one and has its own
        // limit.
        admittedRateHeaders: {},
        log: {},
        lifetime: {},
        // A charged answer must be stored, so nothing aborts the call.
        clientSignal: NEVER,
        idempotencyHeader: null,
        internalIdempotency: batch.idempotency,
        admitAgain,
      });
    } finally {
      inFlight.end();
    }
  }

  async #embed(
    model: string,
    texts: readonly string[],
    accepted: Omit<AcceptedCall<never>, "request" | "bodyText">,
  ): Promise<readonly Float32Array[]> {
    const body = { model, input: texts, encoding_format: "base64" };
    const outcome = await this.#call.run({
      ...accepted,
      request: embeddingsEndpoint.accept(body, NO_HEADERS),
      applyGuardrails: async (guard) =>
        embeddingsEndpoint.accept(await guard.input(body), NO_HEADERS, guard),
      bodyText: JSON.stringify(body),
    });
    if (outcome.kind === "stream") throw new Error("embeddings are never streamed");
    return vectorsOf(outcome.body);
  }
}

const NO_HEADERS = new Headers();
const NEVER = new AbortController().signal;

/** Returns the vectors of an answer in base64, as the endpoint writes it. */
function vectorsOf(body: string | Uint8Array): Float32Array[] {
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const { data } = JSON.parse(text) as { data: { embedding: string }[] };
  return data.map(({ embedding }) => {
    const bytes = Buffer.from(embedding, "base64");
    const vector = new Float32Array(bytes.length / Float32Array.BYTES_PER_ELEMENT);
    for (let at = 0; at < vector.length; at++) vector[at] = bytes.readFloatLE(at * 4);
    return vector;
  });
}
