import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { type AuditEntry, hasAuditEntry, listAuditLog } from "../../../db/queries/audit-log.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RouteDefinition } from "../../http/route.ts";
import { type TimeSpanQuery, timeSpan, timeSpanFields } from "../../http/time-span.ts";
import { GatewayError } from "../../lib/errors.ts";
import { isoTime } from "../../lib/utc-time.ts";

const MAX_PAGE = 200;
const DEFAULT_PAGE = 50;

const filter = (maxLength: number, description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength, description }));

const filters = {
  actor_id: filter(256, "Of a key, of a subject, or the user of the command line"),
  action: filter(64, "Such as key.created"),
  object_type: filter(64, "Such as key"),
  object_id: filter(256, "Id of the object"),
  ...timeSpanFields,
  after: filter(128, "Id of an entry"),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
};

const ownQuery = Type.Object(filters, { additionalProperties: false });
const operatorQuery = Type.Object(
  { organization_id: filter(128, "Id of an organization"), ...filters },
  { additionalProperties: false },
);

interface AuditQuery extends TimeSpanQuery {
  readonly organization_id?: string;
  readonly actor_id?: string;
  readonly action?: string;
  readonly object_type?: string;
  readonly object_id?: string;
  readonly after?: string;
  readonly limit?: number;
}

const ACTORS = ["secret_key", "management_key", "operator", "subject", "cli", "system"];

const actor = Type.Object({
  kind: Type.Enum(ACTORS, {
    description: "system: the gateway itself; subject: signed in through the identity provider",
  }),
  id: nullable(Type.String()),
  name: nullable(Type.String()),
  via: nullable(Type.Enum(["api", "dashboard", "cli"])),
  address: nullable(Type.String({ description: "Not shown of operators, but to operators" })),
  user_agent: nullable(Type.String()),
  request_id: nullable(Type.String()),
});

const changedFields = Type.Record(Type.String(), Type.Unknown());

const entry = Type.Object({
  id: Type.String(),
  organization_id: nullable(Type.String()),
  action: Type.String({ description: "<type of object>.<what was done>" }),
  object: Type.Object({ type: Type.String(), id: nullable(Type.String()) }),
  actor,
  before: nullable(changedFields),
  after: nullable(changedFields),
  created_at: Type.String(),
});

const auditLog = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(entry),
  first_id: nullable(Type.String()),
  last_id: nullable(Type.String()),
  has_more: Type.Boolean(),
});

const responses = { 200: { description: "Entries, newest first", schema: auditLog } };

/** Administrative acts: of an organization to itself, of all and of the gateway to operators. */
export function auditRoutes(sql: Database): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/audit_log",
      tag: "Audit log",
      summary: "List administrative acts of the organization",
      access: { kind: "administration", scope: "keys:manage" },
      query: ownQuery,
      responses,
      handle: async ({ query, caller }) =>
        jsonResponse(await page(sql, query, caller.key.organizationId, withoutPlaceOfOperators)),
    },
    {
      method: "GET",
      path: "/v1/admin/audit_log",
      tag: "Operators",
      summary: "List administrative acts of all organizations and of the gateway itself",
      access: { kind: "operator" },
      query: operatorQuery,
      responses,
      handle: async ({ query }) =>
        jsonResponse(await page(sql, query, (query as AuditQuery).organization_id, (all) => all)),
    },
  ];
}

async function page(
  sql: Database,
  asked: unknown,
  organizationId: string | undefined,
  shown: (entry: AuditEntry) => AuditEntry,
) {
  const query = asked as AuditQuery;
  const { after, limit = DEFAULT_PAGE } = query;
  if (after !== undefined && !(await hasAuditEntry(sql, after, organizationId))) {
    throw new GatewayError("invalid_query", 'Invalid cursor in "after": there is no such entry.', {
      param: "after",
    });
  }
  const found = await listAuditLog(sql, {
    organizationId,
    actorId: query.actor_id,
    action: query.action,
    objectType: query.object_type,
    objectId: query.object_id,
    ...timeSpan(query),
    after,
    limit,
  });
  const entries = found.slice(0, limit);
  return {
    object: "list",
    data: entries.map((one) => entryShape(shown(one))),
    first_id: entries[0]?.id ?? null,
    last_id: entries.at(-1)?.id ?? null,
    has_more: found.length > limit,
  };
}

/** Where operators work from is none of an organization's business. */
function withoutPlaceOfOperators(found: AuditEntry): AuditEntry {
  const { actor } = found;
  if (actor.kind === "system") return found;
  if (actor.kind !== "operator" && actor.kind !== "cli" && !actor.is_operator) return found;
  return { ...found, actor: { ...actor, address: null, user_agent: null } };
}

function entryShape({ organizationId, createdAtMs, actor, ...rest }: AuditEntry) {
  const { is_operator: _, ...shown } = { is_operator: undefined, ...actor };
  return {
    ...rest,
    organization_id: organizationId,
    actor: { via: null, address: null, user_agent: null, request_id: null, ...shown },
    created_at: isoTime(createdAtMs),
  };
}
