import type { Clock } from "../../lib/clock.ts";
import { jsonValue } from "../../lib/json.ts";
import { countTokensUpTo } from "../../lib/token-count.ts";
import {
  BrokenAnswer,
  type FineTuningProvider,
  isNotOffered,
  MAX_READ_EVENTS,
  type ProviderJob,
  type ProviderJobEvent,
  type ProviderJobFailure,
  type TrainingRequest,
  type TrainingUpload,
} from "../fine-tuning.ts";
import { ProviderFailure, type ProviderSettings } from "../interface.ts";
import { readErrorBody, readWhole } from "../transport/bounded-body.ts";
import { failureOfThrown } from "../transport/call-failures.ts";
import { multipartForm } from "../transport/multipart-upload.ts";
import {
  type HttpClient,
  type ProviderRequest,
  sendRequest,
} from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { requestHeaders } from "./chat/chat-provider.ts";
import { failureOfStatus } from "./failure-mapping.ts";
import { openAiVariant } from "./openai-variants.ts";

const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Number of recent files and jobs that are searched for a lost one. */
const MAX_SEARCHED_FILES = 1_000;
const MAX_SEARCHED_JOBS = 100;
const OK = { first: 200, last: 299 } as const;

/** OpenAI's fine-tuning API (schemas of its published description) at a provider's base URL. */
export class OpenAiFineTuning implements FineTuningProvider {
  readonly #settings: ProviderSettings;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #client: HttpClient;

  constructor(
    settings: ProviderSettings,
    dependencies: { readonly clock: Clock; readonly httpClient: HttpClient },
  ) {
    this.#settings = settings;
    const { "content-type": _, ...headers } = requestHeaders(
      settings,
      openAiVariant(settings.type),
    );
    this.#headers = headers;
    this.#clock = dependencies.clock;
    this.#client = dependencies.httpClient;
  }

