import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import {
  findRequest,
  findRequestPosition,
  type ListedRequest,
  listRequests,
  type RequestPage,
  type ShownRequest,
} from "../../../db/queries/requests.ts";
import { type CsvExports, type CsvRow, csvResponse } from "../../http/csv.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { shownKeys } from "../../http/limited-keys.ts";
import {
  type Access,
  nullable,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { type TimeSpanQuery, timeSpan, timeSpanFields } from "../../http/time-span.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import { GatewayError } from "../../lib/errors.ts";
import { usdNumber } from "../../lib/money.ts";
import { shownQuantities } from "../../lib/usage.ts";
import { isoTime } from "../../lib/utc-time.ts";
import {
  exportedKeyNames,
  formatField,
  isPage,
  KEY_NAME_COLUMNS,
  keyNameCells,
} from "../export-columns.ts";

const MAX_PAGE = 200;
const DEFAULT_PAGE = 50;

const filter = (maxLength: number) => Type.Optional(Type.String({ minLength: 1, maxLength }));

const requestsQuery = Type.Object(
  {
    key_id: filter(128),
    team_id: filter(128),
    member_id: filter(128),
    model: filter(256),
    status: Type.Optional(Type.Integer({ minimum: 100, maximum: 599 })),
    min_status: Type.Optional(
      Type.Integer({ minimum: 100, maximum: 599, description: "400 lists failed requests." }),
    ),
    error_code: filter(128),
    user: filter(512),
    session_id: filter(256),
    ...timeSpanFields,
    after: Type.Optional(
      Type.String({ minLength: 1, maxLength: 128, description: "Id of a request." }),
    ),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    format: formatField,
  },
  { additionalProperties: false },
);

interface RequestsQuery extends TimeSpanQuery {
  readonly key_id?: string;
  readonly team_id?: string;
  readonly member_id?: string;
  readonly model?: string;
  readonly status?: number;
  readonly min_status?: number;
  readonly error_code?: string;
  readonly user?: string;
  readonly session_id?: string;
  readonly after?: string;
  readonly limit?: number;
  readonly format?: "json" | "csv";
}

const requestUsage = Type.Object(
  {
    prompt_tokens: Type.Integer(),
    completion_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    cached_tokens: nullable(Type.Integer()),
    reasoning_tokens: nullable(Type.Integer()),
  },
  {
    title: "RequestUsage",
    description:
      "The charged usage; also contains other quantities above zero, such as images and seconds.",
  },
);

const request = Type.Object(
  {
    id: Type.String({ description: "X-Gateway-Request-ID of the response." }),
    key_id: nullable(Type.String()),
    model: nullable(
      Type.String({
        description: "The model id, or the name in the request if no such model exists.",
      }),
    ),
    provider: nullable(Type.String()),
    status: nullable(
      Type.Integer({
        description: "Status of the response, or of the error that ended its stream.",
      }),
    ),
    error_code: nullable(Type.String()),
    user: nullable(Type.String()),
    session_id: nullable(Type.String()),
    usage: nullable(requestUsage),
    cost_usd: Type.Number(),
    latency_ms: nullable(Type.Integer()),
    provider_key_id: nullable(
      Type.String({
        description: "The organization's provider key (BYOK) that served the request.",
      }),
    ),
    created_at: Type.String({ description: "Time of the charge, or of the failure." }),
  },
  { title: "ListedRequest" },
);

const shownRequest = Type.Object(
  {
    ...request.properties,
    transaction_id: nullable(
      Type.String({ description: "Transaction of the charge; null if nothing was charged." }),
    ),
    estimated: nullable(
      Type.Boolean({
        description: "True if the gateway counted the tokens because the provider reported none.",
      }),
    ),
    list_price_usd: nullable(
      Type.Number({
        description: "If provider_key_id is set: what the provider bills at its list prices.",
      }),
    ),
    queue_ms: nullable(
      Type.Integer({
        description: "From the request to its first provider call; null if shorter than 20 ms.",
      }),
    ),
    first_token_ms: nullable(
      Type.Integer({ description: "From the request to the first token; streams only." }),
    ),
    routing: nullable(
      Type.Object(
        {
          tries: Type.Array(
            Type.Object({
              endpoint: Type.String(),
              result: Type.String({ description: "`ok`, or the kind of failure." }),
              status: Type.Optional(
                Type.Integer({
                  description: "The provider's HTTP status, if the call failed with one.",
                }),
              ),
              ms: Type.Integer({
                description: "Milliseconds until the call failed, or until its answer began.",
              }),
            }),
            { description: "Provider calls, in order." },
          ),
          postponed: Type.Optional(
            Type.Array(Type.String(), {
              description: "Endpoints that were tried last because they were unhealthy.",
            }),
          ),
          full: Type.Optional(
            Type.Array(Type.String(), {
              description:
                "Endpoints that were skipped because they were at their concurrency limit.",
            }),
          ),
        },
        {
          description:
            "Null if the first endpoint answered without retries, or if no endpoint was called.",
        },
      ),
    ),
  },
  { title: "ModelRequest" },
);

const requestList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(request),
    first_id: nullable(Type.String()),
    last_id: nullable(
      Type.String({
        description:
          "Value of `after` for the next page. With filters, it can be the id of a request that is not in data.",
      }),
    ),
    has_more: Type.Boolean(),
  },
  { title: "ModelRequestList" },
);

