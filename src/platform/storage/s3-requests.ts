import { AwsClient } from "aws4fetch";
import type { Clock } from "../../lib/clock.ts";
import { StorageError } from "./interface.ts";

export interface S3Settings {
  readonly bucket: string;
  /** Address of the store. If undefined, the address of AWS is used. */
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
/** Milliseconds from the start of the request, with its body, to the head of the answer. */
const ANSWER_TIMEOUT_MS = 60_000;
const MAX_ERROR_CHARACTERS = 1_000;
/** Larger bodies are passed to fetch in pieces of this size. */
const SEND_BYTES = 256 * 1024;

/**
 * Sends requests of S3's wire protocol, signed with AWS Signature Version 4. The signature covers
 * the hash of the body, so the store rejects changed bytes. A request is sent again after a 5xx or
 * no answer: every request made here is idempotent. The bucket is part of the path, which all
 * compatible stores support.
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

  /** Sends a request. Resolves with an answer of an accepted status. Throws StorageError. */
  async send(request: S3Request, accepted: readonly number[]): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const answer = await this.#sendOnce(request).catch((error: unknown) => error as Error);
      if (answer instanceof Response && accepted.includes(answer.status)) return answer;
      const isTransient = !(answer instanceof Response) || answer.status >= 500;
      if (!isTransient || attempt === ATTEMPTS) throw await failureOf(request, answer);
      if (answer instanceof Response) await answer.body?.cancel();
      await new Promise<void>((resolve) => this.#clock.after(RETRY_DELAY_MS * attempt, resolve));
    }
  }

  /**
   * Returns a URL for one GET until it expires. The query sets the expiry and the headers of the
   * answer.
   */
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
    // Without this header Bun sends a stream in chunked encoding, which S3 rejects.
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

/** Returns a stream of the bytes. fetch would copy a whole body and double its memory. */
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

async function failureOf(request: S3Request, answer: Response | Error): Promise<StorageError> {
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
 * Returns the content of each element with this name. Sufficient for the answers of S3, which have
 * no CDATA and no element inside another one of the same name.
 */
export function xmlTexts(xml: string, element: string): string[] {
  const pattern = new RegExp(`<${element}(?:\\s[^>]*)?>([\\s\\S]*?)</${element}>`, "g");
  return [...xml.matchAll(pattern)].map(([, text]) =>
    text!.includes("<") ? text! : text!.replace(/&(?:amp|lt|gt|quot|apos);/g, (e) => ENTITIES[e]!),
  );
}
