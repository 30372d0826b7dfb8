import type { Clock } from "../lib/clock.ts";
import {
  assertStorageKey,
  type ByteRange,
  type FileStorage,
  ObjectMissingError,
  type SignedAddress,
  StorageError,
  type StorageWriter,
} from "./interface.ts";
import { S3Requests, type S3Settings } from "./s3-requests.ts";
import { S3Writer } from "./s3-writer.ts";
import { xmlTexts } from "./xml-texts.ts";

/** A store that stops in the middle of an object is given up. */
const IDLE_TIMEOUT_MS = 60_000;
const FOLDER = "files/";

/** Files in a bucket of S3, or of a store with its wire protocol (Amazon S3 API Reference, 2006-03-01). */
export class S3Storage implements FileStorage {
  readonly #requests: S3Requests;
  readonly #clock: Clock;

  constructor(settings: S3Settings, clock: Clock) {
    this.#requests = new S3Requests(settings, clock);
    this.#clock = clock;
  }

  /** A bucket is the same one for whoever names it. */
  async assertOurs(): Promise<void> {}

  write(key: string): StorageWriter {
    return new S3Writer(this.#requests, objectKey(key));
  }

  async read(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array>> {
    if (range !== undefined && range.end <= range.start) return new Blob([]).stream();
    const headers: Record<string, string> =
      range === undefined ? {} : { range: `bytes=${range.start}-${range.end - 1}` };
    const answer = await this.#requests.send(
      { method: "GET", key: objectKey(key), headers },
      [200, 206, 404],
    );
    const wantedBytes = range && range.end - range.start;
    if (answer.status === 404) {
      await answer.body?.cancel();
      throw new ObjectMissingError(key);
    }
    if (range !== undefined && answer.status === 200 && range.start > 0) {
      await answer.body?.cancel();
      throw new StorageError("the store does not answer with the part that was asked for");
    }
    return this.#watched(answer.body, wantedBytes);
  }

  async remove(key: string): Promise<void> {
    await this.#abortUploads(objectKey(key));
    const answer = await this.#requests.send(
      { method: "DELETE", key: objectKey(key) },
      [200, 204, 404],
    );
    await answer.body?.cancel();
  }

  signedUrl(key: string, address: SignedAddress): Promise<string> {
    return this.#requests.presign(objectKey(key), {
      "X-Amz-Expires": String(address.expiresInSeconds),
      "response-content-type": address.contentType,
      "response-content-disposition": address.contentDisposition,
    });
  }

  /** Uploads that a dead process began under this key; nobody else knows their ids. */
  async #abortUploads(key: string): Promise<void> {
    const answer = await this.#requests.send(
      { method: "GET", query: { uploads: "", prefix: key } },
      // 501: a store that does not list uploads removes them by its own rules.
      [200, 404, 501],
    );
    const listing = await answer.text();
    for (const upload of xmlTexts(listing, "Upload")) {
      const [uploadId] = xmlTexts(upload, "UploadId");
      const [uploadKey] = xmlTexts(upload, "Key");
      if (uploadId === undefined || uploadKey !== key) continue;
      const aborted = await this.#requests.send(
        { method: "DELETE", key, query: { uploadId } },
        [200, 204, 404],
      );
      await aborted.body?.cancel();
    }
  }

  /** Passes bytes on as they are asked for; fails where they stop before their end. */
  #watched(
    body: ReadableStream<Uint8Array> | null,
    wantedBytes: number | undefined,
  ): ReadableStream<Uint8Array> {
    if (body === null) return new Blob([]).stream();
    const reader = body.getReader();
    const clock = this.#clock;
    let passedBytes = 0;
    return new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const idle = Promise.withResolvers<never>();
          const cancelTimer = clock.after(IDLE_TIMEOUT_MS, () => {
            void reader.cancel().catch(() => {});
            idle.reject(new StorageError("the store stopped in the middle of a file"));
          });
          try {
            const { value, done } = await Promise.race([reader.read(), idle.promise]);
            if (!done) {
              passedBytes += value.byteLength;
              return controller.enqueue(value);
            }
          } finally {
            cancelTimer();
          }
          if (wantedBytes !== undefined && passedBytes !== wantedBytes) {
            throw new StorageError("the store sent another number of bytes than asked for");
          }
          controller.close();
        },
        async cancel() {
          await reader.cancel().catch(() => {});
        },
      },
      { highWaterMark: 0 },
    );
  }
}

function objectKey(key: string): string {
  assertStorageKey(key);
  return FOLDER + key;
}
