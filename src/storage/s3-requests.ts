import { AwsClient } from "aws4fetch";
import type { Clock } from "../lib/clock.ts";
import { StorageError } from "./interface.ts";

export interface S3Settings {
  readonly bucket: string;
  /** Undefined: AWS. */
  readonly endpoint: string | undefined;
  readonly region: string | undefined;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export interface S3Request {
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE";
  readonly key?: string | undefined;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
}

const DEFAULT_REGION = "us-east-1";
const ATTEMPTS = 3;
const RETRY_DELAY_MS = 200;
/** Until the answer begins; sending a part belongs to it. */
const ANSWER_TIMEOUT_MS = 60_000;
const MAX_ERROR_CHARACTERS = 1_000;
/** Of a large body, handed to the platform at a time. */
const SEND_BYTES = 256 * 1024;

/**
 * Signed requests of S3's wire protocol (AWS Signature Version 4), with bodies of a known hash, so that
 * what arrives changed is refused. Repeated where the store failed or did not answer: every request made
 * here may be repeated. The bucket stands in the path, which every compatible store understands.
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

  /** An answer with one of the statuses. Throws StorageError. */
  async send(request: S3Request, accepted: readonly number[]): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const answer = await this.#sendOnce(request).catch((error: unknown) => error as Error);
      if (answer instanceof Response && accepted.includes(answer.status)) return answer;
      const isPassing = !(answer instanceof Response) || answer.status >= 500;
      if (!isPassing || attempt === ATTEMPTS) throw await refused(request, answer);
      if (answer instanceof Response) await answer.body?.cancel();
      await new Promise<void>((resolve) => this.#clock.after(RETRY_DELAY_MS * attempt, resolve));
    }
  }

  /** An address that is good for a GET until it expires, with answers' headers as asked for. */
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
    // Of a stream the platform does not know the length, and sends it in chunks unless it is told.
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

/** The bytes as they are asked for: of a whole body the platform makes a copy, as large again. */
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
