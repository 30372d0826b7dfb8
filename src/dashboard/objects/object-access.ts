import { type Static, type TSchema, Type } from "typebox";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { type Act, audited, recordAct } from "../../../db/queries/audit-log.ts";
import {
  type ListedObjects,
  type ObjectOwner,
  type ObjectPage,
  ownsKey,
} from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { shownOwnerId } from "../../http/limited-keys.ts";
import { type KeyAccess, nullable, type RequestContext } from "../../http/route.ts";
import type { ResponseServices } from "../../inference/responses/background-routes.ts";
import type { Batches } from "../../jobs/batches/batches.ts";
import type { FileLibrary } from "../../jobs/files/file-library.ts";
import type { FineTuning } from "../../jobs/fine-tuning/fine-tuning.ts";
import type { VectorStores } from "../../jobs/vector-stores/vector-stores.ts";
import type { Scope } from "../../lib/api-key-record.ts";
import type { Clock } from "../../lib/clock.ts";
import type { GatewayError } from "../../lib/errors.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { AnswerThread } from "../../providers/thread-work.ts";

/** The services that store the objects of the pages. None of them calls a model for a session. */
export interface ObjectServices {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keyring: Pick<Keyring, "open">;
  readonly files: FileLibrary;
  readonly batches: Batches;
  readonly fineTuning: FineTuning;
  readonly stores: VectorStores;
  readonly responses: Pick<ResponseServices, "store" | "conversations" | "background" | "runs">;
  readonly thread: AnswerThread;
  readonly publicUrl: string | undefined;
}

export const OBJECTS = "/objects";
export const tag = "Dashboard";
const MAX_PAGE = 100;
const DEFAULT_PAGE = 25;
const MAX_ID_CHARACTERS = 256;

/** Query fields of a page that begins after an object. */
export const pageFields = {
  after: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_ID_CHARACTERS })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
};
export const pageQuery = Type.Object(pageFields, { additionalProperties: false });
type PageQuery = Static<typeof pageQuery>;

export const time = nullable(Type.String({ description: "ISO 8601" }));
export const done = Type.Object({ id: Type.String() });

export function listSchema<Schema extends TSchema>(item: Schema) {
  return Type.Object({ data: Type.Array(item), has_more: Type.Boolean() });
}

export function listResponse<Item>(
  { items, hasMore }: ListedObjects<Item>,
  toShape: (item: Item) => object,
  also: object = {},
): Response {
  return jsonResponse({ data: items.map(toShape), has_more: hasMore, ...also });
}

export const isoOrNull = (ms: number | null) => (ms === null ? null : isoTime(ms));

/** Access of sessions alone. Content and changes are POST and DELETE, which a role calls only if it may change objects. */
export function sessionAccess(scope: Scope): KeyAccess {
  return { kind: "administration", scope, isForManagement: true };
}

type Context = Pick<RequestContext, "caller" | "author">;

export function ownerIn({ caller: { key } }: Context): ObjectOwner {
  return { organizationId: key.organizationId, memberId: shownOwnerId(key) };
}

export function pageIn(context: Context & { readonly query: PageQuery }): ObjectPage {
  const { after, limit = DEFAULT_PAGE } = context.query;
  return { ...ownerIn(context), after, limit };
}

/** Returns the object if the caller sees objects of its key. Throws the error otherwise, as if there were no object. */
export async function shown<Item extends { readonly keyId: string | null }>(
  sql: Database,
  context: Context,
  item: Item | undefined,
  notFound: () => GatewayError,
): Promise<Item> {
  if (item === undefined || !(await ownsKey(sql, ownerIn(context), item.keyId))) throw notFound();
  return item;
}

type ObjectAct = Pick<Act, "action" | "after"> & { readonly id: string };

/** Returns the act on an object. Its action begins with the type of the object. */
export function actOn({ caller }: Context, { action, id, after }: ObjectAct): Act {
  const type = action.slice(0, action.indexOf("."));
  const { organizationId } = caller.key;
  return { organizationId, action, object: { type, id }, ...(after && { after }) };
}

/** Returns a database whose transactions record the act of the caller. */
export function auditedAct(sql: Database, context: Context, act: ObjectAct): Database {
  return audited(sql, context.author, actOn(context, act));
}

/** Records that the caller reads the content of an object. Must be called before the content is sent. */
export function recordRead(sql: Database, context: Context, act: ObjectAct): Promise<void> {
  return authored(sql, context.author).begin((transaction) =>
    recordAct(transaction, actOn(context, act)),
  ) as Promise<void>;
}