const access: Access = { kind: "administration", scope: "usage:read" };
const tag = "Usage";

interface RequestServices {
  readonly sql: Database;
  readonly exports: CsvExports;
}

/** Returns the routes of charged and failed requests of models. */
export function requestRoutes({ sql, exports }: RequestServices): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/requests",
      tag,
      operationId: "requests.list",
      summary: "List model requests",
      description:
        "Contains charged requests, and failed requests of the last 30 days, newest first. With `format=csv` all matching requests are sent.",
      access,
      query: requestsQuery,
      responses: { 200: { description: "Requests.", schema: requestList } },
      async handle(context) {
        const {
          query,
          caller: { key },
        } = context;
        if (query.format !== "csv") return jsonResponse(await listPage(sql, key, query));
        if (!isPage(query)) return sendAll(context, exports, sql, query);
        const { requests, nextAfter } = await readPage(sql, key, query);
        const rows = await csvRows(sql, key, requests);
        return csvResponse(FILENAME, [HEADER, ...rows], {
          "x-gateway-has-more": String(nextAfter !== undefined),
        });
      },
    }),
    {
      method: "GET",
      path: "/v1/requests/:id",
      tag,
      operationId: "requests.retrieve",
      summary: "Retrieve a model request",
      access,
      responses: { 200: { description: "The request.", schema: shownRequest } },
      async handle({ params, caller: { key } }) {
        const { id } = params as { id: string };
        const owner = { organizationId: key.organizationId, ...shownKeys(key) };
        const record = await findRequest(sql, owner, id);
        if (record === undefined) {
          throw new GatewayError("request_not_found", "There is no such request.");
        }
        return jsonResponse(shownShape(record));
      },
    },
  ];
}

/** Reads the page of a query. Throws 400 if there is no request at its cursor. */
async function readPage(
  sql: Database,
  key: ApiKeyRecord,
  query: RequestsQuery,
): Promise<RequestPage> {
  const span = timeSpan(query);
  const { organizationId } = key;
  const { keyId: onlyKeyId, memberId: onlyMemberId } = shownKeys(key);
  const owner = { organizationId, keyId: onlyKeyId, memberId: onlyMemberId };
  const after = query.after && (await findRequestPosition(sql, owner, query.after));
  if (query.after !== undefined && !after) {
    throw new GatewayError(
      "invalid_query",
      'Invalid cursor in "after": there is no such request.',
      {
        param: "after",
      },
    );
  }
  const keyId = query.key_id ?? onlyKeyId;
  const memberId = query.member_id ?? onlyMemberId;
  const isOfOthers =
    (onlyKeyId !== undefined && keyId !== onlyKeyId) ||
    (onlyMemberId !== undefined && memberId !== onlyMemberId);
  if (isOfOthers) return { requests: [], nextAfter: undefined };
  return listRequests(sql, {
    ...{ organizationId, keyId, memberId, teamId: query.team_id },
    model: query.model,
    status: query.status,
    minStatus: query.min_status,
    errorCode: query.error_code,
    user: query.user,
    sessionId: query.session_id,
    ...span,
    after: after || undefined,
    limit: query.limit ?? DEFAULT_PAGE,
  });
}

