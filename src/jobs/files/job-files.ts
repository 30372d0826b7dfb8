import type { Database } from "../../../db/client.ts";
import { NotWaitingError } from "../../../db/queries/file-uploads.ts";
import {
  announceFile,
  beginFileUse,
  endFileUses,
  type FileUse,
  findFile,
  findFileUse,
  updateFileStatus,
} from "../../../db/queries/files.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import type { FileRecord, FileStatus, ResultPurpose } from "../../lib/file-record.ts";
import { timeOfId } from "../../lib/ids.ts";
import { asStorageFailure, type FileStorage } from "../../platform/storage/interface.ts";

import type { FileUploads } from "./file-uploads.ts";

interface JobFilesDependencies {
  readonly sql: Database;
  readonly storage: FileStorage;
  readonly uploads: FileUploads;
  /** Called when a job releases its files, so that unused bytes can be removed. */
  onReleased(): void;
}

interface ResultFile {
  /** The id from `newId("file")`, which the job stores. A repeated call refers to the same file. */
  readonly id: string;
  readonly organizationId: string;
  /** The key that created the job. */
  readonly keyId: string;
  readonly filename: string;
  readonly contentType: string;
  readonly purpose: ResultPurpose;
}

const STATUS_ATTEMPTS = 5;

/**
 * The files of jobs that run longer than a request, such as fine-tuning jobs. A job keeps the files that it
 * reads, and writes results. A job that does not know its progress can repeat every call.
 */
export class JobFiles {
  readonly #dependencies: JobFilesDependencies;

  constructor(dependencies: JobFilesDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Marks a file as in use. The holder can read its bytes until `release`, even if the owner deletes the
   * file. Throws 404 if the file does not exist, and 400 if it is not processed.
   */
  async use(use: FileUse): Promise<FileRecord> {
    const { sql } = this.#dependencies;
    const file = await findFile(sql, use.organizationId, use.fileId);
    if (file === undefined) throw notFound();
    const decision = decideFileTrigger(file.status, "use");
    if (decision.kind === "refuse") {
      throw new GatewayError("invalid_body", `The file ${file.id} ${decision.reason}.`);
    }
    if (!(await beginFileUse(sql, use))) throw notFound();
    return file;
  }

  /** Returns the bytes of a file in use, deleted or not. Throws 404 if it is not in use. */
  async read(use: FileUse): Promise<ReadableStream<Uint8Array>> {
    const { sql, storage } = this.#dependencies;
    const content = await findFileUse(sql, use);
    if (content === undefined) throw notFound();
    try {
      return await storage.read(content.storageKey, { start: 0, end: content.bytes });
    } catch (error) {
      throw asStorageFailure(error);
    }
  }

  /** Releases all files of a holder. */
  async release(holder: string): Promise<void> {
    await endFileUses(this.#dependencies.sql, holder);
    this.#dependencies.onReleased();
  }

  /** Creates a result file with the status `uploaded`. It has its id, and no content yet. */
  async announceResult(result: ResultFile): Promise<void> {
    await announceFile(this.#dependencies.sql, newFile(result));
  }

  /**
   * Writes the content of an announced file, which is then `processed`. Throws 404 if the file does not exist,
   * 400 if its status is `error`, 403 if the content exceeds the storage quota, and 503 if the content cannot be
   * stored now.
   */
  async writeResult(
    result: ResultFile,
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<FileRecord> {
    const { sql, uploads } = this.#dependencies;
    const before = await findFile(sql, result.organizationId, result.id);
    if (before === undefined) throw notFound();
    const decision = decideFileTrigger(before.status, "succeed");
    if (decision.kind === "stay") return before;
    if (decision.kind === "refuse") {
      throw new GatewayError("invalid_body", `The file ${result.id} ${decision.reason}.`);
    }
    try {
      return await uploads.store(result.organizationId, async (stored) => {
        for await (const piece of content) await stored.write(piece);
        await stored.end();
        return stored.finish(() => newFile(result), true);
      });
    } catch (error) {
      if (!(error instanceof NotWaitingError)) throw asStorageFailure(error);
      // Another attempt of the same job has written the file, or it was deleted.
      return (await findFile(sql, result.organizationId, result.id)) ?? Promise.reject(notFound());
    }
  }

  /**
   * Changes the status of an existing file without its content. No other function does this. Throws 404 if the
   * file does not exist, 400 if the status does not allow the change, and 503 if it changes at every attempt.
   */
  async trigger(
    file: { readonly id: string; readonly organizationId: string },
    trigger: FileTrigger,
    details: string | null = null,
  ): Promise<FileStatus> {
    const { sql } = this.#dependencies;
    for (let attempt = 1; attempt <= STATUS_ATTEMPTS; attempt++) {
      const current = await findFile(sql, file.organizationId, file.id);
      if (current === undefined) throw notFound();
      const decision = decideFileTrigger(current.status, trigger);
      if (decision.kind === "stay") return current.status;
      if (decision.kind === "refuse") {
        throw new GatewayError("invalid_body", `The file ${file.id} ${decision.reason}.`);
      }
      const change = { from: current.status, to: decision.status, details };
      const ids = { fileId: file.id, organizationId: file.organizationId };
      if (await updateFileStatus(sql, { ...ids, ...change })) return decision.status;
    }
    throw overloaded("The file is changing; try again.");
  }
}

function newFile(result: ResultFile) {
  return {
    ...result,
    createdAtMs: timeOfId(result.id),
    lifetimeSeconds: null,
  };
}

function notFound(): GatewayError {
  return new GatewayError("file_not_found", "There is no such file.");
}

/**
 * The statuses of a file (spec 3.2):
 *
 * - `uploaded`: the file has an id, and its content is still being made. A download gives an empty body.
 *   Only result files are ever visible in this status: the job that makes them announces them. An upload of
 *   a caller is checked while it streams in, and exists only after its last byte.
 * - `processed`: the content is complete and valid. It never changes. Uploads begin here.
 * - `error`: the content could not be made, or its reader found it unusable. `status_details` gives the
 *   reason. This status is final. Existing bytes can still be read.
 *
 * The triggers: `use`, a job begins to work with the content; `succeed`, the content is complete; `fail`,
 * the content is unusable. A job that does not know the result of its last attempt can repeat a trigger,
 * which changes nothing. A deleted file has no status and accepts no trigger.
 */

export type FileTrigger = "use" | "succeed" | "fail";

type FileDecision =
  | { readonly kind: "become"; readonly status: FileStatus }
  /** The trigger was already applied, or requests no change. */
  | { readonly kind: "stay" }
  | { readonly kind: "refuse"; readonly reason: string };

const STAY: FileDecision = { kind: "stay" };

export function decideFileTrigger(status: FileStatus, trigger: FileTrigger): FileDecision {
  switch (status) {
    case "uploaded":
      if (trigger === "succeed") return { kind: "become", status: "processed" };
      if (trigger === "fail") return { kind: "become", status: "error" };
      return { kind: "refuse", reason: "is still being processed" };
    case "processed":
      return trigger === "fail" ? { kind: "become", status: "error" } : STAY;
    case "error":
      return trigger === "fail" ? STAY : { kind: "refuse", reason: "is in error" };
  }
}
