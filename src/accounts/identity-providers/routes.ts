import { Type } from "typebox";
import type {
  IdentityProvider,
  IdentityProviderSettings,
} from "../../../db/queries/identity-providers.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { OPERATOR_ROLES, ROLES } from "../../lib/roles.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { IdentityProviders } from "./identity-providers.ts";

const access: Access = { kind: "operator" };
const tag = "Identity providers";
const MAX_RULES = 500;
const DEFAULT_SCOPES = "openid email profile";
/** https, or http on this machine. */
const SECURE = /^https:\/\/|^http:\/\/(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?(?:\/|$)/;

const text = (maxLength: number, options = {}) =>
  Type.String({ minLength: 1, maxLength, pattern: "^[^\\x00-\\x1f]+$", ...options });
const claimFields = { claim: text(128), value: text(256) };
/** A rule has either `operator_role`, or `organization_id` and `role`. */
const rule = Type.Object(
  {
    ...claimFields,
    organization_id: Type.Optional(text(64)),
    role: Type.Optional(Type.Enum([...ROLES])),
    team_ids: Type.Optional(Type.Array(text(64), { maxItems: 100 })),
    operator_role: Type.Optional(Type.Enum([...OPERATOR_ROLES])),
  },
  { additionalProperties: false },
);

const fields = {
  name: text(64, { description: 'The text on the button after "Sign in with".' }),
  issuer: text(2_048),
  client_id: text(512),
  client_secret: text(4_096),
};
const optionalFields = {
  scopes: Type.Optional(text(512)),
  vouches_for_email: Type.Optional(
    Type.Boolean({
      description: "True if an address counts as verified although the issuer does not say so.",
    }),
  ),
  rules: Type.Optional(
    Type.Array(rule, {
      maxItems: MAX_RULES,
      description:
        "The role of each group of people. Of several rules for an organization, the highest role counts, and all teams. Roles end at the first sign-in at which no rule grants them, and with the rule that granted them.",
    }),
  ),
};
const createBody = Type.Object({ ...fields, ...optionalFields }, { additionalProperties: false });
const changeBody = Type.Object(
  {
    name: Type.Optional(fields.name),
    issuer: Type.Optional(fields.issuer),
    client_id: Type.Optional(fields.client_id),
    client_secret: Type.Optional(fields.client_secret),
    ...optionalFields,
  },
  { additionalProperties: false },
);

const provider = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    issuer: Type.String(),
    client_id: Type.String(),
    scopes: Type.String(),
    vouches_for_email: Type.Boolean(),
    rules: Type.Array(rule),
    created_at: Type.String({ description: "ISO 8601." }),
    updated_at: Type.String(),
  },
  { title: "IdentityProvider" },
);
const providerList = Type.Object(
  { data: Type.Array(provider), total: Type.Integer() },
  { title: "IdentityProviderList" },
);
const deleted = Type.Object(
  {
    id: Type.String(),
    deleted: Type.Literal(true),
    memberships_ended: Type.Integer({ description: "Memberships that only its rules granted." }),
    organizations_without_owner: Type.Array(Type.String(), {
      description: "Organizations whose last owner was one of them. Invite an owner.",
    }),
  },
  { title: "DeletedIdentityProvider" },
);

function shapeOf(record: IdentityProvider) {
  return {
    id: record.id,
    name: record.name,
    issuer: record.issuer,
    client_id: record.clientId,
    scopes: record.scopes,
    vouches_for_email: record.vouchesForEmail,
    rules: record.rules,
    created_at: isoTime(record.createdAtMs),
    updated_at: isoTime(record.updatedAtMs),
  };
}

