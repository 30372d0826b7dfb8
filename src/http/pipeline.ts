import { asGatewayError } from "../../db/unavailable.ts";
import { type ApiKeyRecord, hasTeamPreset } from "../lib/api-key-record.ts";
import { type Author, MAX_USER_AGENT_CHARACTERS, type Origin } from "../lib/author.ts";
import { clientClosed, GatewayError } from "../lib/errors.ts";
import type { FairSemaphore } from "../lib/fair-share.ts";
import { newId } from "../lib/ids.ts";
import { JSON_LIMITS } from "../lib/json.ts";
import { loggedFieldsOf, type RequestLifetime, type RequestLog } from "../lib/request-log.ts";
import type { SharedBytes } from "../lib/shared-bytes.ts";
import { passedTraceparent } from "../lib/trace.ts";
import { yieldToEventLoop } from "../lib/yield-to-event-loop.ts";
import { type RequestRecord, requestRecord } from "../platform/telemetry/interface.ts";
import type { RecordedTrace } from "../platform/telemetry/request-trace.ts";
import type { Tracing } from "../platform/telemetry/tracing.ts";
import {
  assertAccess,
  assertRole,
  assertView,
  identityOf,
  isAdministrative,
  keyAccessOf,
  type SessionCaller,
} from "./access.ts";
import { type Authentication, readsAccounts } from "./authentication.ts";
import type { BodyBudget } from "./body-budget.ts";
import type { Caller } from "./caller.ts";
import { type ClientWire, ERROR_TABLE, errorResponse, isFault } from "./error-response.ts";
import { isOpenToLimitedKeys } from "./limited-keys.ts";
import { createFormReader, type FormDependencies } from "./model-form.ts";
import { isForm } from "./multipart.ts";
import {
  type BodyConnection,
  type BodyLimits,
  MAX_JSON_BYTES,
  MAX_MODEL_JSON_BYTES,
  MAX_WHOLE_BYTES,
  parseJson,
  readJsonBody,
  STRICT_JSON_LIMITS,
  textOfShared,
} from "./read-body.ts";
import { assertHost, senderAddress } from "./request-headers.ts";
import {
  type KeyAccess,
  type OperatorIdentity,
  type RequestContext,
  type RouteDefinition,
  type SessionAccess,
  type SessionPerson,
  wireOf,
} from "./route.ts";
import { type Check, createCheck, createQueryReader, NO_QUERY, validatorOf } from "./validate.ts";

/** Sessions of the dashboard. */
export interface Sessions {
  /**
   * Returns the caller of a session. Rejects with 401 if the request has no session, and with 403 if
   * another site sent it or its CSRF token is wrong.
   */
  callerOf(request: Request, access: SessionAccess): Promise<SessionCaller>;
}

/** Dependencies of the pipeline, the same for every route. */
export interface PipelineDependencies {
  readonly authentication: Authentication;
  readonly sessions: Sessions;
  /**
   * Returns undefined if requests can be admitted, or else a promise that resolves when they can.
   * The promise rejects with 503 if that takes too long or too many requests wait.
   */
  whenAdmitting(): Promise<void> | undefined;
  /** Records the use of a key by a request without a charge. */
  noteUse(keyId: string): void;
  readonly inFlight: { begin(): void; end(): void; readonly isStopping: boolean };
  /** Bounds model calls. `begin` throws 503 if the gateway cannot serve more. */
  readonly loadGate: { begin(organizationId: string): void; end(organizationId: string): void };
  readonly bodies: BodyBudget;
  readonly forms: FormDependencies;
  /**
   * Returns true if the address belongs to a trusted proxy, so that its X-Forwarded-For header is
   * used.
   */
  isTrustedProxy(address: string): boolean;
  /** Bounds administrative reads. */
  readonly reads: FairSemaphore;
  /** Limits administrative calls. `count` throws 429 if the organization made too many. */
  readonly administrativeRate: { count(organizationId: string): void | Promise<void> };
  /**
   * Decides from the head of a request if its long body is read: counts the request in the rate window and
   * checks that the key has money left. Returns the headers of the rate window. Rejects with 429 if a rate limit is
   * reached, 402 if no money is left, and 503 if the gateway cannot decide now.
   */
  admitLongBody(
    caller: Caller,
    lifetime: RequestLifetime,
  ): Promise<Readonly<Record<string, string>>>;
  record(request: RequestRecord): void;
  readonly tracing?: Tracing | undefined;
  /** Seconds without traffic after which a connection is closed. */
  readonly connectionIdleSeconds: number;
  /** Receives faults of the gateway and of its dependencies, with their private causes. */
  onInternalError(error: GatewayError, requestId: string): void;
}

