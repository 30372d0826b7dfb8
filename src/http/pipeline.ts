import type { ApiKeyRecord } from "../lib/api-key-record.ts";
import { GatewayError } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";
import type { RequestFacts } from "../lib/request-facts.ts";
import type { Authentication } from "../services/authentication.ts";
import type { RequestRecord } from "../telemetry/interface.ts";
import type { BodyBudget } from "./body-budget.ts";
import { MAX_JSON_BYTES, MAX_MODEL_JSON_BYTES } from "./check-json.ts";
import { asGatewayError, errorResponse, isFault } from "./error-response.ts";
import { ERROR_TABLE } from "./error-table.ts";
import { readJsonBody } from "./read-body.ts";
import { compileQuery } from "./read-query.ts";
import type { Access, RequestContext, RouteDefinition } from "./route.ts";
import { compileCheck } from "./validate.ts";

/**
 * What a key may do is asked again where a body took longer than this to come: a change takes effect
 * within a second, for requests on their way too.
 */
const MAX_KEY_AGE_MS = 250;

export interface PipelineDependencies {
  readonly authentication: Authentication;
  /** Undefined where requests may be admitted; else a promise of it, which rejects with 503. */
  whenAdmitting(): Promise<void> | undefined;
  /** A key was used for what charges nothing. */
  noteUse(keyId: string): void;
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** Throws 503 where calls of models are more than can be served. */
  readonly loadGate: { admit(): void };
  readonly bodies: BodyBudget;
  record(request: RequestRecord): void;
  /** Told of faults of the gateway and of what it depends on, with their private causes. */
  onInternalError(error: GatewayError, requestId: string): void;
}

export interface Incoming {
  readonly request: Request;
  readonly params: Readonly<Record<string, string>>;
  /** The connection may be quiet for as long as it likes. */
  keepOpen(): void;
  /** No longer so: where a client does not take what is left for it, the connection is closed. */
  mayExpire(): void;
}

export type RouteHandler = (incoming: Incoming) => Promise<Response>;

/**
 * The checks that every request passes, in this order: authentication, kind and scope, content type and
 * size, body; what follows is the route's own.
 */
export function compileRoute(
  route: RouteDefinition,
  dependencies: PipelineDependencies,
): RouteHandler {
  const readQuery = compileQuery(
    route.query ?? ({ type: "object", properties: {}, additionalProperties: false } as never),
  );
  const checkBody = route.body && compileCheck(route.body, "invalid_body", "Request body");
  const isPublic = route.access.kind === "public";
  const isModel = route.access.kind === "model";
  const maxBodyBytes = isModel ? MAX_MODEL_JSON_BYTES : MAX_JSON_BYTES;
  const { inFlight } = dependencies;

  /** The key as it stands now, at once where that is known. Throws where it may not call this route. */
  function admit(request: Request, identity: Identity): ApiKeyRecord | Promise<ApiKeyRecord> {
    const admitting = dependencies.whenAdmitting();
    if (admitting !== undefined) return admitting.then(() => authenticate(request, identity));
    return authenticate(request, identity);
  }

  function authenticate(
    request: Request,
    identity: Identity,
  ): ApiKeyRecord | Promise<ApiKeyRecord> {
    const found = dependencies.authentication.authenticate(request.headers.get("authorization"));
    const accept = (key: ApiKeyRecord): ApiKeyRecord => {
      identity.key = key;
      assertAccess(route.access, key);
      return key;
    };
    return found instanceof Promise ? found.then(accept) : accept(found);
  }

  async function handle(
    incoming: Incoming,
    requestId: string,
    startedMs: number,
    log: RequestFacts,
    identity: Identity,
  ): Promise<Response> {
    const { request } = incoming;
    let key: ApiKeyRecord | undefined;
    if (isModel) dependencies.loadGate.admit();
    if (!isPublic) {
      const admitted = admit(request, identity);
      key = admitted instanceof Promise ? await admitted : admitted;
      if (route.access.kind !== "model") dependencies.noteUse(key.id);
    }
    assertStorable(incoming.params);
    let body: unknown;
    let bodyText = "";
    if (checkBody !== undefined) {
      const readSinceMs = performance.now();
      const json = await readJsonBody(request, dependencies.bodies, maxBodyBytes);
      const isKeyOld = performance.now() - readSinceMs > MAX_KEY_AGE_MS;
      if (!isPublic && isKeyOld) key = await admit(request, identity);
      bodyText = json.text;
      body = json.value;
      checkBody(body);
    }
    const query = readQuery(request.url);
    const context: RequestContext = {
      request,
      requestId,
      startedMs,
      params: incoming.params,
      query,
      caller: { key: key! },
      admitAgain: async () => ({ key: await admit(request, identity) }),
      body,
      bodyText,
      log,
      keepOpen: incoming.keepOpen,
    };
    return route.handle(context);
  }

  return async (incoming) => {
    const startedMs = performance.now();
    const requestId = newId("req");
    const log: RequestFacts = {};
    const identity: Identity = { key: undefined };
    inFlight.begin();
    const finish = (status: number): void => {
      inFlight.end();
      dependencies.record({
        requestId,
        method: route.method,
        route: route.path,
        status: log.status ?? status,
        latencyMs: performance.now() - startedMs,
        organizationId: identity.key?.organizationId,
        keyId: identity.key?.id,
        model: log.model,
        provider: log.provider,
        promptTokens: log.promptTokens,
        completionTokens: log.completionTokens,
        costNano: log.costNano,
        firstTokenMs: log.firstTokenMs,
        errorCode: log.errorCode,
      });
    };
    try {
      const response = await handle(incoming, requestId, startedMs, log, identity);
      response.headers.set("x-gateway-request-id", requestId);
      response.headers.set("x-request-id", requestId);
      if (inFlight.isStopping) response.headers.set("connection", "close");
      if (log.isDeferred) {
        log.finish = () => {
          incoming.mayExpire();
          finish(response.status);
        };
      } else finish(response.status);
      return response;
    } catch (thrown) {
      const error = asGatewayError(thrown);
      log.errorCode = error.code;
      if (isFault(error)) dependencies.onInternalError(error, requestId);
      finish(ERROR_TABLE[error.code].status);
      const refused = errorResponse(error, requestId, log.headers);
      if (inFlight.isStopping) refused.headers.set("connection", "close");
      return refused;
    }
  };
}

interface Identity {
  key: ApiKeyRecord | undefined;
}

/** No id holds a NUL, and no database takes one. */
function assertStorable(params: Readonly<Record<string, string>>): void {
  for (const name in params) {
    if (!params[name]!.includes("\0")) continue;
    throw new GatewayError("route_not_found", "There is no such endpoint.");
  }
}

function assertAccess(access: Access, key: ApiKeyRecord): void {
  if (access.kind === "public") return;
  if (key.kind === "management") {
    if (access.kind === "administration") return;
    throw new GatewayError(
      "wrong_key_kind",
      "A management key cannot call this endpoint; use a secret key.",
    );
  }
  if (!key.scopes.includes(access.scope)) {
    throw new GatewayError("missing_scope", `This API key lacks the scope ${access.scope}.`);
  }
}
