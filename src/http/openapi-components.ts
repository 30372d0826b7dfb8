import { ERROR_TABLE } from "./error-response.ts";

const BEARER_SCHEME = "apiKey";
const HEADER_SCHEME = "apiKeyHeader";

export const AUTHENTICATION = {
  [BEARER_SCHEME]: {
    type: "http",
    scheme: "bearer",
    description:
      "A secret key (`gateway_sk_…`), a management key (`gateway_mgmt_…`) or an operator key.",
  },
  [HEADER_SCHEME]: {
    type: "apiKey",
    in: "header",
    name: "x-api-key",
    description:
      "The API key in the header that clients of Anthropic's API use. Ignored if the request has an Authorization header.",
  },
};

/**
 * Returns the security requirement of a route: the key in either header, with the scopes that it
 * needs.
 */
export function keyInEitherHeader(scopes: readonly string[]): object[] {
  return [{ [BEARER_SCHEME]: scopes }, { [HEADER_SCHEME]: scopes }];
}

/** The description of each tag. */
export const TAGS: Readonly<Record<string, string>> = {
  Chat: "Calls chat models in OpenAI's format.",
  Embeddings: "Turns texts into vectors.",
  Rerank: "Orders documents by their relevance to a query.",
  Moderations: "Classifies texts and images as harmful or not.",
  Images: "Creates, edits and varies images.",
  Audio: "Creates speech, and transcribes or translates recordings.",
  Messages: "Calls chat models in the format of Anthropic's API.",
  Responses: "Calls chat models in the format of OpenAI's Responses API.",
  Conversations: "Stores the items of conversations, which responses continue.",
  Models: "Lists models with their prices, and deletes fine-tuned models.",
  "API keys": "Creates keys with limits and budgets, and shows what each key has spent.",
  Budgets: "Limits what an end user or a tag spends, whichever key pays.",
  Teams: "Groups keys that share budgets, rate limits, models and policy.",
  Members: "Invites people to the organization, and gives them roles.",
  SCIM: "Creates the tokens with which identity providers manage members and teams.",
  Credits: "Shows the balance and its transactions, and tops it up automatically.",
  Billing: "Manages payment methods, top-ups and the plan.",
  Usage: "Shows requests, tokens, cost and latency.",
  "Audit log": "Lists the changes in the organization, each with its author.",
  Organization: "Shows the organization of the calling key.",
  "Response cache": "Clears the stored answers of the organization.",
  Webhooks: "Delivers events to URLs, signed and in order.",
  "Alert channels": "Chat channels that get alerts of an organization.",
  "Webhook events": "The requests that webhooks receive.",
  "Provider keys": "Stores the organization's keys for providers (BYOK).",
  Presets: "Stores settings of chats under a name.",
  Guardrails: "Stores rules that block or redact texts.",
  Files: "Stores files for batches, fine-tuning and vector stores.",
  "Vector stores": "Indexes files, and searches them by meaning and by words.",
  Batches: "Answers the requests of a file within a day.",
  "Fine-tuning": "Trains models on example conversations.",
  Operators: "Administers all organizations with an operator key.",
  "Identity providers": "Configures the OpenID Connect issuers at which people sign in.",
  Configuration: "Configures providers, models, aliases and prices while the gateway runs.",
  Operation: "Shows health, metrics and this description.",
};

const TITLES: Readonly<Record<number, string>> = {
  400: "The request is not valid",
  401: "No valid API key",
  402: "Not enough credits, or a budget is used up",
  403: "The key does not have this permission",
  404: "Not found",
  408: "The provider did not answer in time",
  409: "Conflict with the current state",
  413: "Too large",
  415: "Unexpected content type",
  429: "Rate limit exceeded",
  500: "Something went wrong inside the gateway",
  502: "The provider failed",
  503: "Temporarily unavailable",
};

/** Response headers: one that every response has, and others that only some responses have. */
const HEADERS = {
  RequestId: header("Unique id of the request.", "string"),
  RetryAfter: header("Whole seconds to wait, at least 1.", "integer"),
  Provider: header("Provider that served the request.", "string"),
  Model: header("Model that answered.", "string"),
  LatencyMs: header("Total latency in milliseconds.", "string"),
  Cost: header(
    "Charge in USD as a plain decimal. For a stream, the last chunk contains it.",
    "string",
  ),
  MaxTokens: header(
    "Max output tokens, if the request was limited to the affordable number.",
    "integer",
  ),
  RouteExplain: header("The planned and tried endpoints, if route_explain is set.", "string"),
  DroppedParameters: header(
    "Request fields that were left out because the provider does not support them.",
    "string",
  ),
  IdempotentReplay: header("True for the stored answer to an earlier request.", "string"),
  RateLimitLimit: header("Requests a minute; absent without a limit.", "integer"),
  RateLimitRemaining: header("Requests left in the window.", "integer"),
  RateLimitReset: header("Unix time at which the window is free again.", "integer"),
  RateLimitResetRequests: header(
    "Time until the window is free again, for example 6.5s.",
    "string",
  ),
  ProcessingMs: header("Milliseconds until the answer, or its stream, began.", "integer"),
  RateLimitLimitTokens: header("Tokens a minute; absent without a limit.", "integer"),
  RateLimitRemainingTokens: header("Tokens left in the window at admission.", "integer"),
  RateLimitResetTokens: header(
    "Time until the oldest tokens leave the window, for example 6.5s.",
    "string",
  ),
};

