import { renewFileUploads } from "../../db/queries/file-uploads.ts";
import type { FileRecord } from "../lib/file-record.ts";
import { newId } from "../lib/ids.ts";
import { FileUpload } from "./file-upload.ts";
import { StoredUpload, type StoredUploadDependencies } from "./stored-upload.ts";
import { CheckingThread } from "./threaded-check.ts";
import { UploadSlots } from "./upload-slots.ts";

const RENEW_MS = 10_000;

export interface UploadOptions {
  /** Are known to come. */
  readonly leastBytes: number;
  /** Asked when all bytes are stored, before there is a file. Rejects where there may be none any more. */
  admitAgain(): Promise<void>;
}

/** The uploads that run in this process. */
export class FileUploads {
  readonly #dependencies: StoredUploadDependencies;
  readonly #slots = new UploadSlots();
  readonly #checking: CheckingThread;
  readonly #running = new Set<string>();
  #cancelTimer: (() => void) | undefined;

  constructor(dependencies: StoredUploadDependencies) {
    this.#dependencies = dependencies;
    this.#checking = new CheckingThread(dependencies.onError);
  }

  /**
   * Lets `receive` fill an upload and makes a file of what it received; where either fails nothing is left
   * behind. Throws what `receive` and `admitAgain` throw, and 400, 403, 413, 503.
   */
  async run(
    organizationId: string,
    receive: (upload: FileUpload) => Promise<void>,
    options: UploadOptions,
  ): Promise<FileRecord> {
    const { leastBytes, admitAgain } = options;
    return this.store(organizationId, async (stored) => {
      const upload = new FileUpload(stored, this.#checking, organizationId, leastBytes);
      try {
        await receive(upload);
        return await upload.finish(admitAgain);
      } finally {
        upload.close();
      }
    });
  }

  /** Any bytes, unchecked: for files that the gateway makes itself. */
  async store<Result>(
    organizationId: string,
    fill: (stored: StoredUpload) => Promise<Result>,
  ): Promise<Result> {
    this.#slots.take(organizationId);
    const storageKey = newId("obj");
    this.#running.add(storageKey);
    this.#renewSoon();
    try {
      const stored = await StoredUpload.begin(this.#dependencies, { storageKey, organizationId });
      try {
        return await fill(stored);
      } catch (error) {
        await stored.abandon();
        throw error;
      }
    } finally {
      this.#running.delete(storageKey);
      this.#slots.free(organizationId);
    }
  }

  close(): void {
    this.#running.clear();
    this.#cancelTimer?.();
    this.#checking.close();
  }

  /** As long as there are uploads, says now and then that they are alive. */
  #renewSoon(): void {
    this.#cancelTimer ??= this.#dependencies.clock.after(RENEW_MS, () => {
      this.#cancelTimer = undefined;
      if (this.#running.size === 0) return;
      renewFileUploads(this.#dependencies.sql, [...this.#running])
        .catch(this.#dependencies.onError)
        .finally(() => this.#running.size > 0 && this.#renewSoon());
    });
  }
}
