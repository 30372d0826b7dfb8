/** What a provider says of a failure, read from the shapes that OpenAI-wire servers are known to send. */
export interface ProviderComplaint {
  readonly message: string | undefined;
  readonly param: string | null;
  /** Names of the failure: code, type and status words, in lower case. */
  readonly codes: readonly string[];
  /** An HTTP status that the body itself names. */
  readonly status: number | undefined;
  /** Google's RetryInfo, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** Whether it tells of a moderation decision. */
  readonly moderated: boolean;
}

const SILENT: ProviderComplaint = {
  message: undefined,
  param: null,
  codes: [],
  status: undefined,
  retryAfterMs: undefined,
  moderated: false,
};

type Fields = Readonly<Record<string, unknown>>;

/** Reads the complaint out of an error body's text; one that is no JSON says nothing. */
export function readComplaint(text: string): ProviderComplaint {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return SILENT;
  }
  return complaintOf(body);
}

/**
 * OpenAI `{error: {message, type, param, code}}`, a list of one such (Google), `{error: "…", code}`
 * (xAI), `{message, type, code}` (Mistral), `{detail: …}` (FastAPI servers).
 */
export function complaintOf(body: unknown): ProviderComplaint {
  const outer = asFields(Array.isArray(body) ? body[0] : body);
  if (outer === undefined) return SILENT;
  const error = asFields(outer.error) ?? outer;
  const metadata = asFields(error.metadata);
  const issue = firstIssue(error.detail) ?? firstIssue(asFields(error.message)?.detail);
  const status = statusIn(error.code) ?? statusIn(error.status);
  return {
    message:
      asText(outer.error) ??
      joinedMessage(asText(error.message), asText(metadata?.raw)) ??
      asText(error.detail) ??
      issue?.message,
    param: asText(error.param)?.slice(0, 200) ?? issue?.param ?? null,
    codes: codesOf(outer, error),
    status,
    retryAfterMs: retryInfoMs(error.details),
    moderated: metadata !== undefined && "flagged_input" in metadata,
  };
}

function codesOf(outer: Fields, error: Fields): string[] {
  const inner = asFields(error.innererror) ?? asFields(error.inner_error);
  return [error.code, error.type, error.status, outer.code, inner?.code]
    .filter((code) => typeof code === "string")
    .map((code) => code.toLowerCase());
}

/** OpenRouter's own message is "Provider returned error"; what the provider said is beside it. */
function joinedMessage(message: string | undefined, raw: string | undefined): string | undefined {
  if (message === undefined) return raw;
  return raw === undefined ? message : `${message}: ${raw}`;
}

/** The first entry of a validation error of pydantic: `[{loc: ["body", "n"], msg}]`. */
function firstIssue(detail: unknown): { message: string; param: string | null } | undefined {
  const issue = asFields(Array.isArray(detail) ? detail[0] : undefined);
  const message = asText(issue?.msg);
  if (issue === undefined || message === undefined) return undefined;
  if (!Array.isArray(issue.loc)) return { message, param: null };
  const path = issue.loc.filter((part) => typeof part === "string" || typeof part === "number");
  const param = (path[0] === "body" ? path.slice(1) : path).join(".").slice(0, 200);
  return param === "" ? { message, param: null } : { message: `${param}: ${message}`, param };
}

/** `details: [{"@type": "…google.rpc.RetryInfo", retryDelay: "34.4s"}]` */
function retryInfoMs(details: unknown): number | undefined {
  if (!Array.isArray(details)) return undefined;
  for (const detail of details) {
    const delay = asText(asFields(detail)?.retryDelay);
    const seconds = delay === undefined ? null : /^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(delay);
    if (seconds !== null) return Number(seconds[1]) * 1000;
  }
  return undefined;
}

function statusIn(value: unknown): number | undefined {
  const status = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof status === "number" && Number.isInteger(status) && status >= 400 && status < 600
    ? status
    : undefined;
}

function asFields(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : undefined;
}

function asText(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
