import { AwsClient } from "aws4fetch";
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

/** Between two pieces of an object that is being read. */
const IDLE_TIMEOUT_MS = 60_000;
/** The smallest part that S3 accepts; its maximum of 10,000 parts makes 50 GB. */
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

  /** Always: a bucket's name identifies it, unlike the path of a folder. */
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

  /** Passes the bytes on by demand; errors if they stall or if their number is wrong. */
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
    // `transfer` frees the memory of the smaller buffer at once.
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
    // S3 can send an error with status 200, because it opens the answer early to keep the connection. And
    // if the answer to a first attempt was lost, the retry gets 404 although the object is complete.
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

function objectKey(key: string): string {
  assertStorageKey(key);
  return FOLDER + key;
}

interface S3Settings {
  readonly bucket: string;
  /** Undefined: AWS. */
  readonly endpoint: string | undefined;
  readonly region: string | undefined;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

interface S3Request {
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE";
  readonly key?: string | undefined;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
}

const DEFAULT_REGION = "us-east-1";
const ATTEMPTS = 3;
const RETRY_DELAY_MS = 200;
/** From the start of the request, with its body, to the head of the answer. */
const ANSWER_TIMEOUT_MS = 60_000;
const MAX_ERROR_CHARACTERS = 1_000;
/** Larger bodies are passed to fetch in pieces of this size. */
const SEND_BYTES = 256 * 1024;

/**
 * Sends requests of S3's wire protocol, signed with AWS Signature Version 4. The signature covers the hash
 * of the body, so the store refuses changed bytes. A request is sent again after a 5xx or no answer: every
 * request made here is idempotent. The bucket is part of the path, which all compatible stores support.
 */
export class S3Requests {
  readonly #client: AwsClient;
  readonly #bucketUrl: string;
  readonly #clock: Clock;

  constructor(settings: S3Settings, clock: Clock) {
    const region = settings.region ?? DEFAULT_REGION;
    const endpoint = settings.endpoint ?? `https://s3.${region}.amazonaws.com`;
    this.#client = new AwsClient({
      accessKeyId: settings.accessKeyId,
      secretAccessKey: settings.secretAccessKey,
      service: "s3",
      region,
      retries: 0,
    });
    this.#bucketUrl = `${endpoint}/${settings.bucket}`;
    this.#clock = clock;
  }

  /** Resolves with an answer of an accepted status. Throws StorageError. */
  async send(request: S3Request, accepted: readonly number[]): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const answer = await this.#sendOnce(request).catch((error: unknown) => error as Error);
      if (answer instanceof Response && accepted.includes(answer.status)) return answer;
      const isTransient = !(answer instanceof Response) || answer.status >= 500;
      if (!isTransient || attempt === ATTEMPTS) throw await refused(request, answer);
      if (answer instanceof Response) await answer.body?.cancel();
      await new Promise<void>((resolve) => this.#clock.after(RETRY_DELAY_MS * attempt, resolve));
    }
  }

  /** A URL for one GET until it expires; the query sets the expiry and the headers of the answer. */
  async presign(key: string, query: Readonly<Record<string, string>>): Promise<string> {
    const signed = await this.#client.sign(this.#url(key, query), {
      method: "GET",
      aws: { signQuery: true },
    });
    return signed.url;
  }

  async #sendOnce(request: S3Request): Promise<Response> {
    const { method, body } = request;
    const hash = new Bun.CryptoHasher("sha256").update(body ?? "").digest("hex");
    const signed = await this.#client.sign(this.#url(request.key, request.query), {
      method,
      headers: { ...request.headers, "x-amz-content-sha256": hash },
    });
    const waiting = new AbortController();
    const cancelTimer = this.#clock.after(ANSWER_TIMEOUT_MS, () =>
      waiting.abort(new StorageError("the store does not answer")),
    );
    const isLarge = body instanceof Uint8Array && body.byteLength > SEND_BYTES;
    // Without this header Bun sends a stream in chunked encoding, which S3 refuses.
    if (isLarge) signed.headers.set("content-length", String(body.byteLength));
    try {
      return await fetch(signed.url, {
        method,
        headers: signed.headers,
        body: (isLarge ? inPieces(body) : body) as BodyInit | undefined,
        redirect: "manual",
        signal: waiting.signal,
        decompress: false,
      });
    } finally {
      cancelTimer();
    }
  }

  #url(key: string | undefined, query: Readonly<Record<string, string>> = {}): string {
    const url = new URL(key === undefined ? this.#bucketUrl : `${this.#bucketUrl}/${key}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return url.href;
  }
}

/** Streams the bytes on demand; fetch would copy a whole body and double its memory. */
function inPieces(bytes: Uint8Array): ReadableStream<Uint8Array> {
  let sentBytes = 0;
  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        controller.enqueue(bytes.subarray(sentBytes, sentBytes + SEND_BYTES));
        sentBytes += SEND_BYTES;
        if (sentBytes >= bytes.byteLength) controller.close();
      },
    },
    { highWaterMark: 0 },
  );
}

async function refused(request: S3Request, answer: Response | Error): Promise<StorageError> {
  if (answer instanceof StorageError) return answer;
  if (answer instanceof Error) return new StorageError("the store cannot be reached", answer);
  const text = await answer.text().catch(() => "");
  return new StorageError(
    `the store answers ${answer.status} to ${request.method}: ${text.slice(0, MAX_ERROR_CHARACTERS)}`,
  );
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&amp;": "&",
  "&lt;": "<",
  "&gt;": ">",
  "&quot;": '"',
  "&apos;": "'",
};

/**
 * The content of each element with this name. Sufficient for the answers of S3, which have no CDATA and no
 * element inside another one of the same name.
 */
function xmlTexts(xml: string, element: string): string[] {
  const pattern = new RegExp(`<${element}(?:\\s[^>]*)?>([\\s\\S]*?)</${element}>`, "g");
  return [...xml.matchAll(pattern)].map(([, text]) =>
    text!.includes("<") ? text! : text!.replace(/&(?:amp|lt|gt|quot|apos);/g, (e) => ENTITIES[e]!),
  );
}
