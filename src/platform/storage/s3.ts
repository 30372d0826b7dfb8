import type { Clock } from "../../lib/clock.ts";
import {
  assertStorageKey,
  type ByteRange,
  type FileStorage,
  type SignedAddress,
  StorageError,
  type StorageWriter,
} from "./interface.ts";
import { S3Read } from "./s3-read.ts";
import { S3Requests, type S3Settings, xmlTexts } from "./s3-requests.ts";

/**
 * The smallest part that S3 accepts, in bytes. With its maximum of 10,000 parts an object can have
 * 50 GB.
 */
export const PART_BYTES = 5 * 1024 * 1024;
const FIRST_BUFFER_BYTES = 64 * 1024;
const FOLDER = "files/";

/** Files in a bucket of S3 or of a store with the same wire protocol (Amazon S3 API Reference, 2006-03-01). */
export class S3Storage implements FileStorage {
  readonly #requests: S3Requests;
  readonly #clock: Clock;

  constructor(settings: S3Settings, clock: Clock) {
    this.#requests = new S3Requests(settings, clock);
    this.#clock = clock;
  }

  /** Always resolves: a bucket's name identifies it, unlike the path of a folder. */
  async assertOurs(): Promise<void> {}

  write(key: string): StorageWriter {
    return new S3Writer(this.#requests, objectKey(key));
  }

  async read(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array>> {
    if (range !== undefined && range.end <= range.start) return new Blob([]).stream();
    const reading = new S3Read(this.#requests, this.#clock, { key: objectKey(key), range });
    return reading.open();
  }

  async remove(key: string): Promise<void> {
    await this.#abortUploads(objectKey(key));
    const answer = await this.#requests.send(
      { method: "DELETE", key: objectKey(key) },
      [200, 204, 404],
    );
    await answer.body?.cancel();
  }

  async isEmpty(): Promise<boolean> {
    const query = { "list-type": "2", prefix: FOLDER, "max-keys": "1" };
    const answer = await this.#requests.send({ method: "GET", query }, [200]);
    return xmlTexts(await answer.text(), "Contents").length === 0;
  }

  signedUrl(key: string, address: SignedAddress): Promise<string> {
    return this.#requests.presign(objectKey(key), {
      "X-Amz-Expires": String(address.expiresInSeconds),
      "response-content-type": address.contentType,
      "response-content-disposition": address.contentDisposition,
    });
  }

  /** Aborts the uploads that a dead process started under this key; only the store still knows their ids. */
  async #abortUploads(key: string): Promise<void> {
    const answer = await this.#requests.send(
      { method: "GET", query: { uploads: "", prefix: key } },
      // 501: a store that cannot list uploads expires them by its own rules.
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
}

/**
 * Writes an object: with one PUT if it fits into one part, otherwise as a multipart upload. It fills one
 * part while it sends the previous one, so at most two parts are in memory.
 */
class S3Writer implements StorageWriter {
  readonly #requests: S3Requests;
  readonly #key: string;
  #filling = new Uint8Array(FIRST_BUFFER_BYTES);
  #filledBytes = 0;
  /** The second buffer, while no part is being sent. */
  #spare: Uint8Array<ArrayBuffer> | undefined;
  #sending: Promise<void> | undefined;
  #uploadId: string | undefined;
  readonly #etags: string[] = [];
  #isFinished = false;
  #isAborted = false;

  constructor(requests: S3Requests, key: string) {
    this.#requests = requests;
    this.#key = key;
  }

