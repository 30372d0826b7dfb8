import { Type } from "typebox";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { purgeAnswers } from "../../../db/queries/response-cache.ts";
import { jsonResponse } from "../../http/error-response.ts";
import type { RouteDefinition } from "../../http/route.ts";
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
        description: "Only answers that this model gave",
      }),
    ),
    key: Type.Optional(
      Type.String({
        pattern: "^[0-9a-f]{64}$",
        description: "Only the answer whose `X-Gateway-Cache-Key` this is",
      }),
    ),
  },
  { additionalProperties: false },
);

const purged = Type.Object({
  purged: Type.Integer({ description: "Answers that could have been given again" }),
});

interface ResponseCacheDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly tunedModels: TunedModels;
}

/** The response cache of an organization (contract §7). */
export function responseCacheRoutes({
  sql,
  clock,
  tunedModels,
}: ResponseCacheDependencies): RouteDefinition[] {
  return [
    {
      method: "DELETE",
      path: "/v1/cache",
      tag: "Response cache",
      summary: "Remove answers from the response cache; requests that run now are not kept",
      access: { kind: "administration", scope: "cache:manage" },
      query: purgeQuery,
      responses: { 200: { description: "They are gone", schema: purged } },
      async handle({ query, caller: { key }, author }) {
        const { model: name, key: keyHash } = query as { model?: string; key?: string };
        const { organizationId } = key;
        // An alias, or a name without its author, stands for the model that answers have been kept for.
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
    },
  ];
}
