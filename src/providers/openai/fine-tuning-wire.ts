import {
  BrokenAnswer,
  type ProviderJob,
  type ProviderJobEvent,
  type ProviderJobFailure,
} from "../fine-tuning.ts";

type Fields = Readonly<Record<string, unknown>>;

/** What names something at a provider: it goes into addresses and into the database. */
const NAME = /^[\x21-\x7e]{1,256}$/;
/** The last second of the year 9999. */
const MAX_UNIX_SECONDS = 253_402_300_799;
const MAX_MESSAGE_CHARACTERS = 2_000;
/** Of an event's data, as JSON. */
const MAX_DATA_CHARACTERS = 4_000;
/** Key of the metadata that tells whose job it is. */
export const TAG_KEY = "gateway_job";

const STATUSES: Readonly<Record<string, ProviderJob["status"]>> = {
  running: "running",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
};

/** An object with an id, such as every create and every read answers. Throws BrokenAnswer. */
export function readObject(body: unknown, what: string): Fields & { readonly id: string } {
  const fields = asFields(body);
  const id = asText(fields.id);
  if (id === undefined || !NAME.test(id)) {
    throw new BrokenAnswer(`what is no ${what}`);
  }
  return { ...fields, id };
}

/** The members of a list. Throws BrokenAnswer. */
export function readList(body: unknown, what: string): readonly unknown[] {
  const { data } = asFields(body);
  if (!Array.isArray(data)) throw new BrokenAnswer(`what is no list of ${what}`);
  return data;
}

/** A job as OpenAI tells it. Throws BrokenAnswer where it says nothing that can be acted on. */
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

export function isTagged(body: unknown, tag: string): boolean {
  return asFields(asFields(body).metadata)[TAG_KEY] === tag;
}

/** Undefined for what is no event. */
export function readEvent(body: unknown): ProviderJobEvent | undefined {
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

/** What a database and a client can hold. */
function publishable(text: string): string {
  return text.replaceAll("\0", "").slice(0, MAX_MESSAGE_CHARACTERS).toWellFormed();
}

function boundedData(data: unknown): Fields {
  const fields = asFields(data);
  let json: string;
  try {
    json = JSON.stringify(fields);
  } catch {
    // Nested more deeply than it can be written out again.
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
