import { jsonValue } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";
import { readWhole } from "./bounded-body.ts";
import { type HttpClient, type ProviderResponse, sendRequest } from "./provider-response.ts";
import { kindOfStatus } from "./status-failure.ts";

const TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 5_000;
const REFUSED: ReadonlySet<number> = new Set([401, 403]);
/** Statuses of a provider without such a list. Only a real call could check the key. */
const NO_LIST: ReadonlySet<number> = new Set([404, 405]);

/**
 * Checks a key by requesting the provider's model list, which is free of charge. A public list accepts every key.
 * Rejects with ProviderFailure; its kind is `misconfigured` if the provider rejects the key.
 */
export async function checkKeyByModelList(
  client: HttpClient,
  url: string,
  headers: Readonly<Record<string, string>>,
): Promise<void> {
  let status: number;
  let reason: string | undefined;
  try {
    const response = await sendRequest(client, url, {
      method: "GET",
      headers: { ...headers, accept: "application/json" },
      body: "",
      signal: AbortSignal.timeout(TIMEOUT_MS),
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
    });
    status = response.status;
    if (status >= 300 && !NO_LIST.has(status)) reason = await errorMessage(response);
    else await response.body?.cancel().catch(() => undefined);
  } catch (error) {
    throw new ProviderFailure("unavailable", "the provider could not be reached", { cause: error });
  }
  if (status < 300 || NO_LIST.has(status)) return;
  const kind = REFUSED.has(status) ? "misconfigured" : kindOfStatus(status);
  const message = `the provider answered the request for its models with status ${status}`;
  const text = reason === undefined ? message : `${message}: ${reason}`;
  throw new ProviderFailure(kind, text, { status });
}

const MAX_ERROR_BYTES = 65_536;
const MAX_REASON_CHARACTERS = 300;

/** Returns the message of an error in the form of OpenAI's API, or undefined if the body has another form. */
async function errorMessage(response: ProviderResponse): Promise<string | undefined> {
  let body: unknown;
  try {
    body = jsonValue((await readWhole(response, MAX_ERROR_BYTES)) ?? "");
  } catch {
    return undefined;
  }
  const error = Object(Object(body).error ?? body);
  const message = typeof error.message === "string" ? error.message : undefined;
  return message?.slice(0, MAX_REASON_CHARACTERS);
}
