import { BatchUpload } from "../../batch-upload.ts";
import { type BatchWire, nameIn, objectsIn, withQuery } from "../../batch-wire.ts";
import type { BatchOfResults, BatchResult, NewBatch } from "../../batches.ts";
import { isNotOffered } from "../../fine-tuning.ts";
import { multipartForm } from "../../transport/multipart-upload.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import { resultLine } from "./result-line.ts";

/** How far back a file is looked for. */
const LOOKED_THROUGH_FILES = 500;
/** The provider removes files by then that nothing has removed before. */
const EXPIRY_SECONDS = 7 * 86_400;

interface BatchFilesOptions {
  readonly wire: BatchWire;
  readonly baseUrl: string;
  /** Whether files can be given a time to expire. */
  readonly expire: boolean;
}

/** Files of requests and of results, in OpenAI's form. Methods reject with ProviderFailure. */
export class BatchFiles {
  readonly #wire: BatchWire;
  readonly #baseUrl: string;
  readonly #expire: boolean;

  constructor({ wire, baseUrl, expire }: BatchFilesOptions) {
    this.#wire = wire;
    this.#baseUrl = baseUrl;
    this.#expire = expire;
  }

  /** What a batch states of the files that it makes. */
  get expiryOfResults(): object {
    if (!this.#expire) return {};
    return { output_expires_after: { anchor: "created_at", seconds: EXPIRY_SECONDS } };
  }

  /**
   * Uploads requests and resolves with the id of the file. What they throw is thrown as it is.
   *
   * @param head what goes before the body of a request
   */
  async upload(
    { mark, requests }: Pick<NewBatch, "mark" | "requests">,
    head: (id: string) => string,
    signal: AbortSignal,
  ): Promise<string> {
    const upload = new BatchUpload(requests, { head, tail: "}\n" });
    const { contentType, body } = multipartForm([
      { name: "purpose", value: "batch" },
      ...(this.#expire
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

  /** Files of requests that were uploaded under that mark. */
  async removeOf(mark: string, signal: AbortSignal): Promise<void> {
    const query = `purpose=batch&order=desc&limit=${LOOKED_THROUGH_FILES}`;
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

  /** Of files that each have some of the results. */
  async *results(
    fileIds: readonly string[],
    { ids }: BatchOfResults,
    signal: AbortSignal,
  ): AsyncGenerator<BatchResult> {
    const seen = new Set<string>();
    for (const fileId of fileIds) {
      const url = this.#urlOf(fileId, "/content");
      const options = { failureContext: this.#wire.failureContext };
      yield* this.#wire.results({ url, ids, seen, read: resultLine, options }, signal);
    }
  }

  #urlOf(fileId: string, rest = ""): string {
    return this.#url(`/files/${encodeURIComponent(fileId)}${rest}`);
  }

  #url(path: string): string {
    return endpointUrl(this.#baseUrl, path);
  }
}

function nameOf(mark: string): string {
  return `${mark}.jsonl`;
}
