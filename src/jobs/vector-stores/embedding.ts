import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import { removeStoredResult } from "../../../db/queries/idempotency.ts";
import { completeFile, type IndexedFile } from "../../../db/queries/vector-store-indexing.ts";
import { insertVectors, readWaitingChunks } from "../../../db/queries/vector-store-vectors.ts";
import type { Caller } from "../../http/caller.ts";
import type { RequestContext } from "../../http/route.ts";
import type { InternalIdempotencyKey } from "../../inference/call/call.ts";
import { type ErrorCode, GatewayError, RETRYABLE_CODES } from "../../lib/errors.ts";
import { quantised } from "./quantised-vector.ts";

/** The request of a search, as far as the paid call for its embeddings needs it. */
export interface Searcher
  extends Pick<
    RequestContext,
    "caller" | "requestId" | "startedMs" | "admittedRateHeaders" | "log" | "admitAgain"
  > {
  readonly request: Pick<Request, "signal">;
}

/** Embeds texts with paid calls, each charged to the key that needs them. */
export interface TextEmbedding {
  /** Returns true if the key can call the model. Throws 404 if the model does not exist. */
  mayUse(caller: Caller, model: string): Promise<boolean>;
  /** Embeds questions. Throws the errors of the paid call. */
  ofQuestions(
    searcher: Searcher,
    model: string,
    texts: readonly string[],
  ): Promise<readonly ArrayLike<number>[]>;
  /**
   * Embeds chunks. Repeated calls, on any instance, are charged once. Throws also if the key can no longer
   * call.
   */
  ofChunks(batch: ChunkBatch): Promise<readonly ArrayLike<number>[]>;
}

export interface ChunkBatch {
  readonly keyId: string;
  readonly model: string;
  readonly texts: readonly string[];
  readonly idempotency: InternalIdempotencyKey;
}

/**
 * Chunks per call. With up to this number of dimensions, the answer stays below a megabyte. Longer answers
 * are not stored for a replay.
 */
const CHUNKS_A_CALL = 32;
const MAX_DIMENSIONS = 5_120;

/**
 * Embeds the remaining chunks of a file, and completes the file.
 *
 * Each batch is one paid call with its own idempotency key. If an owner dies between charge and write, the
 * next owner finds the result under that key. The transaction that writes the embeddings removes it.
 *
 * @param guarded runs a transaction of the file's owner
 */
export async function embedChunks(
  sql: Database,
  file: IndexedFile,
  embedding: TextEmbedding,
  guarded: <Result>(write: (sql: DatabaseTransaction) => Promise<Result>) => Promise<Result>,
): Promise<void> {
  const { keyId, embeddingModel: model } = file;
  if (keyId === null || model === null) return guarded((sql) => completeFile(sql, file.id));
  for (;;) {
    const waiting = await readWaitingChunks(sql, file.number, CHUNKS_A_CALL);
    if (waiting === undefined) return;
    const { firstPosition, texts } = waiting;
    if (texts.length === 0) return guarded((sql) => completeFile(sql, file.id));
    // The file is in place of an API key, so no client's key equals it.
    const idempotency = { keyId: file.id, idempotencyKey: String(firstPosition) };
    const embeddings = await embedding.ofChunks({ keyId, model, texts, idempotency });
    assertStorable(embeddings);
    const vectors = embeddings.map(quantised);
    await guarded(async (sql) => {
      await insertVectors(sql, file.number, firstPosition, vectors);
      await removeStoredResult(sql, idempotency);
    });
  }
}

function assertStorable(embeddings: readonly ArrayLike<number>[]): void {
  if (embeddings.every(({ length }) => length <= MAX_DIMENSIONS)) return;
  throw new GatewayError(
    "unsupported_model",
    `Its embeddings have more than ${MAX_DIMENSIONS} dimensions.`,
  );
}

const RETRYABLE: ReadonlySet<ErrorCode> = new Set(RETRYABLE_CODES);

/** Errors of the gateway itself. They do not count as attempts. */
const GATEWAY_CODES: ReadonlySet<ErrorCode> = new Set(["overloaded", "database_unavailable"]);

export function isRetryable(error: unknown): boolean {
  return !(error instanceof GatewayError) || RETRYABLE.has(error.code);
}

export function isGatewayError(error: unknown): boolean {
  return error instanceof GatewayError && GATEWAY_CODES.has(error.code);
}
