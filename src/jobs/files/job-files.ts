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
  /** A use has ended: there may be something to take away. */
  onReleased(): void;
}

interface ResultFile {
  /** Made by the job with `newId("file")`, and kept by it: a repeated call means the same file. */
  readonly id: string;
  readonly organizationId: string;
  readonly filename: string;
  readonly contentType: string;
  readonly purpose: ResultPurpose;
}

const STATUS_ATTEMPTS = 5;

/**
 * Files as a job needs them that works for longer than a request, such as a fine-tuning job: it keeps what
 * it reads, and writes results. Every call may be repeated by a job that does not know how far it came.
 */
export class JobFiles {
  readonly #dependencies: JobFilesDependencies;

  constructor(dependencies: JobFilesDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Marks a file as in use: its bytes can be read by the holder until `release`, though its owner delete
   * it. Throws 404 where there is none, 400 where it is not processed.
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

  /** The bytes of a file in use, deleted or not. Throws 404 where it is not in use. */
  async read(use: FileUse): Promise<ReadableStream<Uint8Array>> {
    const { sql, storage } = this.#dependencies;
    const found = await findFileUse(sql, use);
    if (found === undefined) throw notFound();
    try {
      return await storage.read(found.storageKey, { start: 0, end: found.bytes });
    } catch (error) {
      throw asStorageFailure(error);
    }
  }

  /** The holder is done with all its files. */
  async release(holder: string): Promise<void> {
    await endFileUses(this.#dependencies.sql, holder);
    this.#dependencies.onReleased();
  }

  /** Makes a result file that is `uploaded`: it has its id, and no content yet. */
  async announceResult(result: ResultFile): Promise<void> {
    await announceFile(this.#dependencies.sql, newFile(result));
  }

  /** Gives an announced file its content; it is then `processed`. Throws 403, 404, 503. */
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
      // Another attempt of the same job has written it, or it was deleted.
      return (await findFile(sql, result.organizationId, result.id)) ?? Promise.reject(notFound());
    }
  }

  /**
   * The one place where the status of a file that exists changes without its content. Throws 404, and 400
   * where the file is in a state that does not allow it.
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

/*
 * The status of a file (spec 3.2).
 *
 * uploaded   The file has an id, and its content is still being made. Downloading it gives an empty body.
 *            Only files that the gateway itself writes are ever seen so: results are announced by the job
 *            that makes them. What a caller uploads is checked while it streams in, and exists from its
 *            last byte on.
 * processed  The content is whole and was found good; it never changes again. Uploads begin here.
 * error      The content could not be made, or its reader found it unusable; `status_details` says
 *            why. Final. What bytes there are can still be read.
 *
 * Triggers: `use`, a user such as a fine-tuning job begins to work with the content; `succeed`, the
 * content is whole; `fail`, it is no good. Each may come twice, from a job that does not know whether its
 * last attempt was heard: a repeated one changes nothing. A file that is deleted has no status, and no
 * trigger finds it.
 */

export type FileTrigger = "use" | "succeed" | "fail";

type FileDecision =
  | { readonly kind: "become"; readonly status: FileStatus }
  /** The trigger has been heard already, or asks for no change. */
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
