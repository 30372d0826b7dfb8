import { Type } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, organizationOf, type RouteDefinition, route } from "../../http/route.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { ScimTokens } from "./tokens.ts";

const access: Access = { kind: "administration", scope: "keys:manage", isForManagement: true };
const tag = "SCIM";

const fields = {
  id: Type.String(),
  name: Type.String(),
  key_prefix: Type.String(),
  created_at: Type.String({ description: "ISO 8601." }),
};
const token = Type.Object(fields, { title: "ScimToken" });
const newToken = Type.Object(
  { ...fields, token: Type.String({ description: "The token. It is never returned again." }) },
  { title: "NewScimToken" },
);
const tokenList = Type.Object(
  { data: Type.Array(token), total: Type.Integer() },
  { title: "ScimTokenList" },
);
const body = Type.Object(
  { name: Type.String({ minLength: 1, maxLength: 256 }) },
  { additionalProperties: false },
);

function shapeOf({ id, name, keyPrefix, createdAtMs }: ApiKeyRecord) {
  return { id, name, key_prefix: keyPrefix, created_at: isoTime(createdAtMs) };
}

/** Returns the routes for SCIM tokens. A token is revoked like a key, by DELETE /v1/keys/:id. */
export function scimTokenRoutes(tokens: ScimTokens): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: "/v1/scim_tokens",
      tag,
      operationId: "scim_tokens.create",
      summary: "Create a SCIM token",
      description:
        "An identity provider manages members and teams with it at /scim/v2. Revoke it with DELETE /v1/keys/{id}.",
      access,
      body,
      responses: {
        201: { description: "The token, which is shown only once.", schema: newToken },
        403: { description: "The caller cannot manage owners, as the token can." },
        409: { description: "The organization already has a key with this name." },
      },
      async handle(context) {
        const { author, caller, person } = context;
        const granter = { key: caller.key, role: person?.role };
        const { record, secret } = await tokens.create(granter, context.body.name, author);
        return jsonResponse({ ...shapeOf(record), token: secret }, 201);
      },
    }),
    {
      method: "GET",
      path: "/v1/scim_tokens",
      tag,
      operationId: "scim_tokens.list",
      summary: "List SCIM tokens",
      access,
      responses: { 200: { description: "Tokens, newest first.", schema: tokenList } },
      async handle(context) {
        const data = (await tokens.list(organizationOf(context))).map(shapeOf);
        return jsonResponse({ data, total: data.length });
      },
    },
  ];
}
