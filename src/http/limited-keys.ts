import { type ApiKeyRecord, isLimited } from "../lib/api-key-record.ts";
import type { RouteDefinition } from "./route.ts";

/**
 * Routes that a limited secret key can call, in addition to public routes: model calls, the files
 * and stored objects that model calls use, and the key's own figures. Every route that is not
 * listed is closed to it.
 */
const OPEN_TO_LIMITED_KEYS: ReadonlySet<string> = new Set([
  "POST /v1/chat/completions",
  "POST /v1/messages",
  "POST /v1/messages/count_tokens",
  "POST /v1/embeddings",
  "POST /v1/rerank",
  "POST /v1/moderations",
  "POST /v1/audio/speech",
  "POST /v1/audio/transcriptions",
  "POST /v1/audio/translations",
  "POST /v1/images/generations",
  "POST /v1/images/edits",
  "POST /v1/images/variations",
  "POST /v1/responses",
  "POST /v1/responses/input_tokens",
  "POST /v1/responses/compact",
  "GET /v1/responses/:id",
  "DELETE /v1/responses/:id",
  "GET /v1/responses/:id/input_items",
  "POST /v1/responses/:id/cancel",
  "POST /v1/conversations",
  "GET /v1/conversations/:id",
  "POST /v1/conversations/:id",
  "DELETE /v1/conversations/:id",
  "GET /v1/conversations/:id/items",
  "POST /v1/conversations/:id/items",
  "GET /v1/conversations/:id/items/:item_id",
  "DELETE /v1/conversations/:id/items/:item_id",
  "POST /v1/files",
  "GET /v1/files",
  "GET /v1/files/:id",
  "GET /v1/files/:id/content",
  "GET /v1/files/:id/download_url",
  "DELETE /v1/files/:id",
  "POST /v1/vector_stores",
  "GET /v1/vector_stores",
  "GET /v1/vector_stores/:id",
  "POST /v1/vector_stores/:id",
  "DELETE /v1/vector_stores/:id",
  "POST /v1/vector_stores/:id/search",
  "POST /v1/vector_stores/:id/files",
  "GET /v1/vector_stores/:id/files",
  "GET /v1/vector_stores/:id/files/:file",
  "POST /v1/vector_stores/:id/files/:file",
  "DELETE /v1/vector_stores/:id/files/:file",
  "GET /v1/vector_stores/:id/files/:file/content",
  "POST /v1/vector_stores/:id/file_batches",
  "GET /v1/vector_stores/:id/file_batches/:batch",
  "POST /v1/vector_stores/:id/file_batches/:batch/cancel",
  "GET /v1/vector_stores/:id/file_batches/:batch/files",
  "POST /v1/batches",
  "GET /v1/batches",
  "GET /v1/batches/:id",
  "POST /v1/batches/:id/cancel",
  "POST /v1/fine_tuning/jobs",
  "GET /v1/fine_tuning/jobs",
  "GET /v1/fine_tuning/jobs/:id",
  "GET /v1/fine_tuning/jobs/:id/events",
  "POST /v1/fine_tuning/jobs/:id/cancel",
  "GET /v1/models",
  "GET /v1/models/count",
  "GET /v1/models/search",
  "GET /v1/models/compare",
  "GET /v1/models/*",
  // Figures of the key itself. The handlers leave out the figures of other keys (`shownKeyId`).
  "GET /v1/key",
  "GET /v1/keys/:id",
  "GET /v1/usage",
  "GET /v1/requests",
  "GET /v1/requests/:id",
  "GET /v1/credits/transactions",
]);

/** Returns true if a limited secret key that holds the route's scope may call the route. */
export function isOpenToLimitedKeys({ method, path }: Pick<RouteDefinition, "method" | "path">) {
  return OPEN_TO_LIMITED_KEYS.has(`${method} ${path}`);
}

/**
 * Routes that members with a role for their keys alone can call, in the dashboard: those whose handlers leave out the
 * keys and figures of others. Every route that is not listed is closed to them.
 */
const OPEN_TO_DEVELOPERS: ReadonlySet<string> = new Set([
  "GET /v1/keys",
  "POST /v1/keys",
  "GET /v1/keys/:id",
  "PATCH /v1/keys/:id",
  "DELETE /v1/keys/:id",
  "POST /playground/key",
  "GET /v1/usage",
  "GET /v1/requests",
  "GET /v1/requests/:id",
  "GET /v1/organization",
  "GET /v1/models",
  "GET /v1/models/count",
  "GET /v1/models/search",
  "GET /v1/models/compare",
  "GET /v1/models/*",
  "GET /v1/presets",
  "GET /v1/presets/:id",
  "GET /v1/guardrails",
  "GET /v1/guardrails/:id",
  // The dashboard's own routes of stored objects: see objects/routes.ts there.
  "GET /objects/files",
  "POST /objects/files/:id/download_url",
  "DELETE /objects/files/:id",
  "GET /objects/batches",
  "GET /objects/batches/:id",
  "GET /objects/batches/:id/failed_lines",
  "POST /objects/batches/:id/cancel",
  "GET /objects/fine_tuning_jobs",
  "GET /objects/fine_tuning_jobs/:id",
  "GET /objects/fine_tuning_jobs/:id/events",
  "POST /objects/fine_tuning_jobs/:id/cancel",
  "GET /objects/vector_stores",
  "GET /objects/vector_stores/:id",
  "GET /objects/vector_stores/:id/files",
  "DELETE /objects/vector_stores/:id",
  "DELETE /objects/vector_stores/:id/files/:file",
  "GET /objects/responses",
  "POST /objects/responses/:id/content",
  "DELETE /objects/responses/:id",
  "GET /objects/conversations",
  "POST /objects/conversations/:id/content",
  "DELETE /objects/conversations/:id",
]);

const DASHBOARD_PREFIX = "/dashboard/api";

/** Returns true if a member with a role for its keys alone may call the route, if its role has the scope. */
export function isOpenToDevelopers({ method, path }: Pick<RouteDefinition, "method" | "path">) {
  const inApi = path.startsWith(DASHBOARD_PREFIX) ? path.slice(DASHBOARD_PREFIX.length) : path;
  return OPEN_TO_DEVELOPERS.has(`${method} ${inApi}`);
}

/** Returns the member whose keys alone a caller sees and manages. Undefined if the caller sees all keys. */
export function shownOwnerId(key: ApiKeyRecord): string | undefined {
  return key.kind === "management" ? (key.ownerId ?? undefined) : undefined;
}

/** The keys whose figures a caller may see. Undefined members do not restrict. */
interface ShownKeys {
  readonly keyId: string | undefined;
  readonly memberId: string | undefined;
}

export function shownKeys(key: ApiKeyRecord): ShownKeys {
  return { keyId: shownKeyId(key), memberId: shownOwnerId(key) };
}

/**
 * Returns the only key whose figures a caller may see, or undefined if the caller may see the
 * figures of the whole organization.
 */
export function shownKeyId(key: ApiKeyRecord): string | undefined {
  return isLimited(key) ? key.id : undefined;
}