type HeaderName = keyof typeof HEADERS;

export const REQUEST_HEADERS = { "X-Gateway-Request-ID": reference("headers", "RequestId") };

export const CALL_HEADERS = {
  ...REQUEST_HEADERS,
  "X-Gateway-Provider": reference("headers", "Provider"),
  "X-Gateway-Model": reference("headers", "Model"),
  "X-Gateway-Latency-Ms": reference("headers", "LatencyMs"),
  "X-Gateway-Cost": reference("headers", "Cost"),
  "X-Gateway-Max-Tokens": reference("headers", "MaxTokens"),
  "X-Gateway-Route-Explain": reference("headers", "RouteExplain"),
  "X-Gateway-Dropped-Parameters": reference("headers", "DroppedParameters"),
  "X-Gateway-Idempotent-Replay": reference("headers", "IdempotentReplay"),
  "X-RateLimit-Limit": reference("headers", "RateLimitLimit"),
  "X-RateLimit-Remaining": reference("headers", "RateLimitRemaining"),
  "X-RateLimit-Reset": reference("headers", "RateLimitReset"),
  "X-RateLimit-Limit-Requests": reference("headers", "RateLimitLimit"),
  "X-RateLimit-Remaining-Requests": reference("headers", "RateLimitRemaining"),
  "X-RateLimit-Reset-Requests": reference("headers", "RateLimitResetRequests"),
  "OpenAI-Processing-Ms": reference("headers", "ProcessingMs"),
  "X-RateLimit-Limit-Tokens": reference("headers", "RateLimitLimitTokens"),
  "X-RateLimit-Remaining-Tokens": reference("headers", "RateLimitRemainingTokens"),
  "X-RateLimit-Reset-Tokens": reference("headers", "RateLimitResetTokens"),
};

const MAY_HAVE_RETRY_AFTER: readonly number[] = [402, 429, 503];

export const ERROR_COMPONENTS = {
  headers: HEADERS,
  schemas: { Error: errorSchema() },
  responses: Object.fromEntries(
    Object.entries(TITLES).map(([status, title]) => [
      `Error${status}`,
      sharedDescription(Number(status), title),
    ]),
  ),
};

/** Returns a reference to the shared description of an error status. */
export function errorReference(status: number): { readonly $ref: string } {
  return reference("responses", `Error${status}`);
}

/** Returns the description of an error with a text of the route and the schema of all errors. */
export function errorDescription(status: number, description: string, example?: object): object {
  return {
    description,
    headers: {
      ...REQUEST_HEADERS,
      ...(MAY_HAVE_RETRY_AFTER.includes(status) && {
        "Retry-After": reference("headers", "RetryAfter"),
      }),
    },
    content: {
      "application/json": {
        schema: { $ref: "#/components/schemas/Error" },
        ...(example && { example }),
      },
    },
  };
}

function sharedDescription(status: number, title: string): object {
  const codes = codesOf(status);
  const names = codes.map((code) => `\`${code}\``).join(", ");
  return errorDescription(status, `${title}. Codes: ${names}.`, example(codes[0]!, title));
}

function codesOf(status: number): (keyof typeof ERROR_TABLE)[] {
  const codes = Object.keys(ERROR_TABLE) as (keyof typeof ERROR_TABLE)[];
  return codes.filter((code) => ERROR_TABLE[code].status === status);
}

function example(code: keyof typeof ERROR_TABLE, message: string): object {
  return {
    error: { message: `${message}.`, type: ERROR_TABLE[code].type, param: null, code },
    request_id: "req_019aa1b2c3d4e5f60718293a4b5c6d7e",
  };
}

function errorSchema(): object {
  const types = new Set<string>(Object.values(ERROR_TABLE).map((entry) => entry.type));
  // The type of 413 for clients of Anthropic's API.
  types.add("request_too_large");
  return {
    type: "object",
    description: "The shape of every error.",
    required: ["error", "request_id"],
    properties: {
      error: {
        type: "object",
        required: ["message", "type", "param", "code"],
        properties: {
          message: { type: "string", description: "For people; may change." },
          type: { type: "string", enum: [...types] },
          param: {
            type: ["string", "null"],
            description: "The field, header or query parameter at fault.",
          },
          code: {
            type: ["string", "null"],
            enum: [...Object.keys(ERROR_TABLE), null],
            description: "For programs; stable.",
          },
        },
      },
      request_id: { type: "string" },
    },
  };
}

function header(description: string, type: "string" | "integer"): object {
  return { description, schema: { type } };
}

function reference(kind: "headers", name: HeaderName): { readonly $ref: string };
function reference(kind: "responses", name: string): { readonly $ref: string };
function reference(kind: string, name: string): { readonly $ref: string } {
  return { $ref: `#/components/${kind}/${name}` };
}
