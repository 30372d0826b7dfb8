import { Type } from "typebox";
import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import {
  findPerson,
  listOperatorPeople,
  type Person,
  setOperatorRole,
} from "../../../db/queries/people.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { publicUrl } from "../../http/request-headers.ts";
import { type Access, nullable, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { OPERATOR_ROLES } from "../../lib/roles.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { Members } from "../members/members.ts";
import { email, invitationShape, inviteBody, newInvitation } from "../members/routes.ts";
import type { Accounts } from "./accounts.ts";
import type { PeopleMail } from "./mail.ts";
import { linkUrl } from "./one-time-links.ts";

interface OperatorPeopleDependencies {
  readonly sql: Database;
  readonly accounts: Accounts;
  readonly members: Members;
  readonly mail: Pick<PeopleMail, "sendInvitation">;
  readonly publicUrl: string | undefined;
}

const access: Access = { kind: "operator" };
const tag = "Operators";

const operator = Type.Object(
  {
    id: Type.String(),
    email: Type.String(),
    name: Type.String(),
    role: Type.Enum([...OPERATOR_ROLES]),
    last_sign_in_at: nullable(Type.String()),
  },
  { title: "Operator" },
);
const operatorList = Type.Object(
  { data: Type.Array(operator), total: Type.Integer() },
  { title: "OperatorList" },
);
const deleted = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedOperator" },
);
const link = Type.Object(
  { url: Type.String({ description: "The link, which works once, for an hour." }) },
  { title: "PasswordLink" },
);
const addressBody = Type.Object({ email }, { additionalProperties: false });
const roleBody = Type.Object(
  { email, role: Type.Enum([...OPERATOR_ROLES]) },
  { additionalProperties: false },
);

function shapeOf({ id, email: address, name, operatorRole, lastSignInAtMs }: Person) {
  return {
    ...{ id, email: address, name, role: operatorRole },
    last_sign_in_at: lastSignInAtMs === null ? null : isoTime(lastSignInAtMs),
  };
}

/** Returns the routes by which operators manage operators, and help people of organizations to sign in. */
export function operatorPeopleRoutes(dependencies: OperatorPeopleDependencies): RouteDefinition[] {
  const { sql, accounts, members, mail, publicUrl: base } = dependencies;
  return [
    {
      method: "GET",
      path: "/v1/admin/operators",
      tag,
      operationId: "admin.operators.list",
      summary: "List operators with an account",
      access,
      responses: { 200: { description: "Operators by address.", schema: operatorList } },
      async handle() {
        const data = (await listOperatorPeople(sql)).map(shapeOf);
        return jsonResponse({ data, total: data.length });
      },
    },
    route({
      method: "POST",
      path: "/v1/admin/operators",
      tag,
      operationId: "admin.operators.create",
      summary: "Give a person a role of operators",
      description: "The person has an account already.",
      access,
      body: roleBody,
      responses: { 201: { description: "The operator.", schema: operator } },
      async handle({ body, author }) {
        const person = await findPerson(sql, { email: body.email });
        if (person === undefined) throw noPerson();
        if (person.emailVerifiedAtMs === null) {
          const message =
            "The address of the account is not verified. Create a link for a new password, and let the person use it first.";
          throw new GatewayError("role_not_permitted", message, { param: "email" });
        }
        await changeRole(authored(sql, author), person.id, body.role);
        return jsonResponse(shapeOf({ ...person, operatorRole: body.role }), 201);
      },
    }),
    {
      method: "DELETE",
      path: "/v1/admin/operators/:id",
      tag,
      operationId: "admin.operators.delete",
      summary: "Take the role of operators away",
      access,
      responses: {
        200: { description: "The person is no operator any longer.", schema: deleted },
        409: { description: "The gateway would have no operator with an account." },
      },
      async handle({ params, author }) {
        const person = await findPerson(sql, { id: params.id! });
        if (person === undefined || person.operatorRole === null) throw noPerson();
        await changeRole(authored(sql, author), person.id, null);
        return jsonResponse({ id: person.id, deleted: true });
      },
    },
    route({
      method: "POST",
      path: "/v1/admin/password_links",
      tag,
      operationId: "admin.password_links.create",
      summary: "Create a link for a new password",
      description: "Give the link only to the person with the address.",
      access,
      body: addressBody,
      responses: { 201: { description: "The link.", schema: link } },
      async handle({ body, author, request }) {
        const made = await accounts.passwordLink(body.email, author);
        if (made === undefined) throw noPerson();
        const url = linkUrl(publicUrl("/", request, base), "new-password", made.token);
        return jsonResponse({ url }, 201);
      },
    }),
    route({
      method: "POST",
      path: "/v1/admin/organizations/:id/invitations",
      tag,
      operationId: "admin.organizations.invitations.create",
      summary: "Invite a person to an organization",
      description: "For the first owner of an organization. The owner then invites the others.",
      access,
      asksOtherServers: true,
      body: inviteBody,
      responses: {
        201: { description: "The invitation with its link.", schema: newInvitation },
        409: { description: "A member already has this address." },
      },
      async handle({ params, body, author, request }) {
        const { email: address, role, team_ids: teamIds = [] } = body;
        const invited = await members.inviteTo(
          params.id,
          { email: address, role, teamIds },
          author,
        );
        const url = linkUrl(publicUrl("/", request, base), "join", invited.token);
        const email_status = await mail.sendInvitation(invited.invitation, url);
        return jsonResponse({ ...invitationShape(invited.invitation), url, email_status }, 201);
      },
    }),
  ];
}

/** Throws 409 if no operator with an account would remain. */
async function changeRole(
  sql: Database,
  id: string,
  role: Parameters<typeof setOperatorRole>[2],
): Promise<void> {
  if (await setOperatorRole(sql, id, role)) return;
  const message = "The gateway needs an operator with an account. Add another one first.";
  throw new GatewayError("last_owner", message);
}

function noPerson(): GatewayError {
  return new GatewayError("member_not_found", "No such person has an account.");
}
