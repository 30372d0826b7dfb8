import { Type } from "typebox";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { lockMembers } from "../../../db/queries/members.ts";
import { type ClientWire, ERROR_TABLE } from "../../http/error-response.ts";
import { publicUrl } from "../../http/request-headers.ts";
import { organizationOf, type RequestContext, type RouteDefinition } from "../../http/route.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { MAX_PAGE, type ScimContext, scimLibrary } from "./scim-resources.ts";

interface ScimDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly publicUrl: string | undefined;
}

type Library = Awaited<ReturnType<typeof scimLibrary>>;

/** A resource type, as far as the routes use it. */
interface ResourceType {
  new (
    id?: string,
    query?: object,
  ): {
    read(context: ScimContext): Promise<object>;
    write(body: object, context: ScimContext): Promise<object>;
    patch(body: object, context: ScimContext): Promise<object | undefined>;
    dispose(context: ScimContext): Promise<void>;
  };
}

const BASE = "/scim/v2";
const CONTENT_TYPE = "application/scim+json";
const ERROR_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:Error";

/** Returns the body of an error (RFC 7644, section 3.12). */
function scimErrorBody(status: number, detail: string, scimType?: string | null): object {
  return {
    schemas: [ERROR_SCHEMA],
    status: String(status),
    ...(scimType != null && scimType !== "" && { scimType }),
    detail,
  };
}

/** The errors that clients of SCIM expect. */
const scimWire: ClientWire = {
  requestIdHeader: "x-request-id",
  contentType: CONTENT_TYPE,
  errorOf: (error) => error,
  envelope: (error) => scimErrorBody(ERROR_TABLE[error.code].status, error.message),
};

const common = {
  tag: "SCIM",
  access: { kind: "scim" },
  wire: scimWire,
} as const;
/** Resources in one answer if the client states no count. */
const DEFAULT_PAGE = 100;
/** Longest filter. The gateway compares up to 10,000 resources with each of its conditions. */
const MAX_FILTER_CHARACTERS = 1_000;
/** Operations in one PATCH request. A value of an operation can have any number of members. */
const MAX_OPERATIONS = 1_000;
/** Extensions of other schemas are accepted and ignored. */
const anyObject = Type.Object({}, { additionalProperties: true });
const OK = { description: "The resource", contentType: CONTENT_TYPE };

/**
 * Returns the routes of SCIM 2.0 (RFC 7644), by which an identity provider manages the members and teams of an
 * organization. Users are members, groups are teams.
 */
export function scimRoutes(dependencies: ScimDependencies): RouteDefinition[] {
  return [
    ...resourceRoutes(dependencies, "Users", "user", (scim) => scim.Resources.User as never),
    ...resourceRoutes(dependencies, "Groups", "group", (scim) => scim.Resources.Group as never),
    ...descriptionRoutes(dependencies),
  ];
}

function resourceRoutes(
  dependencies: ScimDependencies,
  name: string,
  noun: string,
  typeOf: (scim: Library) => ResourceType,
): RouteDefinition[] {
  const path = `${BASE}/${name}`;
  const one = `${path}/:id`;
  const run = (
    context: RequestContext,
    status: number,
    work: (type: ResourceType, scimContext: ScimContext) => Promise<object | undefined>,
  ) => answer(dependencies, context, status, async (scim, inner) => work(typeOf(scim), inner));
  return [
    {
      ...common,
      method: "GET",
      path,
      summary: `List ${noun}s`,
      ignoresQuery: true,
      responses: { 200: OK },
      handle: (context) =>
        run(context, 200, async (Type, inner) => {
          const query = queryOf(context);
          const list = await new Type(undefined, query).read(inner);
          // The library counts from the first resource that it was given.
          return { ...list, startIndex: query.startIndex };
        }),
    },
    {
      ...common,
      method: "POST",
      path,
      summary: `Create a ${noun}`,
      body: anyObject,
      responses: { 201: OK, 409: { description: "The name is taken" } },
      handle: (context) =>
        run(context, 201, (Type, inner) => new Type().write(context.body as object, inner)),
    },
    {
      ...common,
      method: "GET",
      path: one,
      summary: `Retrieve a ${noun}`,
      ignoresQuery: true,
      responses: { 200: OK },
      handle: (context) =>
        run(context, 200, (Type, inner) =>
          new Type(context.params.id, queryOf(context)).read(inner),
        ),
    },
    {
      ...common,
      method: "PUT",
      path: one,
      summary: `Replace a ${noun}`,
      body: anyObject,
      responses: { 200: OK },
      handle: (context) =>
        run(context, 200, (Type, inner) =>
          new Type(context.params.id).write(context.body as object, inner),
        ),
    },
    {
      ...common,
      method: "PATCH",
      path: one,
      summary: `Change a ${noun}`,
      body: anyObject,
      responses: { 200: OK, 204: { description: "Nothing has changed" } },
      handle: (context) =>
        run(context, 200, (Type, inner) =>
          new Type(context.params.id).patch(withoutCase(context.body), inner),
        ),
    },
    {
      ...common,
      method: "DELETE",
      path: one,
      summary: `Delete a ${noun}`,
      responses: { 204: { description: "Deleted" } },
      handle: (context) =>
        run(context, 204, async (Type, inner) => {
          await new Type(context.params.id).dispose(inner);
          return undefined;
        }),
    },
  ];
}

