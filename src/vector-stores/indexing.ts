import {
  guardLease,
  type Lease,
  LeaseLostError,
  type Ownership,
} from "../../actors/runtime/ownership.ts";
import type { Database, DatabaseTransaction } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { findDueStoreFiles, VECTOR_STORE_FILE } from "../../db/queries/vector-store-files.ts";
import {
  completeText,
  deleteChunks,
  endRemoval,
  failIndexing,
  type IndexedFile,
  insertChunks,
  postponeIndexing,
  readIndexedFile,
} from "../../db/queries/vector-store-indexing.ts";
import { clearExpiredStores } from "../../db/queries/vector-stores.ts";
import type { FileLibrary } from "../files/file-library.ts";
import { GatewayError } from "../lib/errors.ts";
import { Semaphore } from "../lib/semaphore.ts";
import { embedChunks, isOfGateway, isPassing, type TextEmbedding } from "./embedding.ts";
import { searchWords } from "./search-words.ts";
import { type ExtractedChunk, type Extraction, MAX_DOCUMENT_BYTES } from "./text/extraction.ts";
import { DocumentFault } from "./text/text-sink.ts";

interface IndexingDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly files: FileLibrary;
  readonly extraction: Extraction;
  /** Once calls can be made. */
  readonly embedding: Promise<TextEmbedding>;
  /** A file is done, so that there is room for another one. */
  onRoom(): void;
  onError(error: unknown): void;
}

/** Files that this process works on at a time, of one organization, and those of them whose text is being read. */
const MAX_FILES_AT_A_TIME = 24;
const MAX_FILES_OF_ONE = 4;
const MAX_READ_AT_A_TIME = 2;
const CHUNKS_A_TRANSACTION = 100;
/** Measured in `docs/vector-stores.md`. */
const MAX_CHUNKS_OF_STORE = 20_000;
const MAX_CHUNKS_OF_ORGANIZATION = 200_000;
const MAX_CHUNKS_OF_FILE = 10_000;
const MAX_ATTEMPTS = 5;
const FIRST_DELAY_MS = 2_000;
/** Providers that limit calls, or are down, are so for longer. */
const FIRST_EMBEDDING_DELAY_MS = 15_000;

/*
 * One file in one store, by its owner:
 *
 * in_progress  without chunks: its text is read into chunks that no search finds, from the first one on in each
 *              attempt. With chunks: they are embedded, where a model is stated, from the first one on that is not.
 *              The last transaction makes it completed, or failed where the file is at fault or its key cannot pay
 * completed    rests
 * failed, cancelled, removed  its chunks are deleted a thousand at a time; then the row of a removed one, too
 *
 * Requests move a file to cancelled and removed at any time. Each of the owner's transactions is guarded by its
 * lease, and moves only a file that still is in_progress.
 */

/** Indexes the files that this instance owns. */
export class Indexing {
  readonly kind = VECTOR_STORE_FILE;
  readonly #dependencies: IndexingDependencies;
  readonly #runs = new Map<string, Run>();
  readonly #reading = new Semaphore(MAX_READ_AT_A_TIME);
  #isStopped = false;

  constructor(dependencies: IndexingDependencies) {
    this.#dependencies = dependencies;
    dependencies.ownership.onLost((lease) => {
      if (lease.kind === VECTOR_STORE_FILE) this.#runs.get(lease.id)?.abandon();
    });
  }

  /** Files that this instance has room for now. */
  async findWork(limit: number): Promise<readonly string[]> {
    const { sql } = this.#dependencies;
    const room = Math.min(limit, MAX_FILES_AT_A_TIME - this.#runs.size);
    if (room <= 0) return [];
    await clearExpiredStores(sql);
    const without = this.#organizationsAtTheirMost();
    return findDueStoreFiles(sql, room, { mostOfOne: MAX_FILES_OF_ONE, without });
  }

  /** A provider of their own that never answers must not keep the files of others waiting. */
  #organizationsAtTheirMost(): string[] {
    const counts = new Map<string, number>();
    for (const { organizationId } of this.#runs.values()) {
      if (organizationId !== undefined)
        counts.set(organizationId, (counts.get(organizationId) ?? 0) + 1);
    }
    return [...counts].filter(([, runs]) => runs >= MAX_FILES_OF_ONE).map(([id]) => id);
  }

