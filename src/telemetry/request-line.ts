import type { RequestRecord } from "./interface.ts";
import { redactText } from "./redact.ts";

const PLAIN_NAME = /^[\w./:@+-]{1,200}$/;
const UNPRINTABLE = /[^\x20-\x7e]/g;
const MAX_NAME_CHARACTERS = 200;
const NANO_PER_USD = 1e9;

/** The request's log line, with its line feed; members without a value are left out. */
export function requestLine(request: RequestRecord, time: string): string {
  const line = JSON.stringify({
    level: request.status >= 500 ? "error" : "info",
    time,
    request_id: request.requestId,
    organization_id: request.organizationId,
    key_id: request.keyId,
    method: request.method,
    route: request.route,
    status: request.status,
    model: request.model === undefined ? undefined : shownModel(request.model, request.provider),
    provider: request.provider,
    prompt_tokens: request.promptTokens,
    completion_tokens: request.completionTokens,
    cost_usd: request.costNano === undefined ? undefined : Number(request.costNano) / NANO_PER_USD,
    latency_ms: roundedMs(request.latencyMs),
    first_token_ms:
      request.firstTokenMs === undefined ? undefined : roundedMs(request.firstTokenMs),
    error_code: request.errorCode,
    msg: "request",
  });
  return `${line}\n`;
}

function roundedMs(ms: number): number {
  return Math.round(ms * 100) / 100;
}

/** Without a provider the model is the caller's own text: it may be anything, even a misplaced key. */
function shownModel(model: string, provider: string | undefined): string {
  if (provider !== undefined && PLAIN_NAME.test(model)) return model;
  return redactText(model).replace(UNPRINTABLE, "?").slice(0, MAX_NAME_CHARACTERS);
}
