import { type Static, type TSchema, Type } from "typebox";
import type { Scope } from "../lib/api-key-record.ts";
import type { Author, Origin } from "../lib/author.ts";
import type { RequestLifetime, RequestLog } from "../lib/request-log.ts";
import type { Role } from "../lib/roles.ts";
import type { SharedBytes } from "../lib/shared-bytes.ts";
import type { Caller } from "./caller.ts";
import type { ClientWire } from "./error-response.ts";
import type { ModelForm } from "./model-form.ts";

/** The keys that may call a route. */
export type KeyAccess =
  | { readonly kind: "public" }
  /**
   * Administrative endpoints: a management key or a secret key, if it holds the scope. Calls are counted. Closed to
   * limited secret keys unless limited-keys.ts lists the route.
   */
  | {
      readonly kind: "administration";
      readonly scope: Scope;
      /** True if secret keys are rejected. */
      readonly isForManagement?: true;
    }
  /** Endpoints that describe models: like administration, but calls are not counted. */
  | { readonly kind: "catalogue"; readonly scope: Scope }
  /** Endpoints of SCIM, for the tokens of identity providers only. */
  | { readonly kind: "scim" }
  /** Endpoints that show a key of an organization its own data. No scope is needed. */
  | { readonly kind: "self" }
  /** Endpoints for operator keys only. */
  | { readonly kind: "operator" }
  /** Model endpoints: a secret key that holds the scope. A management key is rejected. */
  | { readonly kind: "model"; readonly scope: Scope }
  /** Endpoints for secret keys that charge nothing, such as the endpoints of files. */
  | { readonly kind: "storage"; readonly scope: Scope };

/**
 * Access with a session of the dashboard, in a cookie. The key of the session must have the access
 * that `of` states; `public` means any session. A request states the session's CSRF token too,
 * unless the route returns the token.
 */
export interface SessionAccess {
  readonly kind: "session";
  readonly of: KeyAccess;
  readonly givesToken?: true;
  /** True for a call with which an operator ends the view of an organization. */
  readonly endsView?: true;
}

/** The callers that may call a route. */
export type Access = KeyAccess | SessionAccess;

export interface ResponseDescription {
  readonly description: string;
  readonly schema?: TSchema;
  /** Defaults to application/json. */
  readonly contentType?: string;
  /** Schema of one event. Set if the answer can also be sent as text/event-stream. */
  readonly eventSchema?: TSchema;
}

/** The person of a session that was started with an account. */
export interface SessionPerson {
  readonly id: string;
  readonly email: string;
  /** The id of the membership. Undefined for an operator. */
  readonly memberId?: string;
  /** Undefined for an operator. */
  readonly role?: Role;
  /** True for an operator who may only read. */
  readonly isViewer?: boolean;
}

export interface OperatorIdentity {
  readonly id: string;
  readonly name: string;
}

export interface RequestContext<
  Body = unknown,
  Query = Readonly<Record<string, unknown>>,
  Params = Readonly<Record<string, string>>,
> {
  readonly request: Request;
  readonly requestId: string;
  /**
   * Address of the client, or of the proxy in front of the gateway. Empty if there is no
   * connection.
   */
  readonly address: string;
  /** The origin of the request for the audit log. */
  readonly origin: Origin;
  /** The caller for the audit log. Set on routes that require a key or a session. */
  readonly author: Author;
  /** Monotonic milliseconds at which the request arrived. */
  readonly startedMs: number;
  /** Path parameters, percent-decoded. */
  readonly params: Params;
  /** Query parameters, checked against the route's schema; numbers and booleans are parsed strictly. */
  readonly query: Query;
  /**
   * The caller. Undefined on public routes, on routes for operators and in sessions of operators.
   */
  readonly caller: Caller;
  /**
   * The operator, on routes for operators and in their sessions. With a caller, the operator views the caller's
   * organization.
   */
  readonly operator: OperatorIdentity;
  /** The person, in sessions of people with an account. */
  readonly person: SessionPerson | undefined;
  /**
   * Authenticates the caller again. To be called after a wait. Rejects if the key was revoked or
   * restricted in the meantime.
   */
  admitAgain(): Promise<Caller>;
  /**
   * The parsed body, checked against the route's schema. For a form, the `ReceivedForm` or the
   * result of `examine`.
   */
  readonly body: Body;
  /**
   * The text of the body. Empty if `readLongBody` has read the body. For a form, a text that is
   * equal for equal forms.
   */
  readonly bodyText: string;
  /**
   * The rate limit headers, if the request was counted before its long body was read. The handler
   * must not count it again.
   */
  readonly admittedRateHeaders: Readonly<Record<string, string>> | undefined;
  /** Data for the request's log line, metrics and traces. */
  readonly log: RequestLog;
  readonly lifetime: RequestLifetime;
  /**
   * Returns a response to which the headers with the request id are added now, in the given record.
   * Other responses get these headers later.
   */
  respond(body: BodyInit, headers: Record<string, string>, status?: number): Response;
  /**
   * Turns off the server's idle timeout for this connection. The returned function turns it on
   * again, and so does the end of a deferred request. Without both, the connection has no timeout.
   */
  keepOpen(): () => void;
}