/** Returns the stated settings. Throws 400 if the issuer is not reached by https. */
function settingsOf(body: Type.Static<typeof changeBody>): Partial<IdentityProviderSettings> {
  const { issuer } = body;
  if (issuer !== undefined && (!SECURE.test(issuer) || URL.parse(issuer) === null)) {
    const message = "issuer must be an https URL, or an http URL of this machine.";
    throw new GatewayError("invalid_body", message, { param: "issuer" });
  }
  for (const [at, one] of (body.rules ?? []).entries()) assertOneGrant(one, `rules.${at}`);
  const stated = {
    name: body.name,
    issuer: issuer?.replace(/\/+$/, ""),
    clientId: body.client_id,
    scopes: body.scopes,
    vouchesForEmail: body.vouches_for_email,
    rules: body.rules,
  };
  return Object.fromEntries(Object.entries(stated).filter(([, value]) => value !== undefined));
}

/** Throws 400 unless a rule grants either a role in an organization or a role of operators. */
function assertOneGrant(
  {
    organization_id: organizationId,
    role,
    team_ids: teams,
    operator_role: operator,
  }: Type.Static<typeof rule>,
  param: string,
): void {
  const isOfOrganization = organizationId !== undefined && role !== undefined;
  const isOfOperators = organizationId === undefined && role === undefined && teams === undefined;
  if (operator === undefined ? isOfOrganization : isOfOperators) return;
  const message = `${param} must have either operator_role, or organization_id and role.`;
  throw new GatewayError("invalid_body", message, { param });
}

const response = { description: "The identity provider.", schema: provider };
const NAME_CONFLICT = { description: "There is already an identity provider with this name." };

/** Returns the routes by which operators configure identity providers (OpenID Connect). */
export function identityProviderRoutes(providers: IdentityProviders): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/admin/identity_providers",
      tag,
      operationId: "admin.identity_providers.list",
      summary: "List identity providers",
      access,
      responses: { 200: { description: "Providers by name.", schema: providerList } },
      async handle() {
        const data = (await providers.list()).map(shapeOf);
        return jsonResponse({ data, total: data.length });
      },
    },
    route({
      method: "POST",
      path: "/v1/admin/identity_providers",
      tag,
      operationId: "admin.identity_providers.create",
      summary: "Add an identity provider",
      description:
        "Register {base URL}/dashboard/sign-on/{id}/callback at the issuer. The client secret is never returned.",
      access,
      body: createBody,
      responses: { 201: response, 409: NAME_CONFLICT },
      async handle({ body, author }) {
        const initial = { scopes: DEFAULT_SCOPES, vouchesForEmail: false, rules: [] };
        const settings = { ...initial, ...settingsOf(body) } as IdentityProviderSettings;
        const created = await providers.create(settings, body.client_secret, author);
        return jsonResponse(shapeOf(created), 201);
      },
    }),
    {
      method: "GET",
      path: "/v1/admin/identity_providers/:id",
      tag,
      operationId: "admin.identity_providers.retrieve",
      summary: "Retrieve an identity provider",
      access,
      responses: { 200: response },
      handle: async ({ params }) => jsonResponse(shapeOf(await providers.find(params.id!))),
    },
    route({
      method: "PATCH",
      path: "/v1/admin/identity_providers/:id",
      tag,
      operationId: "admin.identity_providers.update",
      summary: "Change an identity provider",
      access,
      body: changeBody,
      responses: { 200: response, 409: NAME_CONFLICT },
      async handle({ params, body, author }) {
        const { client_secret: secret } = body;
        return jsonResponse(
          shapeOf(await providers.change(params.id, settingsOf(body), secret, author)),
        );
      },
    }),
    {
      method: "DELETE",
      path: "/v1/admin/identity_providers/:id",
      tag,
      operationId: "admin.identity_providers.delete",
      summary: "Delete an identity provider",
      description:
        "People keep their accounts. Memberships, teams and roles of operators that only its rules grant end within a second.",
      access,
      responses: { 200: { description: "The identity provider was deleted.", schema: deleted } },
      async handle({ params, author }) {
        const change = await providers.remove(params.id!, author);
        return jsonResponse({
          ...{ id: params.id, deleted: true },
          memberships_ended: change.membershipsEnded,
          organizations_without_owner: change.organizationsWithoutOwner,
        });
      },
    },
  ];
}
