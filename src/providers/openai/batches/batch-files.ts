import { BatchUpload } from "../../batch-upload.ts";
import {
  type BatchHttpClient,
  type Fields,
  hasStatus,
  nameIn,
  objectsIn,
  withQuery,
} from "../../batch-wire.ts";
import type {
  BatchOfResults,
  BatchRequest,
  BatchResult,
  NewBatch,
  RecordedRequest,
} from "../../batches.ts";
import { BrokenAnswer, isNotOffered } from "../../fine-tuning.ts";
import { multipartForm } from "../../transport/multipart-upload.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import { resultLine } from "./result-line.ts";

/** Number of recent files that are searched. */
const MAX_SEARCHED_FILES = 500;
/** Statuses of a request that was certainly not served. */
const REJECTED_STATUSES = [400, 401, 403, 404, 413, 422, 429];
/** Time after which the provider deletes files that were not deleted before. */
const EXPIRY_SECONDS = 7 * 86_400;

interface BatchFilesOptions {
  readonly wire: BatchHttpClient;
  readonly baseUrl: string;
  /** True if files can have an expiry time. */
  readonly canExpire: boolean;
  /** The query of a list that begins with the newest file, up to the value of its length. */
  readonly newest?: string;
}

/** Files of requests and of results, in OpenAI's form. Methods reject with ProviderFailure. */
export class BatchFiles {
  readonly #wire: BatchHttpClient;
  readonly #baseUrl: string;
  readonly #canExpire: boolean;
  readonly #newest: string;

  constructor({ wire, baseUrl, canExpire, newest = "order=desc&limit" }: BatchFilesOptions) {
    this.#wire = wire;
    this.#baseUrl = baseUrl;
    this.#canExpire = canExpire;
    this.#newest = newest;
  }

  /** Fields of a new batch that set the expiry of its result files. */
  get expiryOfResults(): object {
    if (!this.#canExpire) return {};
    return { output_expires_after: { anchor: "created_at", seconds: EXPIRY_SECONDS } };
  }

  /**
   * Uploads requests and creates their batch. Rethrows errors of both unchanged. If the provider rejects the batch,
   * deletes the file.
   *
   * @param head returns the text before the body of a request
   * @param create creates the batch and returns it
   */
  async batchOf(
    batch: Pick<NewBatch, "mark" | "requests">,
    head: (id: string) => string,
    create: (fileId: string) => Promise<Fields>,
    signal: AbortSignal,
  ): Promise<string> {
    const fileId = await this.#upload(batch, head, signal);
    try {
      return nameIn((await create(fileId)).id, "batch");
    } catch (error) {
      if (hasStatus(error, REJECTED_STATUSES)) await this.remove(fileId, signal);
      throw error;
    }
  }

  async #upload(
    { mark, requests }: Pick<NewBatch, "mark" | "requests">,
    head: (id: string) => string,
    signal: AbortSignal,
  ): Promise<string> {
    const upload = new BatchUpload(requests, { head, tail: "}\n" });
    const { contentType, body } = multipartForm([
      { name: "purpose", value: "batch" },
      ...(this.#canExpire
        ? [
            { name: "expires_after[anchor]", value: "created_at" },
            { name: "expires_after[seconds]", value: String(EXPIRY_SECONDS) },
          ]
        : []),
      {
        name: "file",
        file: {
          name: nameOf(mark),
          contentType: "application/jsonl",
          stream: () => upload.stream(),
        },
      },
    ]);
    const { headers: all } = this.#wire;
    const headers = { ...all, "content-type": contentType };
    try {
      const file = await this.#wire.upload({ url: this.#url("/files"), headers, body }, signal);
      return nameIn(file.id, "file");
    } catch (error) {
      upload.assertRead();
      throw error;
    }
  }

  /** Deletes the request files that were uploaded with the mark. */
  async removeOf(mark: string, signal: AbortSignal): Promise<void> {
    const query = `purpose=batch&${this.#newest}=${MAX_SEARCHED_FILES}`;
    const url = withQuery(this.#url("/files"), query);
    const listed = await this.#wire.object({ method: "GET", url }, signal).catch((error) => {
      if (isNotOffered(error)) return { data: [] };
      throw error;
    });
    for (const { id, filename } of objectsIn(listed.data, "files")) {
      if (filename === nameOf(mark)) await this.remove(nameIn(id, "file"), signal);
    }
  }

  remove(fileId: string, signal: AbortSignal): Promise<void> {
    return this.#wire.ensure({ method: "DELETE", url: this.#urlOf(fileId) }, signal);
  }

  /** Deletes files. Skips values that are not texts. */
  async removeAll(fileIds: readonly unknown[], signal: AbortSignal): Promise<void> {
    for (const fileId of namesIn(fileIds)) await this.remove(fileId, signal);
  }

  /**
   * Yields the results in several files. The provider omits a file that would be empty.
   *
   * @param succeeded the provider's count of results; throws BrokenAnswer if there are fewer
   */
  async *results(
    fileIds: readonly unknown[],
    succeeded: number,
    { ids }: BatchOfResults,
    signal: AbortSignal,
  ): AsyncGenerator<BatchResult> {
    const seen = new Set<string>();
    let answered = 0;
    for (const fileId of namesIn(fileIds)) {
      const url = this.#urlOf(fileId, "/content");
      const options = { failureContext: this.#wire.failureContext };
      const call = { url, ids, seen, read: resultLine, options };
      for await (const result of this.#wire.results(call, signal)) {
        answered += 1;
        yield result;
      }
    }
    if (answered < succeeded) throw new BrokenAnswer("fewer results than it counts");
  }

  #urlOf(fileId: string, rest = ""): string {
    return this.#url(`/files/${encodeURIComponent(fileId)}${rest}`);
  }

  #url(path: string): string {
    return endpointUrl(this.#baseUrl, path);
  }
}

/** Returns the ids among the values. Throws BrokenAnswer if a text is not a valid id. */
export function namesIn(fileIds: readonly unknown[]): string[] {
  const texts = fileIds.filter((id) => typeof id === "string" && id !== "");
  return texts.map((id) => nameIn(id, "file"));
}

function nameOf(mark: string): string {
  return `${mark}.jsonl`;
}

const EMBEDDINGS = "/embeddings";

/** Endpoints whose requests can be batched, one kind in each batch, with their names in batches. */
export class BatchEndpoints {
  readonly #kinds: ReadonlyMap<string, string>;

  /** @param paths below the base URL */
  constructor(baseUrl: string, paths: readonly string[]) {
    this.#kinds = new Map(paths.map((path) => [endpointUrl(baseUrl, path), `/v1${path}`]));
  }

  groupOf({ url, body }: RecordedRequest): Pick<BatchRequest, "kind" | "count"> | undefined {
    const kind = this.#kinds.get(url);
    if (kind === undefined) return undefined;
    if (!kind.endsWith(EMBEDDINGS)) return { kind, count: 1 };
    const text = typeof body === "string" ? body : new TextDecoder().decode(body);
    const { input } = JSON.parse(text) as { readonly input?: unknown };
    return { kind, count: Array.isArray(input) ? input.length : 1 };
  }
}
