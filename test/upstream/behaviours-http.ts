import type { BehaviourFunction, Call, RetryAfter } from "./behaviour.ts";
import { completed, wholeAnswer } from "./scripted.ts";
import type { Answer } from "./wire.ts";

/** Error bodies in the form and words of OpenAI's API, by status. */
const ERRORS: Record<number, { type: string; code: string | null; message: string }> = {
  400: {
    type: "invalid_request_error",
    code: "invalid_value",
    message: "Invalid value for 'messages'.",
  },
  401: {
    type: "invalid_request_error",
    code: "invalid_api_key",
    message: "Incorrect API key provided.",
  },
  403: {
    type: "invalid_request_error",
    code: "unsupported_country_region_territory",
    message: "Not allowed.",
  },
  404: {
    type: "invalid_request_error",
    code: "model_not_found",
    message: "The model does not exist.",
  },
  408: { type: "timeout_error", code: null, message: "The request timed out." },
  422: {
    type: "invalid_request_error",
    code: null,
    message: "The request could not be processed.",
  },
  429: { type: "requests", code: "rate_limit_exceeded", message: "Rate limit reached." },
  500: { type: "server_error", code: null, message: "The server had an error." },
  502: { type: "server_error", code: null, message: "Bad gateway." },
  503: { type: "server_error", code: null, message: "The engine is currently overloaded." },
};

/** Behaviours that are decided before the body: refusals, statuses, wrong kinds of body. */
export const HTTP_BEHAVIOURS = {
  complete: (call) => completed(call),
  refuse: () => ({ kind: "refuse" }),
  stall: () => ({ kind: "silent" }),
  error: (call) => errorAnswer(call, call.options.status ?? 500),
  "rate-limited": (call) => {
    const headers = {
      ...retryHeaders(call.options.retryAfter ?? { seconds: 1 }, call.nowMs),
      ...call.options.headers,
    };
    return errorAnswer({ ...call, options: { ...call.options, headers } }, 429);
  },
  html: (call) => ({
    kind: "whole",
    status: call.options.status ?? 200,
    headers: { "content-type": "text/html; charset=utf-8", ...call.options.headers },
    body: "<!doctype html><html><body><h1>Welcome to the load balancer</h1></body></html>",
  }),
  "empty-body": (call) => ({
    kind: "whole",
    status: 200,
    headers: {
      "content-type": call.stream ? "text/event-stream" : "application/json",
      ...call.options.headers,
    },
    body: "",
  }),
  "json-for-stream": (call) => completed({ ...call, stream: false }),
  redirect: (call) => ({
    kind: "whole",
    status: call.options.status ?? 307,
    headers: { location: call.options.location ?? "/elsewhere", ...call.options.headers },
    body: "",
  }),
} satisfies Record<string, BehaviourFunction>;

function errorAnswer(call: Call, status: number): Answer {
  const known = ERRORS[status] ?? ERRORS[500];
  const message = call.options.message ?? known?.message;
  return wholeAnswer(call, { error: { ...known, message, param: null } }, status);
}

function retryHeaders(retryAfter: RetryAfter, nowMs: number): Record<string, string> {
  const { seconds, dateInSeconds, milliseconds, raw } = retryAfter;
  return {
    ...(seconds === undefined ? {} : { "retry-after": String(seconds) }),
    ...(dateInSeconds === undefined
      ? {}
      : { "retry-after": new Date(nowMs + dateInSeconds * 1000).toUTCString() }),
    ...(raw === undefined ? {} : { "retry-after": raw }),
    ...(milliseconds === undefined ? {} : { "retry-after-ms": String(milliseconds) }),
  };
}