/** A route with its checks. Most checks are compiled at their first use. */
interface CompiledRoute {
  readonly definition: RouteDefinition;
  readonly isOpenToLimitedKeys: boolean;
  readonly readQuery: (url: string) => Readonly<Record<string, unknown>>;
  readonly checkBody: Check | undefined;
  readonly bodyLimits: BodyLimits;
  readonly readForm: ReturnType<typeof createFormReader> | undefined;
  readonly dependencies: PipelineDependencies;
}

const NO_PARAMETERS = { type: "object", properties: {}, additionalProperties: false } as never;

/**
 * Prepares the checks of a route. Compiles the body check of model routes now, so that no model
 * call waits for it.
 */
export function compileRoute(
  definition: RouteDefinition,
  dependencies: PipelineDependencies,
): CompiledRoute {
  const { access, body, modelForm } = definition;
  if (access.kind === "model" && body !== undefined) validatorOf(body);
  return {
    definition,
    isOpenToLimitedKeys: isOpenToLimitedKeys(definition),
    readQuery: definition.ignoresQuery
      ? () => NO_QUERY
      : createQueryReader(definition.query ?? NO_PARAMETERS),
    checkBody: body && createCheck(body, "invalid_body", "Request body"),
    bodyLimits: {
      bytes:
        definition.maxBodyBytes ??
        (access.kind === "model" ? MAX_MODEL_JSON_BYTES : MAX_JSON_BYTES),
      json: definition.allowsUnknownFields ? JSON_LIMITS : STRICT_JSON_LIMITS,
      isOptional: definition.bodyIsOptional === true,
    },
    readForm: modelForm && createFormReader(modelForm),
    dependencies,
  };
}

/**
 * Milliseconds after which a request that is still arriving is authenticated again. A change of its
 * key thus takes effect within a second.
 */
const MAX_KEY_AGE_MS = 250;
/** The part of the server that a request uses for its connection. Zero seconds mean no timeout. */
interface Connections {
  timeout(request: Request, seconds: number): void;
  requestIP(request: Request): { readonly address: string } | null;
}

/**
 * One request in the pipeline, and the context that its handler receives. It is one object that is
 * filled in step by step, because each object would be created for every request.
 */
export class RequestRun implements RequestContext, BodyConnection {
  readonly request: Request;
  readonly requestId = newId("req");
  readonly startedMs = performance.now();
  readonly params: Readonly<Record<string, string>>;
  readonly log: RequestLog = {};
  readonly lifetime: RequestLifetime = {};
  query: Readonly<Record<string, unknown>> = NO_QUERY;
  body: unknown;
  bodyText = "";
  admittedRateHeaders: Readonly<Record<string, string>> | undefined;
  person: SessionPerson | undefined;
  readonly #route: CompiledRoute;
  readonly #server: Connections | null;
  #caller: Caller | undefined;
  #operator: OperatorIdentity | undefined;
  #isOpenForBody = false;
  #isInGate = false;
  #trace: RecordedTrace | undefined;
  /** The response that already has the headers with the request id. */
  #named: Response | undefined;

  constructor(
    route: CompiledRoute,
    request: Request,
    params: Readonly<Record<string, string>>,
    server: Connections | null,
  ) {
    this.#route = route;
    this.request = request;
    this.params = params;
    this.#server = server;
  }

  /**
   * The caller. Undefined on public routes, which do not authenticate, and on routes for operators.
   */
  get caller(): Caller {
    return this.#caller!;
  }

  get operator(): OperatorIdentity {
    return this.#operator!;
  }

  get origin(): Origin {
    const { headers } = this.request;
    const { isTrustedProxy } = this.#route.dependencies;
    const address = senderAddress(headers, this.address, isTrustedProxy);
    const userAgent = headers.get("user-agent");
    return {
      address: address === "" ? null : address,
      user_agent: userAgent?.slice(0, MAX_USER_AGENT_CHARACTERS) ?? null,
      request_id: this.requestId,
    };
  }