async function listPage(sql: Database, key: ApiKeyRecord, query: RequestsQuery) {
  const { requests, nextAfter } = await readPage(sql, key, query);
  return {
    object: "list",
    data: requests.map(requestShape),
    first_id: requests[0]?.id ?? null,
    last_id: nextAfter ?? requests.at(-1)?.id ?? null,
    has_more: nextAfter !== undefined,
  };
}

const HEADER = [
  ...["id", "created_at", "key_id", ...KEY_NAME_COLUMNS],
  ...["model", "provider", "status", "error_code", "user", "session_id"],
  ...["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"],
  ...["cost_usd", "latency_ms"],
];
const FILENAME = "requests.csv";
const ROWS_A_PAGE = 1_000;

/** Sends all matching requests. */
function sendAll(
  context: RequestContext,
  exports: CsvExports,
  sql: Database,
  query: RequestsQuery,
): Promise<Response> {
  const { key } = context.caller;
  return exports.send(context, {
    filename: FILENAME,
    header: HEADER,
    async *pages() {
      for (let after: string | undefined; ; ) {
        const page = { ...query, limit: ROWS_A_PAGE, ...(after !== undefined && { after }) };
        const { requests, nextAfter } = await readPage(sql, key, page);
        yield csvRows(sql, key, requests);
        if (nextAfter === undefined) return;
        after = nextAfter;
      }
    },
  });
}

async function csvRows(
  sql: Database,
  caller: ApiKeyRecord,
  requests: readonly ListedRequest[],
): Promise<CsvRow[]> {
  const keyIds = requests.flatMap(({ keyId }) => keyId ?? []);
  const names = await exportedKeyNames(sql, caller, keyIds);
  return requests.map(({ usage, ...one }) => [
    ...[one.id, isoTime(one.createdAtMs), one.keyId, ...keyNameCells(one.keyId, names)],
    ...[one.model, one.provider, one.status, one.errorCode, one.user, one.sessionId],
    usage?.promptTokens ?? null,
    usage?.completionTokens ?? null,
    usage === undefined ? null : usage.promptTokens + usage.completionTokens,
    usage?.cachedPromptTokens ?? null,
    usage?.reasoningTokens ?? null,
    { nanoUsd: one.costNano },
    one.latencyMs,
  ]);
}

function shownShape(shown: ShownRequest) {
  return {
    ...requestShape(shown),
    transaction_id: shown.transactionId,
    estimated: shown.isEstimated,
    list_price_usd: shown.listPriceUsd,
    queue_ms: shown.queueMs,
    first_token_ms: shown.firstTokenMs,
    routing: shown.routing,
  };
}

function requestShape({ usage, ...listed }: ListedRequest) {
  return {
    id: listed.id,
    key_id: listed.keyId,
    model: listed.model,
    provider: listed.provider,
    status: listed.status,
    error_code: listed.errorCode,
    user: listed.user,
    session_id: listed.sessionId,
    usage:
      usage === undefined
        ? null
        : {
            prompt_tokens: usage.promptTokens,
            completion_tokens: usage.completionTokens,
            total_tokens: usage.promptTokens + usage.completionTokens,
            cached_tokens: usage.cachedPromptTokens,
            reasoning_tokens: usage.reasoningTokens,
            ...shownQuantities(usage.quantities),
          },
    cost_usd: usdNumber(listed.costNano),
    latency_ms: listed.latencyMs,
    provider_key_id: listed.providerKeyId,
    created_at: isoTime(listed.createdAtMs),
  };
}
