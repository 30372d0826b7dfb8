import { type TSchema, Type } from "typebox";
import type { Caller } from "../inference/call/admission.ts";
import type { BatchPhase } from "../inference/call/batched-call.ts";
import type { InternalIdempotencyKey } from "../inference/call/call.ts";
import type { Scope } from "../lib/api-key-record.ts";
import type { Author, Origin } from "../lib/author.ts";
import type { RequestFacts } from "../lib/request-facts.ts";
import type { SharedBytes } from "../lib/shared-bytes.ts";
import type { ClientWire } from "./error-response.ts";
import type { ModelForm } from "./model-form.ts";

/** Which keys may call a route. */
export type KeyAccess =
  | { readonly kind: "public" }
  /**
   * Administrative endpoints: a management key or a secret key, if it holds the scope. Calls are counted. Closed to
   * limited secret keys unless limited-keys.ts lists the route.
   */
  | { readonly kind: "administration"; readonly scope: Scope }
  /** What describes the models: as administration, but not counted among administrative calls. */
  | { readonly kind: "catalogue"; readonly scope: Scope }
  /** What tells a key of an organization about itself: no scope is needed. */
  | { readonly kind: "self" }
  /** An operator key, and no key of an organization. */
  | { readonly kind: "operator" }
  /** Model endpoints: a secret key that holds the scope; a management key is of the wrong kind. */
  | { readonly kind: "model"; readonly scope: Scope }
  /** Endpoints of secret keys that charge nothing, such as those of files. */
  | { readonly kind: "storage"; readonly scope: Scope };

/**
 * A session of the dashboard, in a cookie, whose key has the access that `of` states; public: any session.
 * A request states the session's CSRF token too, unless the route gives that out.
 */
export interface SessionAccess {
  readonly kind: "session";
  readonly of: KeyAccess;
  readonly givesToken?: true;
}

/** Who may call a route. */
export type Access = KeyAccess | SessionAccess;

export interface ResponseDescription {
  readonly description: string;
  readonly schema?: TSchema;
  /** application/json unless said otherwise. */
  readonly contentType?: string;
  /** What the frames of the answer hold where it may be sent as text/event-stream too. */
  readonly eventSchema?: TSchema;
}

export interface OperatorIdentity {
  readonly id: string;
  readonly name: string;
}

export interface RequestContext {
  readonly request: Request;
  readonly requestId: string;
  /** Of the client, or of the proxy before it; empty where there is no connection. */
  readonly address: string;
  /** For the audit log. */
  readonly origin: Origin;
  /** Who calls, for the audit log; on routes that a key or a session may call. */
  readonly author: Author;
  /** Monotonic milliseconds at which the request arrived. */
  readonly startedMs: number;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Query parameters, checked against the route's schema; numbers and booleans are parsed strictly. */
  readonly query: Readonly<Record<string, unknown>>;
  /** The caller's key; absent on public routes, on those of operators and in their sessions. */
  readonly caller: Caller;
  /** The operator key; absent on all other routes. */
  readonly operator: OperatorIdentity;
  /** The same as it stands now, for who has waited. Rejects where the key may not call any more. */
  admitAgain(): Promise<Caller>;
  /** The parsed body, checked against the route's schema; a ReceivedForm where the route has a `modelForm`. */
  readonly body: unknown;
  /** The body as it came; "" for one that `readLongBody` has read; of a form what tells it from others. */
  readonly bodyText: string;
  /**
   * The headers of the rate window where the body took its place in it, because it was long: the handler
   * takes no second one.
   */
  readonly admittedRateHeaders: Readonly<Record<string, string>> | undefined;
  /**
   * Keeps, before its charge, an answer that is too large to be kept under the request's idempotency key. Absent: it
   * cannot be given again.
   */
  storeLargeResult?(body: Uint8Array): Promise<void>;
  readonly internalIdempotency?: InternalIdempotencyKey | undefined;
  /** Set where its provider answers it in a batch. */
  readonly half?: BatchPhase | undefined;
  /** Extra facts for the request's log line. */
  readonly log: RequestFacts;
  /** A response that carries the request's id from the start, in the given record; others get it later. */
  respond(body: BodyInit, headers: Record<string, string>, status?: number): Response;
  /**
   * Keeps a quiet connection from being ended by the server's idle timeout, until the returned function is
   * called or, for a deferred request, until that has ended: a caller that forgets both leaves it open.
   */
  keepOpen(): () => void;
}

/** A body that a thread has parsed and checked. */
export interface LongRead {
  /** Takes the place of the parsed body. */
  readonly value: unknown;
  /** Gives up what is kept of the body; called at the end of the request, perhaps more than once. */
  release(): void;
}

export interface RouteDefinition {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  /** As the router takes it: /v1/keys/:id */
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly access: Access;
  readonly query?: TSchema;
  /** Of a page, whose script reads the query: any is accepted. */
  readonly ignoresQuery?: true;
  /** The handler waits for another server: while it does, it takes no place among administrative reads. */
  readonly asksOtherServers?: true;
  readonly body?: TSchema;
  /** A request may come without a body, which then counts as an empty object. */
  readonly bodyIsOptional?: true;
  /** Of the body; a longer one is 413. Absent: what any body of its kind may have. */
  readonly maxBodyBytes?: number;
  /** The request may carry an Idempotency-Key. */
  readonly takesIdempotencyKey?: boolean;
  /** Unknown members of the body are passed on to the provider instead of refused. */
  readonly allowsUnknownFields?: boolean;
  /** The parts of a form (multipart/form-data), which the handler reads as they come; for the description. */
  readonly form?: TSchema;
  /**
   * The form that the pipeline reads before `handle`: its files are on disk until the request ends. Where the
   * route has a `body` too, the content type of a request says which of the two it brings.
   */
  readonly modelForm?: ModelForm;
  readonly responses: Readonly<Record<number, ResponseDescription>>;
  /** The wire of its clients, where that is not the gateway's own; of each request, where that tells it. */
  readonly wire?: ClientWire | ((request: Request) => ClientWire | undefined);
  /**
   * Parses and checks, away from the event loop, a body that would hold it for too long, by the schema and by
   * what `handle` checks of other bodies. Where it is left out such bodies are parsed on the loop.
   *
   * @param owner whose turn it takes
   */
  readLongBody?(bytes: SharedBytes, owner: string, signal: AbortSignal): Promise<LongRead>;
  handle(context: RequestContext): Response | Promise<Response>;
}

/** The wire that a request's client speaks; undefined for the gateway's own. */
export function wireOf(wire: RouteDefinition["wire"], request: Request): ClientWire | undefined {
  return typeof wire === "function" ? wire(request) : wire;
}

/** Parts of the schemas of several groups. */

export function nullable<Schema extends TSchema>(schema: Schema) {
  return Type.Union([schema, Type.Null()]);
}

/** A member that may be null, which says the same as leaving it out, or takes away what was set. */
export function optional<Schema extends TSchema>(schema: Schema) {
  return Type.Optional(nullable(schema));
}

/** The query of a page: at most `maxLimit` entries behind the first `offset`. */
export function pageFields(maxLimit: number) {
  return {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: maxLimit, default: 50 })),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  };
}
