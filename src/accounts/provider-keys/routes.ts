import { Type } from "typebox";
import type { ProviderKeyRecord } from "../../../db/queries/provider-keys.ts";
import { jsonResponse } from "../../http/error-response.ts";
import {
  type Access,
  optional,
  organizationOf,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { ProviderKeys } from "./provider-keys.ts";

const addKeyBody = Type.Object(
  {
    provider: Type.String({ minLength: 1, maxLength: 64, description: "Id of a provider." }),
    key: Type.String({
      minLength: 1,
      maxLength: 8_192,
      pattern: "^[\\x21-\\x7e]+$",
      description: "Printable ASCII; stored encrypted, and never shown again.",
    }),
    name: optional(Type.String({ minLength: 1, maxLength: 256 })),
    base_url: optional(
      Type.String({
        minLength: 1,
        maxLength: 2_048,
        description:
          "Public https base URL that replaces the provider's, with the version segment.",
      }),
    ),
  },
  {
    additionalProperties: false,
  },
);

const providerKey = Type.Object(
  {
    id: Type.String(),
    provider: Type.String(),
    name: Type.String(),
    key_prefix: Type.String(),
    is_valid: Type.Boolean({
      description: "If false, the provider has rejected the key, and no call uses it.",
    }),
    created_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "ProviderKey" },
);
const providerKeyList = Type.Object(
  { data: Type.Array(providerKey) },
  { title: "ProviderKeyList" },
);
const deletedProviderKey = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedProviderKey" },
);

const access: Access = { kind: "administration", scope: "provider_keys:manage" };
const tag = "Provider keys";

/** Returns the routes for an organization's provider keys (spec 1, BYOK; contract §7). */
export function providerKeyRoutes(keys: ProviderKeys): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/provider_keys",
      tag,
      operationId: "provider_keys.create",
      summary: "Add a provider key",
      access,
      body: addKeyBody,
      responses: {
        201: { description: "The provider accepted the key.", schema: providerKey },
        502: { description: "The provider could not be reached; nothing was stored." },
      },
      async handle(context) {
        const { provider, key, name, base_url: baseUrl } = context.body;
        const added = await keys.add(
          organizationOf(context),
          {
            provider,
            key,
            name: name ?? undefined,
            baseUrl: baseUrl ?? undefined,
          },
          context.author,
        );
        return jsonResponse(shapeOf(added), 201);
      },
    }),
    {
      method: "GET",
      path: "/v1/provider_keys",
      tag,
      operationId: "provider_keys.list",
      summary: "List the organization's provider keys",
      access,
      responses: { 200: { description: "Provider keys, newest first.", schema: providerKeyList } },
      async handle(context) {
        const listed = await keys.list(organizationOf(context));
        return jsonResponse({ data: listed.map(shapeOf) });
      },
    },
    route({
      method: "DELETE",
      path: "/v1/provider_keys/:id",
      tag,
      operationId: "provider_keys.delete",
      summary: "Delete a provider key",
      description: "New calls no longer use the key.",
      access,
      responses: {
        200: { description: "The provider key was deleted.", schema: deletedProviderKey },
      },
      async handle(context) {
        await keys.remove(organizationOf(context), context.params.id, context.author);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    }),
  ];
}

function shapeOf(record: ProviderKeyRecord) {
  return {
    id: record.id,
    provider: record.providerId,
    name: record.name,
    key_prefix: record.keyPrefix,
    is_valid: record.isValid,
    created_at: isoTime(record.createdAtMs),
  };
}
