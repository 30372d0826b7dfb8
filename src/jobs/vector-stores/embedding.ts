import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import { removeStoredResult } from "../../../db/queries/idempotency.ts";
import { completeFile, type IndexedFile } from "../../../db/queries/vector-store-indexing.ts";
import { insertVectors, readWaitingChunks } from "../../../db/queries/vector-store-vectors.ts";
import type { Caller } from "../../http/caller.ts";
import type { RequestContext } from "../../http/route.ts";
import type { InternalIdempotencyKey } from "../../inference/call/call.ts";
import { type ErrorCode, GatewayError, RETRYABLE_CODES } from "../../lib/errors.ts";
import { quantised } from "./quantised-vector.ts";

/** The request that searches, as far as the embedding of its questions is a call of its own. */
export interface Searcher
  extends Pick<
    RequestContext,
    "caller" | "requestId" | "startedMs" | "admittedRateHeaders" | "log" | "admitAgain"
  > {
  readonly request: Pick<Request, "signal">;
}

/** Embeds texts by paid calls, each charged to the key that wants them. */
export interface TextEmbedding {
  /** Whether the key may call the model. Throws 404 where there is no such model. */
  mayUse(caller: Caller, model: string): Promise<boolean>;
  /** Throws what the paid call throws. */
  ofQuestions(
    searcher: Searcher,
    model: string,
    texts: readonly string[],
  ): Promise<readonly ArrayLike<number>[]>;
  /** The same call twice, on any instance, is charged once. Throws also where the key may not call any more. */
  ofChunks(batch: ChunkBatch): Promise<readonly ArrayLike<number>[]>;
}

export interface ChunkBatch {
  readonly keyId: string;
  readonly model: string;
  readonly texts: readonly string[];
  readonly idempotency: InternalIdempotencyKey;
}

/** With so many dimensions the answer of a call stays below a megabyte: a longer one is not kept for a replay. */
const CHUNKS_A_CALL = 32;
const MAX_DIMENSIONS = 5_120;

/**
 * Embeds the chunks of a file that are not embedded yet, and completes it.
 *
 * Each batch is one paid call under an idempotency key of its own: an owner that dies between charge and writing
 * leaves the result to the next one. The transaction that writes the embeddings removes it.
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
    // The file in place of an API key: no client's key equals it.
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

const PASSING: ReadonlySet<ErrorCode> = new Set(RETRYABLE_CODES);

/** Of the gateway itself: they do not count as attempts. */
const OWN: ReadonlySet<ErrorCode> = new Set(["overloaded", "database_unavailable"]);

export function isRetryable(error: unknown): boolean {
  return !(error instanceof GatewayError) || PASSING.has(error.code);
}

export function isGatewayError(error: unknown): boolean {
  return error instanceof GatewayError && OWN.has(error.code);
}
