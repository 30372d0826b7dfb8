import { Type } from "typebox";
import { readCacheState } from "../../../db/queries/response-cache.ts";
import { jsonResponse } from "../../http/error-response.ts";
import type { RouteDefinition } from "../../http/route.ts";
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { OBJECTS, type ObjectServices, sessionAccess, tag } from "./object-access.ts";

const state = Type.Object({
  entries: Type.Integer(),
  bytes: Type.Integer(),
  hits: Type.Integer({ description: "Requests that got a stored answer" }),
  saved_usd: Type.Number({ description: "Original charges of these answers" }),
  models: Type.Array(
    Type.Object({
      model: Type.String(),
      entries: Type.Integer(),
      bytes: Type.Integer(),
      hits: Type.Integer({ description: "Of the answers that are stored now" }),
      last_used_at: Type.String(),
    }),
    { description: "The 100 models with most answers" },
  ),
});

/** Returns the route for the state of the response cache. */
export function cacheRoute({ sql }: Pick<ObjectServices, "sql">): RouteDefinition {
  return {
    method: "GET",
    path: `${OBJECTS}/cache`,
    tag,
    summary: "Get the state of the response cache",
    access: sessionAccess("cache:manage"),
    responses: { 200: { description: "The state", schema: state } },
    async handle({ caller }) {
      const cache = await readCacheState(sql, caller.key.organizationId);
      const { entries, bytes, hits } = cache;
      return jsonResponse({
        ...{ entries, bytes, hits, saved_usd: usdNumber(cache.savedNano) },
        models: cache.models.map(({ usedAtMs, ...model }) => ({
          ...model,
          last_used_at: isoTime(usedAtMs),
        })),
      });
    },
  };
}