  async write(piece: Uint8Array): Promise<void> {
    for (let writtenBytes = 0; writtenBytes < piece.byteLength; ) {
      if (this.#filledBytes === PART_BYTES) await this.#sendPart();
      const bytes = Math.min(PART_BYTES - this.#filledBytes, piece.byteLength - writtenBytes);
      this.#makeRoom(this.#filledBytes + bytes);
      this.#filling.set(piece.subarray(writtenBytes, writtenBytes + bytes), this.#filledBytes);
      this.#filledBytes += bytes;
      writtenBytes += bytes;
    }
  }

  async finish(): Promise<void> {
    if (this.#uploadId === undefined) {
      await this.#request("PUT", {}, this.#filling.subarray(0, this.#filledBytes), [200]);
    } else {
      if (this.#filledBytes > 0) await this.#sendPart();
      await this.#sending;
      await this.#complete(this.#uploadId);
    }
    this.#isFinished = true;
  }

  async abort(): Promise<void> {
    if (this.#isFinished || this.#isAborted) return;
    this.#isAborted = true;
    await this.#sending?.catch(() => {});
    if (this.#uploadId === undefined) return;
    const query = { uploadId: this.#uploadId };
    await this.#request("DELETE", query, undefined, [200, 204, 404]).catch(() => {});
  }

  #makeRoom(bytes: number): void {
    if (bytes <= this.#filling.byteLength) return;
    let roomBytes = this.#filling.byteLength;
    while (roomBytes < bytes) roomBytes *= 2;
    // `transfer` frees the memory of the smaller buffer immediately.
    const larger = this.#filling.buffer.transfer(Math.min(roomBytes, PART_BYTES));
    this.#filling = new Uint8Array(larger);
  }

  /** Resolves when the previous part is stored and sending of this one has started. */
  async #sendPart(): Promise<void> {
    this.#uploadId ??= await this.#begin();
    await this.#sending;
    const full = this.#filling;
    const bytes = this.#filledBytes;
    this.#filling = this.#spare ?? new Uint8Array(PART_BYTES);
    this.#spare = undefined;
    this.#filledBytes = 0;
    this.#sending = this.#put(this.#uploadId, full.subarray(0, bytes)).then(() => {
      this.#spare = full;
    });
    // The next part or `finish` awaits it; without a handler until then, a rejection would be unhandled.
    this.#sending.catch(() => {});
  }

  async #begin(): Promise<string> {
    const answer = await this.#request("POST", { uploads: "" }, undefined, [200]);
    const [uploadId] = xmlTexts(answer, "UploadId");
    if (uploadId === undefined) throw new StorageError("the store returned no upload id");
    return uploadId;
  }

  async #put(uploadId: string, part: Uint8Array): Promise<void> {
    const number = this.#etags.length;
    this.#etags.push("");
    const answer = await this.#requests.send(
      {
        method: "PUT",
        key: this.#key,
        query: { partNumber: String(number + 1), uploadId },
        body: part,
      },
      [200],
    );
    await answer.body?.cancel();
    this.#etags[number] = answer.headers.get("etag") ?? "";
  }

  async #complete(uploadId: string): Promise<void> {
    const parts = this.#etags.map(
      (etag, index) =>
        `<Part><PartNumber>${index + 1}</PartNumber><ETag>${etag.replaceAll('"', "&quot;")}</ETag></Part>`,
    );
    const body = `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
    const answer = await this.#request("POST", { uploadId }, body, [200, 404]);
    // S3 can send an error with status 200, because it opens the answer early to keep the connection. And
    // if the answer to a first attempt was lost, the retry gets 404 although the object is complete.
    if (xmlTexts(answer, "ETag").length > 0 && !answer.includes("<Error>")) return;
    const object = await this.#requests.send({ method: "HEAD", key: this.#key }, [200, 404]);
    if (object.status !== 200) throw new StorageError("the store did not complete the upload");
  }

  async #request(
    method: "PUT" | "POST" | "DELETE",
    query: Readonly<Record<string, string>>,
    body: Uint8Array | string | undefined,
    accepted: readonly number[],
  ): Promise<string> {
    const request = { method, key: this.#key, query, ...(body !== undefined && { body }) };
    return (await this.#requests.send(request, accepted)).text();
  }
}

function objectKey(key: string): string {
  assertStorageKey(key);
  return FOLDER + key;
}