function descriptionRoutes(dependencies: ScimDependencies): RouteDefinition[] {
  const of = (
    name: "ServiceProviderConfig" | "Schemas" | "ResourceTypes",
    summary: string,
    typeOf: (scim: Library) => ResourceType,
    path = `${BASE}/${name}`,
  ): RouteDefinition => ({
    ...common,
    method: "GET",
    path,
    summary,
    responses: { 200: OK },
    handle: (context) =>
      answer(dependencies, context, 200, (scim, inner) =>
        new (typeOf(scim))(context.params.id).read(inner),
      ),
  });
  const config = (scim: Library) => scim.Resources.ServiceProviderConfig as never;
  const schema = (scim: Library) => scim.Resources.Schema as never;
  const type = (scim: Library) => scim.Resources.ResourceType as never;
  return [
    of("ServiceProviderConfig", "Get the features of SCIM that are available", config),
    of("Schemas", "List the schemas", schema),
    of("Schemas", "Retrieve a schema", schema, `${BASE}/Schemas/:id`),
    of("ResourceTypes", "List the resource types", type),
    of("ResourceTypes", "Retrieve a resource type", type, `${BASE}/ResourceTypes/:id`),
  ];
}

/**
 * Runs a request in one transaction, after earlier ones of the organization, so that changes of a group that arrive at
 * the same time lose no member. A failed request changes nothing.
 */
async function answer(
  { sql, clock, publicUrl: base }: ScimDependencies,
  context: RequestContext,
  status: number,
  work: (scim: Library, inner: ScimContext) => Promise<object | undefined>,
): Promise<Response> {
  const scim = await scimLibrary();
  const organizationId = organizationOf(context);
  let failure: unknown;
  try {
    const result = await authored(sql, context.author).begin(async (transaction) => {
      if (context.request.method !== "GET") await lockMembers(transaction, organizationId);
      const inner: ScimContext = {
        ...{ sql: transaction, organizationId, nowMs: clock.nowMs() },
        onFailure: (error) => {
          failure = error;
        },
      };
      return work(scim, inner);
    });
    if (result === undefined) return new Response(null, { status: 204 });
    return scimResponse(withUrls(result, publicUrl("", context.request, base)), status);
  } catch (error) {
    if (failure !== undefined) throw failure;
    if (!(error instanceof scim.Types.Error)) throw error;
    const {
      status: code,
      message,
      scimType,
    } = error as Error & {
      readonly status: number;
      readonly scimType?: string | null;
    };
    return scimResponse(scimErrorBody(code, message, scimType), code);
  }
}

function scimResponse(body: object, status: number): Response {
  return new Response(JSON.stringify(body), { status, headers: { "content-type": CONTENT_TYPE } });
}

/** Returns the result with absolute locations of resources. */
function withUrls(result: object, base: string): object {
  return JSON.parse(JSON.stringify(result), (key, value: unknown) =>
    (key === "location" || key === "$ref") && typeof value === "string" && value.startsWith(BASE)
      ? base + value
      : value,
  ) as object;
}

/** Returns the query parameters in the form of the library. Values of startIndex and count that are no page are bounded. */
function queryOf({ request }: RequestContext): {
  readonly startIndex: number;
  readonly count: number;
} {
  const parameters = Object.fromEntries(new URL(request.url).searchParams);
  const { startIndex = "1", count = String(DEFAULT_PAGE), filter = "" } = parameters;
  if (filter.length > MAX_FILTER_CHARACTERS) {
    const message = `A filter can have at most ${MAX_FILTER_CHARACTERS} characters.`;
    throw new GatewayError("invalid_query", message, { param: "filter" });
  }
  return {
    ...parameters,
    startIndex: integerIn(startIndex, 1, Number.MAX_SAFE_INTEGER),
    count: integerIn(count, 0, MAX_PAGE),
  };
}

function integerIn(text: string, min: number, max: number): number {
  const value = Math.trunc(Number(text));
  return Number.isNaN(value) ? min : Math.min(Math.max(value, min), max);
}

/** Returns a PATCH body with operations in lower case. Entra ID sends "Add", and booleans as texts. */
function withoutCase(body: unknown): object {
  const { Operations: operations, ...rest } = body as { readonly Operations?: unknown };
  if (!Array.isArray(operations)) return body as object;
  const stated = operations as readonly Readonly<Record<string, unknown>>[];
  if (stated.length > MAX_OPERATIONS) {
    const message = `A request can have at most ${MAX_OPERATIONS} operations.`;
    throw new GatewayError("payload_too_large", message);
  }
  return {
    ...rest,
    Operations: stated.map((operation) => ({
      ...operation,
      ...(typeof operation?.op === "string" && { op: operation.op.toLowerCase() }),
      ...(operation?.path === "active" && { value: booleanOf(operation.value) }),
    })),
  };
}

function booleanOf(value: unknown): unknown {
  if (typeof value !== "string") return value;
  const text = value.toLowerCase();
  return text === "true" ? true : text === "false" ? false : value;
}
