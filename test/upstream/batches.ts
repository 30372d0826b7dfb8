import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";
import { type BatchFile, ENDED, PlannedBatches, type UpstreamBatch } from "./planned-batches.ts";
import { refusal } from "./wire.ts";

/** What a live call of a request in a batch is answered with. */
export type RunLine = (
  url: string,
  body: JsonObject,
  batchId: string,
) => Promise<{ status: number; body: JsonObject }>;

/** OpenAI's endpoints for batches and their files, as its published description has them. */
export class UpstreamBatches extends PlannedBatches {
  readonly #run: RunLine;

  constructor(nowMs: () => number, run: RunLine) {
    super(nowMs);
    this.#run = run;
  }

  /**
   * Undefined where it is no request of these; null where the connection is to be cut.
   *
   * @param form of an upload
   */
  async answer(
    request: Request,
    url: URL,
    form: FormData | undefined,
  ): Promise<Response | null | undefined> {
    const [, root, id = "", verb = ""] =
      /^\/v1\/(files|batches)\/?([^/]*)\/?(.*)$/.exec(url.pathname) ?? [];
    if (root === "batches") return this.#batches(request, url, id, verb);
    if (root !== "files") return undefined;
    if (form !== undefined) return form.get("purpose") === "batch" ? this.#upload(form) : undefined;
    if (id !== "") return this.#file(request, id, verb);
    if (url.searchParams.get("purpose") !== "batch") return undefined;
    const lacking = this.#lacking();
    if (lacking !== undefined) return lacking;
    const files = this.records.files.filter(({ isDeleted }) => !isDeleted).map(fileShape);
    return Response.json({ object: "list", data: files.reverse(), has_more: false });
  }