  async uploadFile(file: TrainingUpload, signal: AbortSignal): Promise<string> {
    const { contentType, body } = multipartForm([
      { name: "purpose", value: "fine-tune" },
      {
        name: "file",
        file: { name: file.name, contentType: "application/jsonl", stream: () => file.content },
      },
    ]);
    const headers = { ...this.#headers, "content-type": contentType };
    const answer = await this.#call("/files", { method: "POST", headers, body }, signal);
    return readObject(answer, "file").id;
  }

  async findFile(name: string, signal: AbortSignal): Promise<string | undefined> {
    const query = `purpose=fine-tune&order=desc&limit=${MAX_SEARCHED_FILES}`;
    const listed = await this.#get(`/files`, query, signal).catch((error) => {
      if (isNotOffered(error)) return { data: [] };
      throw error;
    });
    const files = readList(listed, "files");
    const match = files.find((file) => (file as { filename?: unknown } | null)?.filename === name);
    return match === undefined ? undefined : readObject(match, "file").id;
  }

  deleteFile(fileId: string, signal: AbortSignal): Promise<void> {
    return this.#remove(`/files/${encodeURIComponent(fileId)}`, signal);
  }

  async createJob(request: TrainingRequest, signal: AbortSignal): Promise<ProviderJob> {
    const body = {
      model: request.model,
      training_file: request.trainingFileId,
      ...(request.validationFileId !== undefined && { validation_file: request.validationFileId }),
      ...(request.suffix !== undefined && { suffix: request.suffix }),
      seed: request.seed,
      method: { type: "supervised", supervised: { hyperparameters: request.hyperparameters } },
      metadata: { [TAG_KEY]: request.tag },
    };
    const headers = {
      ...this.#headers,
      "content-type": "application/json",
      "idempotency-key": request.tag,
    };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return readJob(await this.#call("/fine_tuning/jobs", init, signal));
  }

  async findJobs(tag: string, signal: AbortSignal): Promise<ProviderJob[]> {
    // Providers that do not know the filter reject it or list all jobs, so the jobs are filtered again here.
    const limit = `limit=${MAX_SEARCHED_JOBS}`;
    const filter = `metadata%5B${TAG_KEY}%5D=${encodeURIComponent(tag)}`;
    const list = (query: string) => this.#get("/fine_tuning/jobs", query, signal);
    const listed = await list(`${limit}&${filter}`).catch((error) => {
      if (hasStatus(error, [400, 422])) return list(limit);
      throw error;
    });
    return readList(listed, "fine-tuning jobs")
      .filter((job) => isTagged(job, tag))
      .map(readJob)
      .reverse();
  }

  async readJob(jobId: string, signal: AbortSignal): Promise<ProviderJob> {
    const job = readJob(await this.#get(jobPath(jobId), "", signal));
    if (job.id !== jobId) throw new BrokenAnswer("another fine-tuning job");
    return job;
  }

  async readEvents(jobId: string, signal: AbortSignal): Promise<ProviderJobEvent[]> {
    const answer = await this.#get(`${jobPath(jobId)}/events`, `limit=${MAX_READ_EVENTS}`, signal);
    const events = readList(answer, "events").slice(0, MAX_READ_EVENTS);
    return events.flatMap((event) => readEvent(event) ?? []).reverse();
  }

  async cancelJob(jobId: string, signal: AbortSignal): Promise<void> {
    const init = { method: "POST", headers: this.#headers };
    try {
      await this.#call(`${jobPath(jobId)}/cancel`, init, signal);
    } catch (error) {
      // The job has ended, does not exist, or the provider cannot cancel jobs.
      if (!hasStatus(error, [400, 409]) && !isNotOffered(error)) throw error;
    }
  }

  deleteModel(model: string, signal: AbortSignal): Promise<void> {
    return this.#remove(`/models/${encodeURIComponent(model)}`, signal);
  }

  countTokens(text: string, limit: number): Promise<number> {
    return countTokensUpTo(text, limit);
  }

  async #remove(path: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#call(path, { method: "DELETE", headers: this.#headers }, signal);
    } catch (error) {
      if (!isNotOffered(error)) throw error;
    }
  }

  #get(path: string, query: string, signal: AbortSignal): Promise<unknown> {
    return this.#call(path, { method: "GET", headers: this.#headers }, signal, query);
  }

  async #call(
    path: string,
    request: Pick<ProviderRequest, "method" | "headers"> & Partial<ProviderRequest>,
    signal: AbortSignal,
    query = "",
  ): Promise<unknown> {
    try {
      const response = await sendRequest(this.#client, this.#urlOf(path, query), {
        body: "",
        ...request,
        signal,
        connectTimeoutMs: this.#settings.connectTimeoutMs,
        // Requests are so rare that a pooled connection could be dead.
        onNewConnection: true,
      });
      if (response.status < OK.first || response.status > OK.last) {
        const text = await readErrorBody(response, this.#clock);
        const { apiKey } = this.#settings;
        const context = { nowMs: this.#clock.nowMs(), apiKey };
        throw failureOfStatus(response.status, response.headers, text, context);
      }
      return parsed(await readWhole(response, MAX_ANSWER_BYTES));
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  #urlOf(path: string, query: string): string {
    const url = endpointUrl(this.#settings.baseUrl, path);
    if (query === "") return url;
    return `${url}${url.includes("?") ? "&" : "?"}${query}`;
  }
}

function jobPath(jobId: string): string {
  return `/fine_tuning/jobs/${encodeURIComponent(jobId)}`;
}

function hasStatus(error: unknown, statuses: readonly number[]): boolean {
  return error instanceof ProviderFailure && statuses.includes(error.status ?? 0);
}

function parsed(text: string | undefined): unknown {
  if (text === undefined) throw new BrokenAnswer("too many bytes");
  const answer = jsonValue(text);
  if (answer === undefined) throw new BrokenAnswer("a body that is not JSON");
  return answer;
}

type Fields = Readonly<Record<string, unknown>>;

/** Ids that a provider assigns. They are used in URLs and stored in the database. */
const NAME = /^[\x21-\x7e]{1,256}$/;
/** The last second of the year 9999. */
const MAX_UNIX_SECONDS = 253_402_300_799;
const MAX_MESSAGE_CHARACTERS = 2_000;
/** Longest data of an event, as JSON. */
const MAX_DATA_CHARACTERS = 4_000;
/** Key of the metadata that identifies the gateway's job. */
const TAG_KEY = "gateway_job";

const STATUSES: Readonly<Record<string, ProviderJob["status"]>> = {
  running: "running",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
};

/** Returns the object of a response to a create or read. Throws BrokenAnswer if it has no valid id. */
function readObject(body: unknown, what: string): Fields & { readonly id: string } {
  const fields = asFields(body);
  const id = asText(fields.id);
  if (id === undefined || !NAME.test(id)) {
    throw new BrokenAnswer(`an invalid ${what}`);
  }
  return { ...fields, id };
}

/** Returns the entries of a list. Throws BrokenAnswer if the body is not a list. */
function readList(body: unknown, what: string): readonly unknown[] {
  const { data } = asFields(body);
  if (!Array.isArray(data)) throw new BrokenAnswer(`an invalid list of ${what}`);
  return data;
}

/**
 * Parses a job in OpenAI's form. Throws BrokenAnswer if its id, its status or the model of a succeeded job is missing.
 */
export function readJob(body: unknown): ProviderJob {
  const fields = readObject(body, "fine-tuning job");
  const stated = asText(fields.status);
  if (stated === undefined) throw new BrokenAnswer("a fine-tuning job without a status");
  const status = Object.hasOwn(STATUSES, stated) ? STATUSES[stated]! : "waiting";
  const tunedModel = asText(fields.fine_tuned_model);
  if (status === "succeeded" && (tunedModel === undefined || !NAME.test(tunedModel))) {
    throw new BrokenAnswer("a fine-tuning job that succeeded without a model");
  }
  return {
    id: fields.id,
    status,
    tunedModel: status === "succeeded" ? tunedModel : undefined,
    trainedTokens: asCount(fields.trained_tokens),
    estimatedFinish: asUnixSeconds(fields.estimated_finish),
    failure: status === "failed" ? failureOf(asFields(fields.error)) : undefined,
  };
}

function isTagged(body: unknown, tag: string): boolean {
  return asFields(asFields(body).metadata)[TAG_KEY] === tag;
}

/** Parses an event. Returns undefined if it has no valid id. */
function readEvent(body: unknown): ProviderJobEvent | undefined {
  const { id, created_at: createdAt, level, message, type, data } = asFields(body);
  const eventId = asText(id);
  if (eventId === undefined || !NAME.test(eventId)) return undefined;
  return {
    id: eventId,
    createdAt: asUnixSeconds(createdAt) ?? 0,
    level: level === "warn" || level === "error" ? level : "info",
    message: publishable(asText(message) ?? ""),
    type: type === "metrics" ? "metrics" : "message",
    data: boundedData(data),
  };
}

function failureOf({ code, message }: Fields): ProviderJobFailure {
  return {
    code: publishable(asText(code) ?? "training_failed").slice(0, 100),
    message: publishable(asText(message) ?? "The provider gave no reason."),
  };
}

/** Returns a text that the database and clients accept. */
function publishable(text: string): string {
  return text.replaceAll("\0", "").slice(0, MAX_MESSAGE_CHARACTERS).toWellFormed();
}

function boundedData(data: unknown): Fields {
  const fields = asFields(data);
  let json: string;
  try {
    json = JSON.stringify(fields);
  } catch {
    // The data is nested too deeply to be serialized.
    return {};
  }
  return json.length > MAX_DATA_CHARACTERS || json.includes("\\u") ? {} : fields;
}

function asFields(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : {};
}

function asText(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function asUnixSeconds(value: unknown): number | undefined {
  const seconds = asCount(value);
  return seconds !== undefined && seconds <= MAX_UNIX_SECONDS ? seconds : undefined;
}

function asCount(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
