import { Type } from "typebox";
import type { Invitation, Member } from "../../../db/queries/members.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { publicUrl } from "../../http/request-headers.ts";
import {
  type Access,
  nullable,
  organizationOf,
  pageFields,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { type NanoUsd, usdNumber } from "../../lib/money.ts";
import { ROLES, TEAM_ROLES } from "../../lib/roles.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { limitsOf, subjectLimits } from "../budgets/routes.ts";
import { MAIL_OUTCOMES, type PeopleMail } from "../people/mail.ts";
import { linkUrl } from "../people/one-time-links.ts";
import type { Granter, Members } from "./members.ts";

const MAX_PAGE = 1_000;
const DEFAULT_PAGE = 50;
const MAX_EMAIL_CHARACTERS = 254;
const MAX_TEAMS = 100;

/** An address. A message to it is the only proof that it exists. */
export const email = Type.String({
  minLength: 3,
  maxLength: MAX_EMAIL_CHARACTERS,
  pattern: "^[^\\s@\\x00-\\x1f<>,;]+@[^\\s@\\x00-\\x1f<>,;]+$",
});
const role = Type.Enum([...ROLES]);
const teamId = Type.String({ minLength: 1, maxLength: 64 });

const changeBody = Type.Object(
  {
    role: Type.Optional(role),
    is_active: Type.Optional(
      Type.Boolean({
        description: "False ends the member's sessions and rejects its keys within a second.",
      }),
    ),
    teams: Type.Optional(
      Type.Array(
        Type.Object(
          { id: teamId, role: Type.Optional(Type.Enum([...TEAM_ROLES])) },
          { additionalProperties: false },
        ),
        { maxItems: MAX_TEAMS, description: "All teams of the member." },
      ),
    ),
    ...subjectLimits,
  },
  { additionalProperties: false },
);

export const inviteBody = Type.Object(
  {
    email,
    role,
    team_ids: Type.Optional(Type.Array(teamId, { maxItems: MAX_TEAMS })),
  },
  { additionalProperties: false },
);

const member = Type.Object(
  {
    id: Type.String(),
    email: Type.String(),
    name: Type.String(),
    role,
    teams: Type.Array(Type.Object({ id: Type.String(), role: Type.Enum([...TEAM_ROLES]) })),
    daily_budget_usd: nullable(Type.Number()),
    monthly_budget_usd: nullable(Type.Number()),
    is_active: Type.Boolean(),
    last_sign_in_at: nullable(Type.String()),
    created_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "Member" },
);
const memberList = Type.Object(
  { data: Type.Array(member), total: Type.Integer() },
  { title: "MemberList" },
);

const invitationFields = {
  id: Type.String(),
  email: Type.String(),
  role,
  team_ids: Type.Array(Type.String()),
  expires_at: Type.String({ description: "ISO 8601." }),
  accepted_at: nullable(Type.String()),
};
const invitation = Type.Object(invitationFields, { title: "Invitation" });
export const newInvitation = Type.Object(
  {
    ...invitationFields,
    url: Type.String({ description: "The link, which works once. It is never returned again." }),
    email_status: Type.Enum([...MAIL_OUTCOMES], {
      description: "Whether the mail server accepted the link, or no mail is configured.",
    }),
  },
  { title: "NewInvitation" },
);
const invitationList = Type.Object(
  { data: Type.Array(invitation), total: Type.Integer() },
  { title: "InvitationList" },
);
const deleted = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedMember" },
);

function usdOrNull(nano: NanoUsd | null): number | null {
  return nano === null ? null : usdNumber(nano);
}

function memberShape(record: Member) {
  return {
    id: record.id,
    email: record.email,
    name: record.name,
    role: record.role,
    teams: record.teams,
    daily_budget_usd: usdOrNull(record.dailyBudgetNano),
    monthly_budget_usd: usdOrNull(record.monthlyBudgetNano),
    is_active: record.isActive,
    last_sign_in_at: record.lastSignInAtMs === null ? null : isoTime(record.lastSignInAtMs),
    created_at: isoTime(record.createdAtMs),
  };
}

export function invitationShape(record: Invitation) {
  return {
    id: record.id,
    email: record.email,
    role: record.role,
    team_ids: record.teamIds,
    expires_at: isoTime(record.expiresAtMs),
    accepted_at: record.acceptedAtMs === null ? null : isoTime(record.acceptedAtMs),
  };
}

const access: Access = { kind: "administration", scope: "keys:manage", isForManagement: true };
const tag = "Members";
const page = Type.Object(pageFields(MAX_PAGE), { additionalProperties: false });
const NOT_PERMITTED = { description: "The caller cannot give this role, or take it away." };