  get author(): Author {
    const { kind } = this.#route.definition.access;
    const via = kind === "session" ? "dashboard" : "api";
    const identity = identityOf(this.#operator ?? this.caller.key, this.person);
    return { ...identity, via, ...this.origin };
  }

  /**
   * Runs the checks of every request in this order: host, authentication, kind and scope of the
   * key, content type and size, body, rate of administrative calls. Then calls the handler. Never
   * rejects.
   */
  async answer(): Promise<Response> {
    const { definition, dependencies, checkBody, bodyLimits, readForm } = this.#route;
    const { access } = definition;
    dependencies.inFlight.begin();
    try {
      assertHost(this.request.headers);
      if (access.kind === "model") {
        this.#trace = dependencies.tracing?.begin(this.request.headers, definition);
        this.log.trace = this.#trace;
        if (this.#trace === undefined)
          this.log.traceparent = passedTraceparent(this.request.headers);
      }
      if (access.kind !== "public") {
        const admitted = this.#admit();
        if (admitted instanceof Promise) await admitted;
      }
      if (access.kind === "model") {
        dependencies.loadGate.begin(this.owner);
        this.#isInGate = true;
      }
      if (readForm !== undefined && (checkBody === undefined || isForm(this.request.headers))) {
        await this.#readForm(readForm);
      } else if (checkBody !== undefined) {
        const { bodies } = dependencies;
        const read = await readJsonBody(this.request, this, bodies, bodyLimits);
        const inThread = definition.readLongBody !== undefined && !hasTeamPreset(this.caller?.key);
        if (typeof read !== "string" && inThread) {
          await this.#readInThread(read);
        } else {
          this.bodyText = typeof read === "string" ? read : textOfShared(read);
          this.body = parseJson(this.bodyText);
          const isLong = this.bodyText.length > MAX_WHOLE_BYTES;
          if (isLong) await yieldToEventLoop();
          if (this.#isKeyOld()) await this.#admit();
          checkBody(this.body);
          if (isLong) await yieldToEventLoop();
        }
      }
      this.query = this.#route.readQuery(this.request.url);
      if (isAdministrative(keyAccessOf(access))) {
        const counting = dependencies.administrativeRate.count(this.#administrator);
        if (counting instanceof Promise) await counting;
        const isRead = definition.method === "GET" && definition.asksOtherServers !== true;
        if (isRead) return this.#leave(await this.#answerRead());
      }
      const answer = definition.handle(this);
      return this.#leave(answer instanceof Promise ? await answer : answer);
    } catch (thrown) {
      return this.#refuse(thrown);
    }
  }

  /**
   * Runs an administrative read when it is the organization's turn. A streamed answer does not
   * count while it runs.
   */
  async #answerRead(): Promise<Response> {
    const { definition, dependencies } = this.#route;
    const { signal } = this.request;
    const release = await dependencies.reads
      .acquire(this.#administrator, signal)
      .catch((error: unknown) => Promise.reject(signal.aborted ? clientClosed(error) : error));
    try {
      return await definition.handle(this);
    } finally {
      release();
    }
  }

  async admitAgain(): Promise<Caller> {
    await this.#admit();
    return this.caller;
  }

  get address(): string {
    return this.#server?.requestIP(this.request)?.address ?? "";
  }

  keepOpen(): () => void {
    this.#server?.timeout(this.request, 0);
    return () => this.#closeWhenIdle();
  }

  /**
   * The organization that the request's body counts for. Empty for requests without a key of an
   * organization.
   */
  get owner(): string {
    return this.#caller?.key.organizationId ?? "";
  }

  /** Whose administrative calls the request counts among: an operator's view takes none of the organization's. */
  get #administrator(): string {
    return this.#operator === undefined ? this.owner : `operator ${this.#operator.id}`;
  }

  /**
   * Checks rate and money of a model call before its long body is read. Other routes have short
   * bodies without a charge.
   */
  async admitLongBody(): Promise<void> {
    const { definition, dependencies } = this.#route;
    if (definition.access.kind !== "model") return;
    this.admittedRateHeaders = await dependencies.admitLongBody(this.caller, this.lifetime);
  }

  /** Turns off the idle timeout until the response, which can also take long. */
  keepOpenForBody(): void {
    this.#isOpenForBody = true;
    this.#server?.timeout(this.request, 0);
  }

  async #readInThread(bytes: SharedBytes): Promise<void> {
    if (this.#isKeyOld()) await this.#admit();
    const { definition } = this.#route;
    const read = await definition.readLongBody!(bytes, this.owner, this.request.signal);
    this.body = read.value;
    this.lifetime.releaseBody = () => read.release();
    if (this.#isKeyOld()) await this.#admit();
  }

  async #readForm(readForm: NonNullable<CompiledRoute["readForm"]>): Promise<void> {
    const read = await readForm(this.request, this, this.#route.dependencies.forms);
    this.lifetime.releaseBody = () => read.release();
    this.body = read.body;
    this.bodyText = read.text;
    if (this.#isKeyOld()) await this.#admit();
  }

  #closeWhenIdle(): void {
    this.#server?.timeout(this.request, this.#route.dependencies.connectionIdleSeconds);
  }

  respond(body: BodyInit, headers: Record<string, string>, status = 200): Response {
    const wire = this.#wire;
    headers["x-gateway-request-id"] = this.requestId;
    headers["x-request-id"] = this.requestId;
    if (wire !== undefined) headers[wire.requestIdHeader] = this.requestId;
    // OpenAI's clients read this header.
    if (this.#route.definition.access.kind === "model") {
      headers["openai-processing-ms"] = String(Math.round(performance.now() - this.startedMs));
    }
    this.#named = new Response(body, { status, headers });
    return this.#named;
  }

  get #wire(): ClientWire | undefined {
    return wireOf(this.#route.definition.wire, this.request);
  }

  /**
   * Authenticates the caller and stores the current state of its key. Returns no promise if the key
   * is in memory. Throws if the key may not call this route.
   */
  #admit(): void | Promise<void> {
    const admitting = this.#route.dependencies.whenAdmitting();
    return admitting === undefined
      ? this.#authenticate()
      : admitting.then(() => this.#authenticate());
  }

  #authenticate(): void | Promise<void> {
    const { definition, dependencies } = this.#route;
    const { authentication, sessions } = dependencies;
    const { access } = definition;
    if (access.kind === "session") {
      return sessions
        .callerOf(this.request, access)
        .then((caller) => this.#acceptSession(caller, access));
    }
    const authorization = credentialsOf(this.request.headers);
    if (access.kind === "operator") {
      return authentication.authenticateOperator(authorization).then(({ id, name }) => {
        this.#operator = { id, name };
      });
    }
    const authenticated = authentication.authenticate(authorization, readsAccounts(definition));
    return authenticated instanceof Promise
      ? authenticated.then((key) => this.#accept(key, access))
      : this.#accept(authenticated, access);
  }

  #accept(key: ApiKeyRecord, access: KeyAccess): void {
    this.#caller = { key };
    assertAccess(access, key, this.#route.isOpenToLimitedKeys);
  }

  #acceptSession(caller: SessionCaller, session: SessionAccess): void {
    const { definition } = this.#route;
    const { of: access } = session;
    this.person = caller.person;
    if (caller.kind === "organization" && caller.viewedBy !== undefined) {
      this.#operator = caller.viewedBy;
      assertView(session, definition);
    } else if (caller.person !== undefined) {
      assertRole(caller.person, access, definition);
    }
    const isOfOperators = access.kind === "operator";
    if (access.kind !== "public" && isOfOperators !== (caller.kind === "operator")) {
      const needed = isOfOperators ? "an operator key" : "a management key";
      throw new GatewayError("wrong_key_kind", `Sign in with ${needed} to call this endpoint.`);
    }
    if (caller.kind === "organization") this.#accept(caller.key, access);
    else this.#operator = caller.operator;
  }

  #isKeyOld(): boolean {
    const { access } = this.#route.definition;
    return access.kind !== "public" && performance.now() - this.startedMs > MAX_KEY_AGE_MS;
  }

  #leave(response: Response): Response {
    if (response !== this.#named) {
      response.headers.set("x-gateway-request-id", this.requestId);
      response.headers.set("x-request-id", this.requestId);
      const wire = this.#wire;
      if (wire !== undefined) response.headers.set(wire.requestIdHeader, this.requestId);
    }
    if (this.#route.dependencies.inFlight.isStopping) response.headers.set("connection", "close");
    if (this.lifetime.isDeferred) this.#finishLater(response.status);
    else this.#finish(response.status);
    return response;
  }

  #finishLater(status: number): void {
    this.lifetime.finish = () => {
      this.#closeWhenIdle();
      this.#finish(status);
    };
  }

  #refuse(thrown: unknown): Response {
    const { inFlight, onInternalError } = this.#route.dependencies;
    const wire = this.#wire;
    const failure = asGatewayError(thrown);
    const error = wire?.errorOf(failure) ?? failure;
    this.log.errorCode = error.code;
    this.log.request ??= loggedFieldsOf(this.body);
    if (isFault(error)) onInternalError(error, this.requestId);
    this.#finish(ERROR_TABLE[error.code].status);
    const response = errorResponse(error, this.requestId, this.lifetime.responseHeaders, wire);
    // Other responses to a session have this header too.
    if (this.#route.definition.access.kind === "session") {
      response.headers.set("cache-control", "no-store");
    }
    if (inFlight.isStopping) response.headers.set("connection", "close");
    return response;
  }

  #finish(status: number): void {
    const { definition, dependencies } = this.#route;
    const key = this.#caller?.key;
    dependencies.inFlight.end();
    if (this.#isInGate) dependencies.loadGate.end(this.owner);
    this.lifetime.releaseBody?.();
    if (this.#isOpenForBody) this.#closeWhenIdle();
    // A charge records the use of its key itself.
    if (key !== undefined && this.log.costNano === undefined) dependencies.noteUse(key.id);
    const keyId = key?.id ?? this.#operator?.id;
    const record = requestRecord(this, definition, status, key?.organizationId, keyId);
    dependencies.record(record);
    this.#trace?.finish(record);
  }
}

/**
 * Returns the credentials of a request as an Authorization header. Anthropic's clients send the bare
 * key in the header x-api-key.
 */
function credentialsOf(headers: Headers): string | null {
  const authorization = headers.get("authorization");
  if (authorization !== null) return authorization;
  const key = headers.get("x-api-key");
  return key === null ? null : `Bearer ${key}`;
}
