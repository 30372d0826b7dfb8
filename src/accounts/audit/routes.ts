import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { type AuditEntry, hasAuditEntry, listAuditLog } from "../../../db/queries/audit-log.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RouteDefinition, route } from "../../http/route.ts";
import { type TimeSpanQuery, timeSpan, timeSpanFields } from "../../http/time-span.ts";
import { GatewayError } from "../../lib/errors.ts";
import { isoTime } from "../../lib/utc-time.ts";

const MAX_PAGE = 200;
const DEFAULT_PAGE = 50;

const filter = (maxLength: number, description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength, description }));

const filters = {
  actor_id: filter(256, "Id of a key or a subject, or the user of the command line."),
  action: filter(64, "For example key.created."),
  object_type: filter(64, "For example key."),
  object_id: filter(256, "Id of the object."),
  ...timeSpanFields,
  after: filter(128, "Id of an entry."),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
};

const organizationQuery = Type.Object(filters, { additionalProperties: false });
const operatorQuery = Type.Object(
  { organization_id: filter(128, "Id of an organization."), ...filters },
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

const ACTORS = [
  "secret_key",
  "management_key",
  "operator",
  "subject",
  "person",
  "scim_token",
  "cli",
  "system",
];

const actor = Type.Object(
  {
    kind: Type.Enum(ACTORS, {
      description:
        "`system` is the gateway itself. A `subject` signed in through the identity provider.",
    }),
    id: nullable(Type.String()),
    name: nullable(Type.String()),
    via: nullable(Type.Enum(["api", "dashboard", "cli"])),
    address: nullable(
      Type.String({ description: "For acts of operators, shown to operators only." }),
    ),
    user_agent: nullable(Type.String()),
    request_id: nullable(Type.String()),
  },
  { title: "AuditLogActor" },
);

const changedFields = Type.Record(Type.String(), Type.Unknown());

const entry = Type.Object(
  {
    id: Type.String(),
    organization_id: nullable(Type.String()),
    action: Type.String({
      description: "The type of the object and the action, such as key.created.",
    }),
    object: Type.Object({ type: Type.String(), id: nullable(Type.String()) }),
    actor,
    before: nullable(changedFields),
    after: nullable(changedFields),
    created_at: Type.String(),
  },
  { title: "AuditLogEntry" },
);

const auditLog = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(entry),
    first_id: nullable(Type.String()),
    last_id: nullable(Type.String()),
    has_more: Type.Boolean(),
  },
  { title: "AuditLog" },
);

const responses = { 200: { description: "Entries, newest first.", schema: auditLog } };

/**
 * Returns the routes of the audit log: an organization reads its own entries, operators read all
 * entries.
 */
export function auditRoutes(sql: Database): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/audit_log",
      tag: "Audit log",
      operationId: "audit_log.list",
      summary: "List the organization's audit log entries",
      access: { kind: "administration", scope: "keys:manage" },
      query: organizationQuery,
      responses,
      handle: async ({ query, caller }) =>
        jsonResponse(await page(sql, query, caller.key.organizationId, withoutOperatorAddress)),
    },
    route({
      method: "GET",
      path: "/v1/admin/audit_log",
      tag: "Operators",
      operationId: "admin.audit_log.list",
      summary: "List the audit log entries of all organizations and of the gateway",
      access: { kind: "operator" },
      query: operatorQuery,
      responses,
      handle: async ({ query }) =>
        jsonResponse(await page(sql, query, query.organization_id, (all) => all)),
    }),
  ];
}

async function page(
  sql: Database,
  rawQuery: unknown,
  organizationId: string | undefined,
  visible: (entry: AuditEntry) => AuditEntry,
) {
  const query = rawQuery as AuditQuery;
  const { after, limit = DEFAULT_PAGE } = query;
  if (after !== undefined && !(await hasAuditEntry(sql, after, organizationId))) {
    throw new GatewayError("invalid_query", 'Invalid cursor in "after": there is no such entry.', {
      param: "after",
    });
  }
  const rows = await listAuditLog(sql, {
    organizationId,
    actorId: query.actor_id,
    action: query.action,
    objectType: query.object_type,
    objectId: query.object_id,
    ...timeSpan(query),
    after,
    limit,
  });
  const entries = rows.slice(0, limit);
  return {
    object: "list",
    data: entries.map((row) => entryShape(visible(row))),
    first_id: entries[0]?.id ?? null,
    last_id: entries.at(-1)?.id ?? null,
    has_more: rows.length > limit,
  };
}

/**
 * Returns the entry without the address and user agent of an operator, which organizations do not
 * see.
 */
function withoutOperatorAddress(entry: AuditEntry): AuditEntry {
  const { actor } = entry;
  if (actor.kind === "system") return entry;
  if (actor.kind !== "operator" && actor.kind !== "cli" && !actor.is_operator) return entry;
  return { ...entry, actor: { ...actor, address: null, user_agent: null } };
}

function entryShape({ organizationId, createdAtMs, actor, ...rest }: AuditEntry) {
  const { is_operator: _, ...actorFields } = { is_operator: undefined, ...actor };
  return {
    ...rest,
    organization_id: organizationId,
    actor: { via: null, address: null, user_agent: null, request_id: null, ...actorFields },
    created_at: isoTime(createdAtMs),
  };
}