function granterOf({ caller, person }: Pick<RequestContext, "caller" | "person">): Granter {
  return { key: caller.key, role: person?.role };
}

/** Returns the routes for members and invitations (contract §14). */
export function memberRoutes(
  members: Members,
  {
    baseUrl,
    mail,
  }: { readonly baseUrl: string | undefined; readonly mail: Pick<PeopleMail, "sendInvitation"> },
): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/members",
      tag,
      operationId: "members.list",
      summary: "List the organization's members",
      access,
      query: page,
      responses: {
        200: { description: "Members in the order of their addresses.", schema: memberList },
      },
      async handle(context) {
        const { limit = DEFAULT_PAGE, offset = 0 } = context.query;
        const listed = await members.list(organizationOf(context), { limit, offset });
        return jsonResponse({ data: listed.members.map(memberShape), total: listed.total });
      },
    }),
    route({
      method: "GET",
      path: "/v1/members/:id",
      tag,
      operationId: "members.retrieve",
      summary: "Retrieve a member",
      access,
      responses: { 200: { description: "The member.", schema: member } },
      handle: async (context) =>
        jsonResponse(memberShape(await members.find(organizationOf(context), context.params.id))),
    }),
    route({
      method: "PATCH",
      path: "/v1/members/:id",
      tag,
      operationId: "members.update",
      summary: "Change a member",
      description: "Null removes a budget.",
      access,
      body: changeBody,
      responses: {
        200: { description: "The changed member.", schema: member },
        403: NOT_PERMITTED,
        409: { description: "The organization would have no active owner." },
      },
      async handle(context) {
        const { params, body, author } = context;
        const change = {
          role: body.role,
          isActive: body.is_active,
          teams: body.teams?.map(({ id, role: inTeam = "member" }) => ({ id, role: inTeam })),
          limits: limitsOf(body),
        };
        const changed = await members.change(granterOf(context), params.id, change, author);
        return jsonResponse(memberShape(changed));
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/members/:id",
      tag,
      operationId: "members.delete",
      summary: "Remove a member",
      description: "The member's sessions end, and its keys are rejected, within a second.",
      access,
      responses: {
        200: { description: "The member was removed.", schema: deleted },
        403: NOT_PERMITTED,
        409: { description: "The organization would have no active owner." },
      },
      async handle(context) {
        const { params, author } = context;
        await members.remove(granterOf(context), params.id, author);
        return jsonResponse({ id: params.id, deleted: true });
      },
    }),
    route({
      method: "POST",
      path: "/v1/invitations",
      tag,
      operationId: "invitations.create",
      summary: "Invite a person",
      description:
        "The link works once, for 7 days. It is mailed if mail is configured. An earlier open invitation to the address no longer works.",
      access,
      asksOtherServers: true,
      body: inviteBody,
      responses: {
        201: { description: "The invitation with its link.", schema: newInvitation },
        403: NOT_PERMITTED,
        409: { description: "A member already has this address." },
      },
      async handle(context) {
        const { body, author, request } = context;
        const { email: address, role: invited, team_ids: teamIds = [] } = body;
        const person = { email: address, role: invited, teamIds };
        const { invitation: made, token } = await members.invite(
          granterOf(context),
          person,
          author,
        );
        const url = linkUrl(publicUrl("/", request, baseUrl), "join", token);
        const email_status = await mail.sendInvitation(made, url);
        return jsonResponse({ ...invitationShape(made), url, email_status }, 201);
      },
    }),
    route({
      method: "GET",
      path: "/v1/invitations",
      tag,
      operationId: "invitations.list",
      summary: "List the organization's invitations",
      access,
      query: page,
      responses: {
        200: {
          description: "Invitations, newest first, without their links.",
          schema: invitationList,
        },
      },
      async handle(context) {
        const { limit = DEFAULT_PAGE, offset = 0 } = context.query;
        const listed = await members.invitations(organizationOf(context), { limit, offset });
        return jsonResponse({ data: listed.invitations.map(invitationShape), total: listed.total });
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/invitations/:id",
      tag,
      operationId: "invitations.delete",
      summary: "Withdraw an invitation",
      access,
      responses: { 200: { description: "The link no longer works.", schema: deleted } },
      async handle(context) {
        const { params, author } = context;
        await members.withdraw(organizationOf(context), params.id, author);
        return jsonResponse({ id: params.id, deleted: true });
      },
    }),
  ];
}
