import { OwnedRun, OwnedRuns } from "../../../actors/runtime/owned-runs.ts";
import { type Lease, LeaseLostError, type Ownership } from "../../../actors/runtime/ownership.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { findDueStoreFiles, VECTOR_STORE_FILE } from "../../../db/queries/vector-store-files.ts";
import {
  completeText,
  deleteChunks,
  endRemoval,
  failIndexing,
  type IndexedFile,
  insertChunks,
  postponeIndexing,
  readIndexedFile,
} from "../../../db/queries/vector-store-indexing.ts";
import { clearExpiredStores } from "../../../db/queries/vector-stores.ts";
import {
  type ExtractedChunk,
  type Extraction,
  MAX_DOCUMENT_BYTES,
} from "../../documents/extraction.ts";
import { searchWords } from "../../documents/search-words.ts";
import { DocumentFault } from "../../documents/text-sink.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { allButOne, FairSemaphore } from "../../lib/fair-share.ts";
import type { FileLibrary } from "../files/file-library.ts";
import { embedChunks, isGatewayError, isRetryable, type TextEmbedding } from "./embedding.ts";

interface IndexingDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly files: FileLibrary;
  readonly extraction: Extraction;
  readonly embedding: TextEmbedding;
  /** Called when a file is done, so that there is room for another one. */
  onRoom(): void;
  onError(error: unknown): void;
}

/**
 * Maximum files that this process works on at a time, in total and for one organization, and maximum files
 * whose text is being read.
 */
const MAX_FILES_AT_A_TIME = 24;
const MAX_FILES_OF_ONE = 4;
const MAX_READ_AT_A_TIME = 3;
const CHUNKS_A_TRANSACTION = 100;
/** Measured in `docs/explanation/vector-search.md`. */
const MAX_CHUNKS_OF_STORE = 20_000;
const MAX_CHUNKS_OF_ORGANIZATION = 200_000;
const MAX_CHUNKS_OF_FILE = 10_000;
const MAX_ATTEMPTS = 5;
const FIRST_DELAY_MS = 2_000;
/** Longer than for other failures, because providers that limit calls or are down stay so for longer. */
const FIRST_EMBEDDING_DELAY_MS = 15_000;

/**
 * The statuses of a file in a store, and the work of its owner in each:
 *
 * - `in_progress`, without chunks: the owner reads the text into chunks that no search finds yet. Each
 *   attempt starts with the first chunk.
 * - `in_progress`, with chunks: the owner embeds the remaining chunks if a model is set. The last
 *   transaction makes the file `completed`, or `failed` if the file is invalid or its key cannot pay.
 * - `completed`: no work remains.
 * - `failed`, `cancelled`, removed: the owner deletes the chunks, a thousand at a time, and then the row of
 *   a removed file.
 *
 * Requests can cancel or remove a file at any time. The lease guards each of the owner's transactions, and
 * each changes only a file that is still `in_progress`.
 */

/** Returns the semaphore that bounds the files whose text is being read. */
export function createReadingSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_READ_AT_A_TIME,
    mostOfOne: allButOne(MAX_READ_AT_A_TIME),
    maxWaiting: 4 * MAX_FILES_AT_A_TIME,
    refusal: () => overloaded("Too many files are waiting to be read."),
  });
}

/** Indexes the files that this instance owns. */
export class Indexing {
  readonly kind = VECTOR_STORE_FILE;
  readonly #dependencies: IndexingDependencies;
  readonly #runs: OwnedRuns<OwnedRun>;
  readonly #reading = createReadingSemaphore();

