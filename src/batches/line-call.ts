import { asGatewayError } from "../../db/unavailable.ts";
import { errorResponse } from "../http/error-response.ts";
import { MAX_WHOLE_BYTES } from "../http/read-body.ts";
import type { RequestContext, RouteDefinition } from "../http/route.ts";
import { createCheck } from "../http/validate.ts";
import { type ApiKeyRecord, holdsScope } from "../lib/api-key-record.ts";
import { type ErrorCode, GatewayError, PASSING_FAILURES, stopping } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";
import type { RequestFacts } from "../lib/request-facts.ts";
import { sharedCopy } from "../lib/shared-bytes.ts";
import { turnOfLoop } from "../lib/turn-of-loop.ts";

export interface LineCallDependencies {
  /** The billed endpoints. */
  readonly routes: readonly RouteDefinition[];
  /** Requests that a stop of the gateway waits for. */
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** The key as it stands now. Rejects where it may not call any more. */
  usableKey(keyId: string): Promise<ApiKeyRecord>;
}

export interface LineRequest {
  readonly keyId: string;
  readonly endpoint: string;
  readonly body: unknown;
  readonly idempotencyKey: string;
  /** Keeps, before its charge, an answer that is too large to be kept under the idempotency key. */
  keepLarge(answer: LineAnswer): Promise<void>;
}

export interface LineAnswer {
  readonly status: number;
  readonly requestId: string;
  /** JSON, as UTF-8: as a text a long one would hold the event loop. */
  readonly body: Uint8Array;
  /** It is what an earlier call under the idempotency key was answered with. */
  readonly isReplay: boolean;
}

const PASSING: ReadonlySet<ErrorCode> = new Set([
  ...PASSING_FAILURES,
  "too_many_background_responses",
]);
/** They say nothing about the request: it waits for them to end. */
const OF_GATEWAY: ReadonlySet<ErrorCode> = new Set([
  "rate_limit_exceeded",
  "overloaded",
  "database_unavailable",
  "client_closed_request",
]);

export const isPassing = ({ code }: GatewayError): boolean => PASSING.has(code);
export const isOfGateway = ({ code }: GatewayError): boolean => OF_GATEWAY.has(code);

/** Puts requests of batches through their endpoints, as if their clients had sent them. */
export class LineCalls {
  readonly #dependencies: LineCallDependencies;
  readonly #routes: ReadonlyMap<string, RouteDefinition>;

  constructor(dependencies: LineCallDependencies) {
    this.#dependencies = dependencies;
    const posts = dependencies.routes.filter(({ method }) => method === "POST");
    this.#routes = new Map(posts.map((route) => [route.path, route]));
  }

  /** Throws 403 where the key may not call the endpoint. */
  assertMayCall(key: ApiKeyRecord, endpoint: string): void {
    const { access } = this.#routes.get(endpoint)!;
    if (access.kind !== "model" || holdsScope(key, access.scope)) return;
    throw new GatewayError("missing_scope", `This API key lacks the scope ${access.scope}.`);
  }

  /** The same request twice, on any instance, is charged once. Rejects with what the endpoint throws. */
  async call(request: LineRequest): Promise<LineAnswer> {
    const { inFlight, usableKey } = this.#dependencies;
    if (inFlight.isStopping) throw stopping();
    inFlight.begin();
    const log: RequestFacts = {};
    try {
      const admitAgain = async () => {
        const key = await usableKey(request.keyId);
        this.assertMayCall(key, request.endpoint);
        return { key };
      };
      const route = this.#routes.get(request.endpoint)!;
      const { key } = await admitAgain();
      const read = await readBody(route, request.body, key.organizationId, log);
      const requestId = newId("req");
      const origin = { address: null, user_agent: null, request_id: requestId };
      const response = await route.handle({
        ...read,
        requestId,
        startedMs: performance.now(),
        request: new Request(`http://localhost${request.endpoint}`, {
          method: "POST",
          headers: {
            "content-type": "application/json",
            "idempotency-key": request.idempotencyKey,
          },
        }),
        params: {},
        query: {},
        caller: { key },
        operator: { id: "", name: "" },
        author: {
          ...{ kind: "secret_key", id: key.id, name: key.name, via: "api" },
          ...origin,
        },
        origin,
        address: "",
        admitAgain,
        takenRate: undefined,
        log,
        respond: (body, headers, status = 200) => new Response(body, { status, headers }),
        keepOpen: () => () => {},
        keepLarge: (body) => request.keepLarge({ status: 200, requestId, isReplay: false, body }),
      } satisfies RequestContext);
      return {
        status: response.status,
        requestId,
        body: await response.bytes(),
        isReplay: response.headers.get("x-gateway-idempotent-replay") === "true",
      };
    } catch (error) {
      throw asGatewayError(error);
    } finally {
      log.releaseBody?.();
      inFlight.end();
    }
  }
}

/** As the pipeline reads the body of a request. Throws 400. */
async function readBody(
  route: RouteDefinition,
  body: unknown,
  owner: string,
  log: RequestFacts,
): Promise<Pick<RequestContext, "body" | "bodyText">> {
  const bodyText = JSON.stringify(body);
  if (bodyText.length > MAX_WHOLE_BYTES && route.readLongBody !== undefined) {
    await turnOfLoop();
    const bytes = sharedCopy(new TextEncoder().encode(bodyText));
    const read = await route.readLongBody(bytes, owner, NEVER);
    log.releaseBody = () => read.release();
    return { body: read.value, bodyText: "" };
  }
  createCheck(route.body!, "invalid_body", "Request body")(body);
  return { body, bodyText };
}

const NEVER = new AbortController().signal;

/** What the endpoint answers a request that it refuses. */
export async function refusalOf(error: GatewayError): Promise<LineAnswer> {
  const requestId = newId("req");
  const response = errorResponse(error, requestId);
  return { status: response.status, requestId, body: await response.bytes(), isReplay: false };
}
