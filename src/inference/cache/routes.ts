import { Type } from "typebox";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { purgeAnswers } from "../../../db/queries/response-cache.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { type RouteDefinition, route } from "../../http/route.ts";
import type { Clock } from "../../lib/clock.ts";
import { cachePurged } from "../../lib/events/cache-purged.ts";
import { newId } from "../../lib/ids.ts";
import type { TunedModels } from "../call/routing/tuned-models.ts";

const purgeQuery = Type.Object(
  {
    model: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1_024,
        description: "Only answers of this model.",
      }),
    ),
    key: Type.Optional(
      Type.String({
        pattern: "^[0-9a-f]{64}$",
        description: "Only the answer with this `X-Gateway-Cache-Key`.",
      }),
    ),
  },
  { additionalProperties: false },
);

const purged = Type.Object(
  {
    purged: Type.Integer({ description: "Number of removed answers that had not expired." }),
  },
  { title: "ClearedCache" },
);

interface ResponseCacheDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly tunedModels: TunedModels;
}

/** Returns the routes of an organization's response cache (contract §7). */
export function responseCacheRoutes({
  sql,
  clock,
  tunedModels,
}: ResponseCacheDependencies): RouteDefinition[] {
  return [
    route({
      method: "DELETE",
      path: "/v1/cache",
      tag: "Response cache",
      operationId: "cache.clear",
      summary: "Clear the response cache",
      description: "Answers to running requests are not stored.",
      access: { kind: "administration", scope: "cache:manage" },
      query: purgeQuery,
      responses: { 200: { description: "The answers were removed.", schema: purged } },
      async handle({ query, caller: { key }, author }) {
        const { model: name, key: keyHash } = query;
        const { organizationId } = key;
        // An alias, or a name without its author, is resolved to the model id under which answers are stored.
        const model =
          name && ((await tunedModels.indexFor(organizationId, [name])).resolve(name)?.id ?? name);
        const eventOf = (entries: number) =>
          cachePurged.build(newId("evt"), organizationId, { purged_by: key.id, entries });
        const selection = { model, keyHash };
        const count = await purgeAnswers(
          authored(sql, author),
          organizationId,
          selection,
          eventOf,
          clock.nowMs(),
        );
        return jsonResponse({ purged: count });
      },
    }),
  ];
}