  constructor(dependencies: IndexingDependencies) {
    this.#dependencies = dependencies;
    this.#runs = new OwnedRuns<OwnedRun>(dependencies, {
      kind: VECTOR_STORE_FILE,
      begin: (lease) => new OwnedRun(lease),
      work: (run) => this.#index(run),
      onRoom: () => dependencies.onRoom(),
    });
  }

  /** Returns ids of due files, at most as many as this instance has room for. */
  async findWork(limit: number): Promise<readonly string[]> {
    const { sql } = this.#dependencies;
    const room = Math.min(limit, MAX_FILES_AT_A_TIME - this.#runs.size);
    if (room <= 0) return [];
    await clearExpiredStores(sql);
    // One organization's provider that never answers must not delay the files of others.
    const without = this.#runs.organizationsWith(MAX_FILES_OF_ONE);
    return findDueStoreFiles(sql, room, { mostOfOne: MAX_FILES_OF_ONE, without });
  }

  start(lease: Lease): void {
    this.#runs.start(lease);
  }

  /** Stops. Every file keeps its state for its next owner. */
  async stop(): Promise<void> {
    const stopped = this.#runs.stop();
    this.#dependencies.extraction.close();
    await stopped;
  }

  async #index(run: OwnedRun): Promise<void> {
    const file = await readIndexedFile(this.#dependencies.sql, run.lease.id);
    run.organizationId = file?.organizationId;
    if (file !== undefined) await this.#work(run, file);
  }

  async #work(run: OwnedRun, file: IndexedFile): Promise<void> {
    if (file.status === "completed") return;
    if (file.status !== "in_progress") return this.#removeChunks(run, file);
    try {
      if (file.chunks === 0) {
        const read = () => this.#indexText(run, file);
        await this.#reading.run(file.organizationId, read, run.abandoned);
      }
    } catch (error) {
      if (error instanceof LeaseLostError || run.abandoned.aborted) throw error;
      await this.#noteFailure(run, file, error);
      return;
    }
    if (file.embeddingModel !== null) await this.#embed(run, file);
  }

  async #removeChunks(run: OwnedRun, file: IndexedFile): Promise<void> {
    let isMore = true;
    while (isMore) isMore = await this.#runs.guarded(run, (sql) => deleteChunks(sql, file.number));
    await this.#runs.guarded(run, (sql) => endRemoval(sql, file.id));
  }

  async #indexText(run: OwnedRun, file: IndexedFile): Promise<void> {
    const limits = {
      maxOfStore: MAX_CHUNKS_OF_STORE,
      maxOfOrganization: MAX_CHUNKS_OF_ORGANIZATION,
    };
    // Chunks of an earlier owner.
    let isMore = true;
    while (isMore) isMore = await this.#runs.guarded(run, (sql) => deleteChunks(sql, file.number));
    const written = await this.#writeChunks(run, file);
    const outcome = await this.#runs.guarded(run, (sql) =>
      completeText(sql, file, written, limits),
    );
    if (outcome === "full") {
      throw new DocumentFault(
        "invalid_file",
        `The file's ${written.chunks} chunks do not fit: a vector store can have at most ${limits.maxOfStore} chunks, an organization ${limits.maxOfOrganization}.`,
      );
    }
  }

  async #writeChunks(
    run: OwnedRun,
    file: IndexedFile,
  ): Promise<{ chunks: number; usageBytes: number }> {
    const { files, extraction } = this.#dependencies;
    const record = await files.find(file.organizationId, file.fileId);
    if (record.bytes > MAX_DOCUMENT_BYTES) {
      const most = MAX_DOCUMENT_BYTES / 1_048_576;
      throw new DocumentFault("invalid_file", `The file is larger than ${most} MB.`);
    }
    const nameWords = searchWords(record.filename);
    const isHtml = /html/i.test(record.contentType) || /\.x?html?$/i.test(record.filename);
    const order = { ...file.chunking, bytes: record.bytes, isHtml };
    const content = await files.read(record);
    let [chunks, usageBytes] = [0, 0];
    let waiting: ExtractedChunk[] = [];
    const write = async (): Promise<void> => {
      const batch = waiting;
      waiting = [];
      await this.#runs.guarded(run, (sql) => insertChunks(sql, file, chunks - batch.length, batch));
    };
    for await (const { text, words } of extraction.chunksOf(content, order, run.abandoned)) {
      chunks += 1;
      if (chunks > MAX_CHUNKS_OF_FILE) {
        throw new DocumentFault(
          "invalid_file",
          `The file has more than ${MAX_CHUNKS_OF_FILE} chunks.`,
        );
      }
      usageBytes += Buffer.byteLength(text);
      // Added, because questions often contain words of the file name.
      waiting.push({ text, words: `${nameWords} ${words}` });
      if (waiting.length === CHUNKS_A_TRANSACTION) await write();
    }
    if (waiting.length > 0) await write();
    return { chunks, usageBytes };
  }

  async #embed(run: OwnedRun, file: IndexedFile): Promise<void> {
    const { sql, embedding, onError } = this.#dependencies;
    const guarded: Parameters<typeof embedChunks>[3] = (write) => this.#runs.guarded(run, write);
    try {
      await embedChunks(sql, file, embedding, guarded);
    } catch (error) {
      if (error instanceof LeaseLostError || run.abandoned.aborted) throw error;
      if (!(error instanceof GatewayError)) onError(error);
      const isFailure = !isGatewayError(error);
      // Read again, because each written batch resets it.
      const attempts = (await readIndexedFile(sql, file.id))?.attempts ?? 0;
      if (isRetryable(error) && (!isFailure || attempts + 1 < MAX_ATTEMPTS)) {
        const delayMs = FIRST_EMBEDDING_DELAY_MS * 2 ** attempts;
        return this.#runs.guarded(run, (sql) =>
          postponeIndexing(sql, file.id, delayMs, { isFailure }),
        );
      }
      const why = error instanceof GatewayError ? error.message : "Add the file again later.";
      const message = `The text could not be embedded with ${file.embeddingModel}. ${why}`;
      await this.#runs.guarded(run, (sql) =>
        failIndexing(sql, file.id, { code: "server_error", message }),
      );
    }
  }

  async #noteFailure(run: OwnedRun, file: IndexedFile, error: unknown): Promise<void> {
    const { onError } = this.#dependencies;
    if (error instanceof DocumentFault) {
      return this.#runs.guarded(run, (sql) => failIndexing(sql, file.id, error));
    }
    if (error instanceof GatewayError && error.code === "file_not_found") {
      // The deletion has also removed the file from the store.
      return;
    }
    onError(error);
    if (file.attempts + 1 < MAX_ATTEMPTS) {
      const delayMs = FIRST_DELAY_MS * 2 ** file.attempts;
      return this.#runs.guarded(run, (sql) =>
        postponeIndexing(sql, file.id, delayMs, { isFailure: true }),
      );
    }
    const message = "The file could not be read. Add it again later.";
    await this.#runs.guarded(run, (sql) =>
      failIndexing(sql, file.id, { code: "server_error", message }),
    );
  }
}