  start(lease: Lease): void {
    const { ownership, onError, onRoom } = this.#dependencies;
    const before = this.#runs.get(lease.id);
    if (before !== undefined) {
      // Its lease is given back already, or was lost, but it has not ended quite.
      void before.ended.then(() => this.start(lease));
      return;
    }
    if (this.#isStopped) {
      ownership.release([lease]).catch(onError);
      return;
    }
    const run = new Run(lease);
    this.#runs.set(lease.id, run);
    run.ended = this.#own(run)
      .catch(onError)
      .finally(() => {
        this.#runs.delete(lease.id);
        if (!this.#isStopped) onRoom();
      });
  }

  /** Leaves every file where it stands, for its next owner. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const runs = [...this.#runs.values()];
    for (const run of runs) run.abandon();
    this.#dependencies.extraction.close();
    await Promise.all(runs.map((run) => run.ended));
  }

  async #own(run: Run): Promise<void> {
    const { sql, ownership } = this.#dependencies;
    try {
      const file = await readIndexedFile(sql, run.lease.id);
      run.organizationId = file?.organizationId;
      if (file !== undefined) await this.#work(run, file);
    } catch (error) {
      if (error instanceof LeaseLostError) ownership.noteLost(run.lease);
      else if (!run.signal.aborted) throw error;
    } finally {
      await ownership.release([run.lease]);
    }
  }

  async #work(run: Run, file: IndexedFile): Promise<void> {
    if (file.status === "completed") return;
    if (file.status !== "in_progress") return this.#removeChunks(run, file);
    try {
      if (file.chunks === 0) await this.#reading.pass(() => this.#indexText(run, file));
    } catch (error) {
      if (error instanceof LeaseLostError || run.signal.aborted) throw error;
      await this.#noteFailure(run, file, error);
      return;
    }
    if (file.embeddingModel !== null) await this.#embed(run, file);
  }

  async #removeChunks(run: Run, file: IndexedFile): Promise<void> {
    let isMore = true;
    while (isMore) isMore = await this.#guarded(run, (sql) => deleteChunks(sql, file.number));
    await this.#guarded(run, (sql) => endRemoval(sql, file.id));
  }

  async #indexText(run: Run, file: IndexedFile): Promise<void> {
    const limits = {
      maxOfStore: MAX_CHUNKS_OF_STORE,
      maxOfOrganization: MAX_CHUNKS_OF_ORGANIZATION,
    };
    // What an owner before this one has written.
    let isMore = true;
    while (isMore) isMore = await this.#guarded(run, (sql) => deleteChunks(sql, file.number));
    const written = await this.#writeChunks(run, file);
    const outcome = await this.#guarded(run, (sql) => completeText(sql, file, written, limits));
    if (outcome === "full") {
      throw new DocumentFault(
        "invalid_file",
        `There is no room for its ${written.chunks} chunks: a vector store has at most ${limits.maxOfStore}, an organization ${limits.maxOfOrganization}.`,
      );
    }
  }

  async #writeChunks(run: Run, file: IndexedFile): Promise<{ chunks: number; usageBytes: number }> {
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
      await this.#guarded(run, (sql) => insertChunks(sql, file, chunks - batch.length, batch));
    };
    for await (const { text, words } of extraction.chunksOf(content, order, run.signal)) {
      chunks += 1;
      if (chunks > MAX_CHUNKS_OF_FILE) {
        throw new DocumentFault("invalid_file", `It has more than ${MAX_CHUNKS_OF_FILE} chunks.`);
      }
      usageBytes += Buffer.byteLength(text);
      // Questions often name a file's subject as its name does.
      waiting.push({ text, words: `${nameWords} ${words}` });
      if (waiting.length === CHUNKS_A_TRANSACTION) await write();
    }
    if (waiting.length > 0) await write();
    return { chunks, usageBytes };
  }

  async #embed(run: Run, file: IndexedFile): Promise<void> {
    const { sql, embedding, onError } = this.#dependencies;
    const guarded: Parameters<typeof embedChunks>[3] = (write) => this.#guarded(run, write);
    try {
      await embedChunks(sql, file, await embedding, guarded);
    } catch (error) {
      if (error instanceof LeaseLostError || run.signal.aborted) throw error;
      if (!(error instanceof GatewayError)) onError(error);
      const isFailure = !isOfGateway(error);
      // Each batch that was written has set it back.
      const attempts = (await readIndexedFile(sql, file.id))?.attempts ?? 0;
      if (isPassing(error) && (!isFailure || attempts + 1 < MAX_ATTEMPTS)) {
        const delayMs = FIRST_EMBEDDING_DELAY_MS * 2 ** attempts;
        return this.#guarded(run, (sql) => postponeIndexing(sql, file.id, delayMs, { isFailure }));
      }
      const why = error instanceof GatewayError ? error.message : "Add the file again later.";
      const message = `The text could not be embedded with ${file.embeddingModel}. ${why}`;
      await this.#guarded(run, (sql) =>
        failIndexing(sql, file.id, { code: "server_error", message }),
      );
    }
  }

  async #noteFailure(run: Run, file: IndexedFile, error: unknown): Promise<void> {
    const { onError } = this.#dependencies;
    if (error instanceof DocumentFault) {
      return this.#guarded(run, (sql) => failIndexing(sql, file.id, error));
    }
    if (error instanceof GatewayError && error.code === "file_not_found") {
      // Its deletion has taken it out of the store, too.
      return;
    }
    onError(error);
    if (file.attempts + 1 < MAX_ATTEMPTS) {
      const delayMs = FIRST_DELAY_MS * 2 ** file.attempts;
      return this.#guarded(run, (sql) =>
        postponeIndexing(sql, file.id, delayMs, { isFailure: true }),
      );
    }
    const message = "The file could not be read. Add it again later.";
    await this.#guarded(run, (sql) =>
      failIndexing(sql, file.id, { code: "server_error", message }),
    );
  }

  #guarded<Result>(
    run: Run,
    write: (sql: DatabaseTransaction) => Promise<Result>,
  ): Promise<Result> {
    run.signal.throwIfAborted();
    const { sql, instance } = this.#dependencies;
    return sql.begin(async (transaction) => {
      await guardLease(transaction, run.lease, instance);
      return write(transaction);
    }) as Promise<Result>;
  }
}

/** One file in the hands of this instance. */
class Run {
  readonly lease: Lease;
  /** Of the file, once it is known. */
  organizationId: string | undefined;
  ended: Promise<void> = Promise.resolve();
  readonly #abandoned = new AbortController();

  constructor(lease: Lease) {
    this.lease = lease;
  }

  get signal(): AbortSignal {
    return this.#abandoned.signal;
  }

  abandon(): void {
    this.#abandoned.abort();
  }
}
