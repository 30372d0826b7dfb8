import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import {
  type AddedFile,
  type Addition,
  AdditionRejectedError,
  addStoreFiles,
  cancelStoreBatch,
  findStoreBatch,
  findStoreFile,
  insertStoreBatch,
  listStoreFiles,
  removeStoreFile,
  type StoreBatch,
  type StoreFileListing,
  updateAttributes,
} from "../../../db/queries/vector-store-files.ts";
import { readChunkTexts } from "../../../db/queries/vector-store-indexing.ts";
import type { SearchScope } from "../../../db/queries/vector-store-search.ts";
import { hasVectors } from "../../../db/queries/vector-store-vectors.ts";
import {
  deleteVectorStore,
  findVectorStores,
  insertVectorStore,
  listVectorStores,
  type NewVectorStore,
  type StoreChange,
  updateVectorStore,
} from "../../../db/queries/vector-stores.ts";
import type { Caller } from "../../http/caller.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { FairSemaphore } from "../../lib/fair-share.ts";
import { newId } from "../../lib/ids.ts";
import type {
  Attributes,
  Listed,
  ListPage,
  VectorStore,
  VectorStoreFile,
} from "../../lib/vector-store.ts";
import type { Searcher, TextEmbedding } from "./embedding.ts";
import {
  type EmbeddedQuestions,
  type SearchOptions,
  type SearchResult,
  searchVectorStores,
} from "./search.ts";

const MAX_STORES = 1_000;
export const MAX_FILES_OF_STORE = 10_000;
/** Maximum concurrent searches. They hold connections that all requests share, some for seconds. */
const SEARCHES_AT_A_TIME = 4;
const SEARCHES_AT_A_TIME_OF_ONE = 2;
const MAX_WAITING_SEARCHES = 1_024;

const STORE_ID = /^vs_[0-9a-f]{32}$/;
const FILE_ID = /^file_[0-9a-f]{32}$/;
const BATCH_ID = /^vsfb_[0-9a-f]{32}$/;

type Payer = Pick<Addition, "organizationId" | "keyId" | "embeddingModel">;

interface VectorStoreDependencies {
  readonly sql: Database;
  /** The model that embeds chunks and questions. If undefined, searches find texts only by their words. */
  readonly embeddingModel: string | undefined;
  readonly embedding: TextEmbedding;
}

/** Returns the semaphore that bounds the searches. */
export function createSearchSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: SEARCHES_AT_A_TIME,
    mostOfOne: SEARCHES_AT_A_TIME_OF_ONE,
    maxWaiting: MAX_WAITING_SEARCHES,
    refusal: () => overloaded("Too many searches of vector stores are waiting."),
  });
}

/** The vector stores of organizations, for requests. indexing.ts indexes their files. */
export class VectorStores {
  readonly #sql: Database;
  readonly #dependencies: VectorStoreDependencies;
  readonly #searches = createSearchSemaphore();

  constructor(dependencies: VectorStoreDependencies) {
    this.#sql = dependencies.sql;
    this.#dependencies = dependencies;
  }