  #lacking(): Response | undefined {
    if (this.current.lists === "lacking") return refusal(405, "Not allowed");
    return this.current.lists === "unavailable" ? refusal(503, "Not now") : undefined;
  }

  async #upload(form: FormData): Promise<Response | null> {
    if (this.current.upload === "refuse") return refusal(400, "Invalid file format");
    const file = form.get("file");
    if (!(file instanceof File)) return refusal(400, "there is no file");
    const fields = [...form].flatMap(([name, value]) =>
      typeof value === "string" ? [[name, value] as const] : [],
    );
    const added = this.#addFile(file.name, await file.text(), Object.fromEntries(fields));
    await this.stalled("upload");
    return this.current.upload === "cut" ? null : Response.json(fileShape(added));
  }

  #addFile(filename: string, content: string, form: Record<string, string>): BatchFile {
    const id = `file-batch-${this.records.files.length + 1}`;
    const file = { id, filename, content, form, isDeleted: false };
    this.records.files.push(file);
    return file;
  }

  async #file(request: Request, id: string, verb: string): Promise<Response | undefined> {
    if (!id.startsWith("file-batch-")) return undefined;
    const file = this.records.files.find((one) => one.id === id && !one.isDeleted);
    if (file === undefined) return refusal(404, `No such File object: ${id}`);
    if (request.method === "DELETE") {
      file.isDeleted = true;
      return Response.json({ id, object: "file", deleted: true });
    }
    if (verb !== "content") return Response.json(fileShape(file));
    const batch = this.records.batches.find((one) => file.filename.startsWith(`${one.id}_`));
    if (batch !== undefined) batch.resultsRead += 1;
    await this.stalled("results");
    const response = { status_code: 200, request_id: "up_x", body: {} };
    const unknown = { id: "batch_req_x", custom_id: "none", response, error: null };
    return this.sentResults(file.content, JSON.stringify(unknown));
  }

  async #batches(request: Request, url: URL, id: string, verb: string): Promise<Response | null> {
    if (id === "") return request.method === "POST" ? this.#create(request) : this.#list(url);
    const batch = this.records.batches.find((one) => one.id === id);
    if (batch === undefined) return refusal(404, `No batch found with id '${id}'.`);
    if (verb === "cancel") {
      if (ENDED.includes(this.statusOf(batch))) {
        return refusal(409, `Cannot cancel a batch with status '${this.statusOf(batch)}'.`);
      }
      batch.isCancelled = true;
      batch.reads = 0;
      await this.stalled("cancel");
      return Response.json(await this.#shapeOf(batch));
    }
    await this.stalled("read");
    if (this.current.read === "lost") return refusal(404, `No batch found with id '${id}'.`);
    if (this.current.read === "garbage") return new Response("<html>", { status: 200 });
    if (this.current.read === "unavailable") return new Response("{}", { status: 503 });
    const shape = await this.#shapeOf(batch);
    batch.reads += 1;
    return Response.json(shape);
  }

  async #create(request: Request): Promise<Response | null> {
    const body = asObject(await request.json());
    const trouble = this.trouble();
    if (trouble === "refuse") return refusal(400, "Invalid value for 'endpoint'.");
    if (trouble === "unauthorized") return refusal(401, "Incorrect API key provided");
    if (trouble === "busy") {
      return new Response("{}", { status: 429, headers: { "retry-after": "1" } });
    }
    const file = this.records.files.find(({ id }) => id === body.input_file_id);
    if (file === undefined || file.isDeleted) return refusal(400, "invalid input_file_id");
    if (body.completion_window !== "24h") return refusal(400, "invalid completion_window");
    const requests = file.content
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => asObject(JSON.parse(line)))
      .map((line) => ({
        id: asText(line.custom_id),
        // Lines of Mistral's have none.
        url: asText(line.url ?? body.endpoint),
        body: asObject(line.body),
      }));
    const fault = faultOf(requests, body.endpoint);
    if (fault !== undefined) return refusal(400, fault);
    const id = `batch_${this.records.batches.length + 1}`;
    const batch = this.add({ id, request: body, requests }, request.headers);
    await this.stalled("create");
    if (trouble === "cut") return null;
    if (trouble === "garbage") return Response.json({ object: "nothing" });
    return Response.json(await this.#shapeOf(batch));
  }

  /** Newest first, by `after` and `limit`. */
  async #list(url: URL): Promise<Response> {
    const lacking = this.#lacking();
    if (lacking !== undefined) return lacking;
    const all = this.records.batches.toReversed();
    const after = url.searchParams.get("after");
    const start = after === null ? 0 : all.findIndex(({ id }) => id === after) + 1;
    const page = all.slice(start, start + (asCount(Number(url.searchParams.get("limit"))) || 20));
    const data = await Promise.all(page.map((batch) => this.#shapeOf(batch)));
    return Response.json({
      object: "list",
      data,
      has_more: start + page.length < all.length,
      first_id: page[0]?.id ?? null,
      last_id: page.at(-1)?.id ?? null,
    });
  }

  async #shapeOf(batch: UpstreamBatch): Promise<JsonObject> {
    const status = this.statusOf(batch);
    const hasResults = ENDED.includes(status) && status !== "failed";
    if (hasResults) await this.#finish(batch);
    const made = (name: string) =>
      this.records.files.find(({ filename }) => filename === `${batch.id}_${name}.jsonl`);
    const lines = (name: string) => (made(name)?.content ?? "").split("\n").length - 1;
    const failure = this.current.failure ?? { code: "invalid_json_line", message: "no JSON" };
    const createdAt = Math.floor(batch.createdAtMs / 1_000);
    return {
      id: batch.id,
      object: "batch",
      endpoint: batch.request.endpoint,
      errors: status === "failed" ? { object: "list", data: [{ ...failure, line: 1 }] } : null,
      input_file_id: batch.request.input_file_id,
      completion_window: "24h",
      status,
      output_file_id: made("output")?.id ?? null,
      error_file_id: made("error")?.id ?? null,
      created_at: createdAt,
      expires_at: createdAt + 86_400,
      request_counts: {
        total: batch.requests.length,
        completed: lines("output"),
        failed: lines("error"),
      },
      metadata: batch.request.metadata ?? null,
    };
  }

  /** Runs the requests, once. */
  async #finish(batch: UpstreamBatch): Promise<void> {
    if (batch.results !== null) return;
    batch.results = "";
    const status = this.statusOf(batch);
    const run = this.runOf(batch);
    const lines = { output: "", error: "" };
    for (const [at, { id, url, body }] of batch.requests.entries()) {
      const head = { id: `batch_req_${at + 1}`, custom_id: id };
      if (at >= run) {
        const code = `batch_${status}`;
        const error = { code, message: "This request could not be executed." };
        lines.error += `${JSON.stringify({ ...head, response: null, error })}\n`;
        continue;
      }
      const answer = await this.#run(url, body, batch.id);
      const name = answer.status < 400 ? "output" : "error";
      const told = this.current.body === undefined ? answer.body : JSON.parse(this.current.body);
      const response = { status_code: answer.status, request_id: `up_${at + 1}`, body: told };
      lines[name] += `${JSON.stringify({ ...head, response, error: null })}\n`;
    }
    batch.results = lines.output + lines.error;
    for (const [name, content] of Object.entries(lines)) {
      if (content !== "") this.#addFile(`${batch.id}_${name}.jsonl`, content, {});
    }
  }
}

function faultOf(
  requests: readonly { id: string; url: string; body: JsonObject }[],
  endpoint: unknown,
): string | undefined {
  if (requests.length === 0) return "The file is empty.";
  if (requests.some(({ url }) => url !== endpoint)) return "A url is not the endpoint.";
  if (new Set(requests.map(({ body }) => body.model)).size > 1) return "There is a second model.";
  if (new Set(requests.map(({ id }) => id)).size < requests.length) return "A custom_id is twice.";
  if (requests.some(({ body }) => body.stream === true)) return "stream is not supported.";
  if (requests.some(({ body }) => asArray(body.input).includes(""))) return "An input is empty.";
  return undefined;
}

function fileShape({ id, filename, content }: BatchFile): JsonObject {
  return {
    id,
    object: "file",
    bytes: Buffer.byteLength(content),
    created_at: 1_700_000_000,
    filename,
    purpose: "batch",
    status: "processed",
  };
}