/** A body that a worker thread has parsed and checked. */
export interface LongRead {
  /** Replaces the parsed body. */
  readonly value: unknown;
  /** Releases the memory of the body. Called at the end of the request, possibly more than once. */
  release(): void;
}

export interface RouteDefinition {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path in the router's syntax: /v1/keys/:id */
  readonly path: string;
  readonly tag: string;
  /** The title of the operation, without a period. */
  readonly summary: string;
  /** The details that the summary leaves out, in sentences. */
  readonly description?: string;
  /**
   * The operation's id in the OpenAPI document: the resource in the words of the path, and a verb.
   * The verbs are create, list, retrieve, update, delete, or the action at the end of the path:
   * `chat.completions.create`, `webhooks.rotate_secret`. Undefined for the dashboard's routes, and
   * for second forms of a path. The document does not contain them.
   */
  readonly operationId?: string;
  /**
   * The runtime expression (OpenAPI 3.1 §4.8.19) of the URL to which the gateway sends events after
   * this operation. Used for the OpenAPI document only.
   */
  readonly sendsEventsTo?: string;
  readonly access: Access;
  readonly query?: TSchema;
  /** True for a page whose script reads the query. Every query is accepted. */
  readonly ignoresQuery?: true;
  /**
   * True if the handler waits for another server. It then uses no slot of the administrative reads.
   */
  readonly asksOtherServers?: true;
  readonly body?: TSchema;
  /** True if a request without a body counts as one with an empty object. */
  readonly bodyIsOptional?: true;
  /**
   * Maximum bytes of the body; a longer body is rejected with 413. Defaults to the maximum of the
   * route's kind.
   */
  readonly maxBodyBytes?: number;
  /** True if a request may have an Idempotency-Key. */
  readonly takesIdempotencyKey?: boolean;
  /**
   * True if unknown members of the body are passed on to the provider instead of being rejected.
   */
  readonly allowsUnknownFields?: boolean;
  /**
   * The parts of a form (multipart/form-data) that the handler reads itself. Used for the OpenAPI
   * document only.
   */
  readonly form?: TSchema;
  /**
   * The form that the pipeline reads before it calls `handle`. Its files are on disk until the
   * request ends. If the route also has a `body`, the content type of a request decides which of
   * the two it contains.
   */
  readonly modelForm?: ModelForm;
  readonly responses: Readonly<Record<number, ResponseDescription>>;
  /**
   * The wire format of the clients, if it is not the gateway's own. A function returns it for each
   * request.
   */
  readonly wire?: ClientWire | ((request: Request) => ClientWire | undefined);
  /**
   * Parses and checks, in a worker thread, a body that would block the event loop for too long.
   * Applies the schema and the checks that `handle` does on other bodies. If undefined, such bodies
   * are parsed on the event loop.
   *
   * @param owner the organization in whose turn the thread works
   */
  readLongBody?(bytes: SharedBytes, owner: string, signal: AbortSignal): Promise<LongRead>;
  handle(context: RequestContext): Response | Promise<Response>;
}

/** The parameters of a path: `{ id: string }` of /v1/keys/:id. A wildcard is the parameter `*`. */
type PathParams<Path extends string> = Path extends `${infer Segment}/${infer Rest}`
  ? PathParams<Segment> & PathParams<Rest>
  : Path extends `:${infer Name}`
    ? Readonly<Record<Name, string>>
    : Readonly<Record<Path extends "*" ? Path : never, string>>;

/**
 * Returns the route unchanged. The types of the path and of the schemas apply to the parameters, the body and the
 * query that its handler receives; the pipeline has checked body and query against the schemas.
 */
export function route<
  Path extends string,
  Body extends TSchema = TSchema,
  Query extends TSchema = TSchema,
>(
  definition: Omit<RouteDefinition, "path" | "body" | "query" | "handle"> & {
    readonly path: Path;
    readonly body?: Body;
    readonly query?: Query;
    handle(
      context: RequestContext<
        Static<Body>,
        Static<Query> & Readonly<Record<string, unknown>>,
        PathParams<Path>
      >,
    ): Response | Promise<Response>;
  },
): RouteDefinition {
  return definition as RouteDefinition;
}

/** Returns the wire format of a request's client, or undefined for the gateway's own. */
export function wireOf(wire: RouteDefinition["wire"], request: Request): ClientWire | undefined {
  return typeof wire === "function" ? wire(request) : wire;
}

/** Returns the id of the organization whose key the request uses. */
export function organizationOf({ caller }: Pick<RequestContext, "caller">): string {
  return caller.key.organizationId;
}

/** Returns a schema that also accepts null. */
export function nullable<Schema extends TSchema>(schema: Schema) {
  return Type.Union([schema, Type.Null()]);
}

/**
 * Returns the schema of an optional member that can be null. Null means that the member is missing,
 * or removes a setting.
 */
export function optional<Schema extends TSchema>(schema: Schema) {
  return Type.Optional(nullable(schema));
}

/** Returns the query fields of a page: at most `maxLimit` entries after the first `offset`. */
export function pageFields(maxLimit: number) {
  return {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: maxLimit, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  };
}