  /**
   * Creates a store with files. Throws 404 if a file does not exist, 400 if a file is not processed, and 403 if
   * the organization has too many stores or there are too many files.
   */
  async create(
    caller: Caller,
    store: Omit<NewVectorStore, "id" | "organizationId" | "keyId">,
    files: readonly AddedFile[],
  ): Promise<VectorStore> {
    const { organizationId, id: keyId } = caller.key;
    const payer = await this.#payer(caller);
    const id = newId("vs");
    await this.#sql.begin(async (transaction) => {
      const created = { ...store, id, organizationId, keyId };
      if (!(await insertVectorStore(transaction, created, MAX_STORES))) {
        throw quotaExceeded(`${MAX_STORES} vector stores`);
      }
      if (files.length > 0) await this.#add(transaction, payer, id, null, files);
    });
    return this.find(organizationId, id);
  }

  /** Returns a store. Throws 404 if the store does not exist. */
  async find(organizationId: string, id: string): Promise<VectorStore> {
    if (!STORE_ID.test(id)) throw noStore();
    const [store] = await findVectorStores(this.#sql, organizationId, [id]);
    return store ?? Promise.reject(noStore());
  }

  list(organizationId: string, page: ListPage): Promise<Listed<VectorStore>> {
    return listVectorStores(this.#sql, organizationId, page);
  }

  /** Changes a store. Throws 404 if the store does not exist, and 400 if it has expired. */
  async update(organizationId: string, id: string, change: StoreChange): Promise<VectorStore> {
    await this.#findCurrent(organizationId, id);
    if (!(await updateVectorStore(this.#sql, organizationId, id, change))) throw noStore();
    return this.find(organizationId, id);
  }

  /**
   * Deletes a store. Throws 404 if the store does not exist.
   *
   * @param sql a database that records the act, if it is an administrative one
   */
  async remove(organizationId: string, id: string, sql = this.#sql): Promise<void> {
    if (!STORE_ID.test(id)) throw noStore();
    const isDeleted = await sql.begin((transaction) =>
      deleteVectorStore(transaction, organizationId, id),
    );
    if (!isDeleted) throw noStore();
  }

  /**
   * Adds a file to a store. Throws 404 if the store or the file does not exist, 400 if the store has expired or
   * the file is not processed, and 403 if the store is full.
   */
  async addFile(caller: Caller, storeId: string, file: AddedFile): Promise<VectorStoreFile> {
    if (!STORE_ID.test(storeId)) throw noStore();
    const payer = await this.#payer(caller);
    await this.#sql.begin((transaction) => this.#add(transaction, payer, storeId, null, [file]));
    return this.findFile(caller.key.organizationId, storeId, file.fileId);
  }

  /** Returns a file of a store. Throws 404 if the store does not exist or does not contain the file. */
  async findFile(
    organizationId: string,
    storeId: string,
    fileId: string,
  ): Promise<VectorStoreFile> {
    await this.find(organizationId, storeId);
    if (!FILE_ID.test(fileId)) throw noFile();
    const file = await findStoreFile(this.#sql, organizationId, storeId, fileId);
    return file ?? Promise.reject(noFile());
  }

  /** Lists the files of a store or a batch. Throws 404 if the store or the batch does not exist. */
  async listFiles(listing: StoreFileListing): Promise<Listed<VectorStoreFile>> {
    const { organizationId, vectorStoreId, batchId } = listing;
    await this.find(organizationId, vectorStoreId);
    if (batchId !== undefined) await this.findBatch(organizationId, vectorStoreId, batchId);
    return listStoreFiles(this.#sql, listing);
  }

  /** Sets the attributes of a file. Throws 404 if the store does not exist or does not contain the file. */
  async setAttributes(
    organizationId: string,
    storeId: string,
    fileId: string,
    attributes: Attributes,
  ): Promise<VectorStoreFile> {
    await this.findFile(organizationId, storeId, fileId);
    const changed = await updateAttributes(this.#sql, organizationId, storeId, fileId, attributes);
    return changed ?? Promise.reject(noFile());
  }

  /**
   * Removes a file from a store. Throws 404 if the store does not exist or does not contain the file.
   *
   * @param sql a database that records the act, if it is an administrative one
   */
  async removeFile(
    organizationId: string,
    storeId: string,
    fileId: string,
    sql = this.#sql,
  ): Promise<void> {
    await this.findFile(organizationId, storeId, fileId);
    const isRemoved = await sql.begin((transaction) =>
      removeStoreFile(transaction, organizationId, storeId, fileId),
    );
    if (!isRemoved) throw noFile();
  }

  /**
   * Returns the texts of a file's chunks from a position on, at most `limit`. Throws 404 if the store does not
   * exist or does not contain the file.
   */
  async readContent(
    organizationId: string,
    storeId: string,
    fileId: string,
    { position, limit }: { readonly position: number; readonly limit: number },
  ): Promise<{ texts: string[]; hasMore: boolean }> {
    const { id } = await this.findFile(organizationId, storeId, fileId);
    const texts = await readChunkTexts(this.#sql, id, position, limit + 1);
    return { texts: texts.slice(0, limit), hasMore: texts.length > limit };
  }

  /**
   * Adds files to a store as one batch. Throws 404 if the store or a file does not exist, 400 if the store has
   * expired or a file is not processed, and 403 if the store would have too many files.
   */
  async addBatch(
    caller: Caller,
    storeId: string,
    files: readonly AddedFile[],
  ): Promise<StoreBatch> {
    if (!STORE_ID.test(storeId)) throw noStore();
    const { organizationId } = caller.key;
    const payer = await this.#payer(caller);
    const id = newId("vsfb");
    await this.#sql.begin(async (transaction) => {
      await this.#add(transaction, payer, storeId, id, files);
      await insertStoreBatch(transaction, { id, organizationId, vectorStoreId: storeId });
    });
    return this.findBatch(organizationId, storeId, id);
  }

  /** Returns a batch of a store. Throws 404 if the store or the batch does not exist. */
  async findBatch(organizationId: string, storeId: string, id: string): Promise<StoreBatch> {
    await this.find(organizationId, storeId);
    if (!BATCH_ID.test(id)) throw noBatch();
    const batch = await findStoreBatch(this.#sql, organizationId, storeId, id);
    return batch ?? Promise.reject(noBatch());
  }

  /**
   * Cancels a batch. Files that are already indexed stay. Throws 404 if the store or the batch does not exist.
   */
  async cancelBatch(organizationId: string, storeId: string, id: string): Promise<StoreBatch> {
    await this.findBatch(organizationId, storeId, id);
    await this.#sql.begin((transaction) => cancelStoreBatch(transaction, id));
    return this.findBatch(organizationId, storeId, id);
  }

  /**
   * Searches a store. Throws 404 if the store does not exist, 400 if it has expired, 503 if too many searches
   * wait, and the errors of the paid call that embeds the questions.
   */
  async search(
    searcher: Searcher,
    storeId: string,
    queries: readonly string[],
    options: SearchOptions,
  ): Promise<SearchResult[]> {
    await this.assertSearchable(searcher.caller.key.organizationId, [storeId]);
    return this.searchAll(searcher, [storeId], queries, options);
  }

  /** Throws 404 if a store does not exist, and 400 if a store has expired. */
  async assertSearchable(organizationId: string, storeIds: readonly string[]): Promise<void> {
    await Promise.all(storeIds.map((id) => this.#findCurrent(organizationId, id)));
  }

  /**
   * Searches several stores as one. Stores that do not exist or have expired have no results. Throws 503 if too
   * many searches wait, and the errors of the paid call that embeds the questions.
   */
  async searchAll(
    searcher: Searcher,
    vectorStoreIds: readonly string[],
    queries: readonly string[],
    options: SearchOptions,
  ): Promise<SearchResult[]> {
    const { organizationId } = searcher.caller.key;
    const scope = { organizationId, vectorStoreIds, filter: options.filter };
    const embedded =
      options.weights.embedding > 0 ? await this.#embed(searcher, scope, queries) : undefined;
    const search = () => searchVectorStores(this.#sql, scope, queries, options, embedded);
    return this.#searches.run(organizationId, search, searcher.request.signal);
  }

  /**
   * Embeds the questions. Returns undefined if no searched file is embedded, or if the key cannot call the
   * model.
   */
  async #embed(
    searcher: Searcher,
    scope: SearchScope,
    queries: readonly string[],
  ): Promise<EmbeddedQuestions | undefined> {
    const { embeddingModel: model } = await this.#payer(searcher.caller);
    if (model === null || !(await hasVectors(this.#sql, scope, model))) return undefined;
    const { embedding } = this.#dependencies;
    return { model, embeddings: await embedding.ofQuestions(searcher, model, queries) };
  }

  /** Returns the payer of embeddings. A key that cannot call the model adds and finds texts only by their words. */
  async #payer(caller: Caller): Promise<Payer> {
    const { embeddingModel } = this.#dependencies;
    const { id: keyId, organizationId } = caller.key;
    const isEmbedded =
      embeddingModel !== undefined &&
      (await this.#dependencies.embedding.mayUse(caller, embeddingModel));
    return { organizationId, keyId, embeddingModel: isEmbedded ? embeddingModel : null };
  }

  async #findCurrent(organizationId: string, id: string): Promise<VectorStore> {
    const store = await this.find(organizationId, id);
    if (store.isExpired) throw expired();
    return store;
  }

  async #add(
    sql: DatabaseTransaction,
    payer: Payer,
    vectorStoreId: string,
    batchId: string | null,
    files: readonly AddedFile[],
  ): Promise<void> {
    const bad = files.find(({ fileId }) => !FILE_ID.test(fileId));
    if (bad !== undefined) throw noSuchFile(bad.fileId);
    const byId = new Map(files.map((file) => [file.fileId, file]));
    const addition = { ...payer, vectorStoreId, batchId, files: [...byId.values()] };
    try {
      await addStoreFiles(sql, { ...addition, maxFiles: MAX_FILES_OF_STORE });
    } catch (error) {
      throw error instanceof AdditionRejectedError ? asCallerError(error) : error;
    }
  }
}

function asCallerError({ reason, fileId = "" }: AdditionRejectedError): GatewayError {
  switch (reason) {
    case "no_store":
      return noStore();
    case "expired":
      return expired();
    case "full":
      return quotaExceeded(`${MAX_FILES_OF_STORE} files in a vector store`);
    case "no_file":
      return noSuchFile(fileId);
    case "not_processed":
      return new GatewayError("invalid_body", `The file ${fileId} is not processed.`, {
        param: "file_id",
      });
  }
}

function noStore(): GatewayError {
  return new GatewayError("vector_store_not_found", "There is no such vector store.");
}

function noBatch(): GatewayError {
  return new GatewayError("vector_store_batch_not_found", "There is no such file batch.");
}

function noFile(): GatewayError {
  return new GatewayError("file_not_found", "There is no such file in the vector store.");
}

function noSuchFile(fileId: string): GatewayError {
  const shown = JSON.stringify(fileId.slice(0, 100));
  return new GatewayError("file_not_found", `There is no file ${shown}.`, { param: "file_id" });
}

function expired(): GatewayError {
  return new GatewayError("vector_store_expired", "The vector store has expired.");
}

function quotaExceeded(what: string): GatewayError {
  return new GatewayError("quota_exceeded", `An organization can have at most ${what}.`);
}
