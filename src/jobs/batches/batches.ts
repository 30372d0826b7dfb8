import type { Database } from "../../../db/client.ts";
import { cancelBatch, findBatch, insertBatch, listBatches } from "../../../db/queries/batches.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import type { BatchRecord } from "../../lib/batch.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { FileLibrary } from "../files/file-library.ts";
import { MAX_INPUT_BYTES } from "./input-lines.ts";
import type { LineCalls } from "./line-call.ts";

interface BatchesDependencies {
  readonly sql: Database;
  readonly files: FileLibrary;
  readonly calls: LineCalls;
}

export interface BatchRequest {
  readonly endpoint: string;
  readonly inputFile: string;
  readonly metadata: Readonly<Record<string, string>> | null;
}

/** Maximum batches of one organization that have not ended. */
const MAX_RUNNING_BATCHES = 100;
const BATCH_ID = /^batch_[0-9a-f]{32}$/;

/** The batches of organizations, for requests. batch-owner.ts runs them. */
export class Batches {
  readonly #dependencies: BatchesDependencies;

  constructor(dependencies: BatchesDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a batch. The key pays for its requests. Throws 403 if the key is not allowed to call the endpoint,
   * 404 if the input file does not exist, 400 if it is too large or has another purpose, and 429 if the
   * organization has too many running batches.
   */
  async create(
    key: ApiKeyRecord,
    { endpoint, inputFile, metadata }: BatchRequest,
  ): Promise<BatchRecord> {
    const { sql, files, calls } = this.#dependencies;
    const { organizationId } = key;
    calls.assertMayCall(key, endpoint);
    const file = await files.find(organizationId, inputFile);
    if (file.purpose !== "batch") throw rejectedFile('does not have the purpose "batch"');
    if (file.bytes > MAX_INPUT_BYTES) {
      throw rejectedFile(`is larger than ${MAX_INPUT_BYTES / 1024 / 1024} MB`);
    }
    const id = newId("batch");
    const batch = { id, organizationId, keyId: key.id, endpoint, inputFile, metadata };
    const outcome = await insertBatch(sql, batch, MAX_RUNNING_BATCHES);
    if (outcome === "no_file") throw new GatewayError("file_not_found", "There is no such file.");
    if (outcome === "too_many") {
      throw new GatewayError(
        "rate_limit_exceeded",
        `The organization already has ${MAX_RUNNING_BATCHES} batches that have not ended, which is the maximum.`,
        { retryAfterSeconds: 60 },
      );
    }
    return this.find(organizationId, id);
  }

  /** Returns a batch. Throws 404 if the batch does not exist. */
  async find(organizationId: string, id: string): Promise<BatchRecord> {
    const isId = BATCH_ID.test(id);
    const batch = isId ? await findBatch(this.#dependencies.sql, organizationId, id) : undefined;
    if (batch === undefined) throw new GatewayError("batch_not_found", "There is no such batch.");
    return batch;
  }

  /** Lists batches, newest first. Throws 400 if the batch `after` does not exist. */
  async list(
    organizationId: string,
    page: { readonly after: string | undefined; readonly limit: number },
  ): Promise<{ batches: BatchRecord[]; hasMore: boolean }> {
    const { after } = page;
    if (after !== undefined) {
      await this.find(organizationId, after).catch((error: unknown) => {
        if (!(error instanceof GatewayError) || error.code !== "batch_not_found") throw error;
        const message = 'Invalid cursor in "after": there is no such batch.';
        throw new GatewayError("invalid_query", message, { param: "after" });
      });
    }
    return listBatches(this.#dependencies.sql, organizationId, page);
  }

  /**
   * Cancels a batch. Running requests end, and no further request is called. Throws 404 if the batch does not
   * exist, and 409 if its status no longer allows it.
   *
   * @param sql a database that records the act, if it is an administrative one
   */
  async cancel(
    organizationId: string,
    id: string,
    sql = this.#dependencies.sql,
  ): Promise<BatchRecord> {
    await this.find(organizationId, id);
    await cancelBatch(sql, organizationId, id);
    const batch = await this.find(organizationId, id);
    if (batch.status === "cancelling" || batch.status === "cancelled") return batch;
    throw new GatewayError(
      "batch_not_cancellable",
      `The batch cannot be cancelled: its status is ${batch.status}.`,
    );
  }
}

function rejectedFile(what: string): GatewayError {
  return new GatewayError("invalid_body", `The input file ${what}.`, { param: "input_file_id" });
}
