import { type Static, Type } from "typebox";
import { MAX_WHOLE_BYTES } from "../../http/read-body.ts";
import { nullable } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { SharedBytesWriter } from "../../lib/shared-bytes.ts";
import { type AnswerThread, readAnswerText } from "../../providers/thread-work.ts";
import { CallAbort } from "../../providers/transport/call-abort.ts";
import type { StoredItems } from "../endpoints/responses/response-store.ts";
import { itemsPage, type PageOptions } from "../endpoints/responses/stored-items.ts";

const MAX_PAGE = 100;
const DEFAULT_PAGE = 20;

/** Accepted and ignored, because stored items are always returned in full. */
export const include = Type.Optional(Type.String());
export const itemsQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    order: Type.Optional(Type.Enum(["asc", "desc"], { default: "desc" })),
    after: Type.Optional(
      Type.String({ description: "Id of an item; the page begins after this item." }),
    ),
    include,
    "include[]": include,
  },
  { additionalProperties: false },
);
export const storedItem = Type.Object(
  { id: Type.String(), type: Type.String() },
  { title: "ConversationItem", additionalProperties: true },
);
export const itemList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(storedItem),
    first_id: nullable(Type.String()),
    last_id: nullable(Type.String()),
    has_more: Type.Boolean(),
  },
  { title: "ConversationItemList" },
);

/** Returns the page options of a request's query. */
export function pageOf({
  limit = DEFAULT_PAGE,
  order = "desc",
  after,
}: Static<typeof itemsQuery>): PageOptions {
  return { limit, order, after };
}

/**
 * Returns the JSON of a page of items, or of a single requested item. Throws 400 if the item before the page
 * does not exist, and 404 if the requested item does not exist.
 */
export async function readPage(
  thread: AnswerThread,
  owner: string,
  items: StoredItems,
  options: PageOptions,
): Promise<string> {
  const abort = new CallAbort();
  const { body } = await readAnswerText(
    { thread, owner },
    itemsPage,
    textOf(items),
    options,
    abort,
  );
  if (body !== null) return body;
  if (options.only !== undefined) {
    throw new GatewayError("item_not_found", "There is no such item in the conversation.");
  }
  const message = 'Invalid cursor in "after": there is no such item.';
  throw new GatewayError("invalid_query", message, { param: "after" });
}

function textOf({ pieces, byteLength }: StoredItems) {
  if (byteLength <= MAX_WHOLE_BYTES) return Buffer.concat(pieces).toString("utf8");
  const writer = new SharedBytesWriter();
  for (const piece of pieces) writer.push(piece);
  return writer.end();
}
