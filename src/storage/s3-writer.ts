import { StorageError, type StorageWriter } from "./interface.ts";
import type { S3Requests } from "./s3-requests.ts";
import { xmlTexts } from "./xml-texts.ts";

/** The least that S3 takes; 10,000 of them, the most there may be, are 50 GB. */
export const PART_BYTES = 5 * 1024 * 1024;
const FIRST_BUFFER_BYTES = 64 * 1024;

/**
 * Writes an object: in one piece where it fits into one part, otherwise part after part. One part is
 * filled while the one before it is on its way, so that two are held in memory and no more.
 */
export class S3Writer implements StorageWriter {
  readonly #requests: S3Requests;
  readonly #key: string;
  #filling = new Uint8Array(FIRST_BUFFER_BYTES);
  #filledBytes = 0;
  /** The other of the two buffers, while no part is on its way. */
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
    for (let taken = 0; taken < piece.byteLength; ) {
      if (this.#filledBytes === PART_BYTES) await this.#sendPart();
      const bytes = Math.min(PART_BYTES - this.#filledBytes, piece.byteLength - taken);
      this.#makeRoom(this.#filledBytes + bytes);
      this.#filling.set(piece.subarray(taken, taken + bytes), this.#filledBytes);
      this.#filledBytes += bytes;
      taken += bytes;
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
    // The memory of the smaller one is free at once.
    const larger = this.#filling.buffer.transfer(Math.min(roomBytes, PART_BYTES));
    this.#filling = new Uint8Array(larger);
  }

  /** Resolves when the part before it has arrived and this one is on its way. */
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
    // It is awaited with the next part; until then nobody listens.
    this.#sending.catch(() => {});
  }

  async #begin(): Promise<string> {
    const answer = await this.#request("POST", { uploads: "" }, undefined, [200]);
    const [uploadId] = xmlTexts(answer, "UploadId");
    if (uploadId === undefined) throw new StorageError("the store named no upload");
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
    // An error may come with 200, after spaces that kept the connection open; and where the answer to a
    // first attempt was lost, the second one finds no upload any more, but the object.
    if (xmlTexts(answer, "ETag").length > 0 && !answer.includes("<Error>")) return;
    const found = await this.#requests.send({ method: "HEAD", key: this.#key }, [200, 404]);
    if (found.status !== 200) throw new StorageError("the store did not put the parts together");
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
