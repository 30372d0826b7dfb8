import { Type } from "typebox";
import type { Database } from "../../db/client.ts";
import { findPerson } from "../../db/queries/people.ts";
import type { AlertChannels } from "../alerts/alert-channels.ts";
import { outcomeShape, testShape } from "../alerts/routes.ts";
import { jsonResponse } from "../http/error-response.ts";
import {
  organizationOf,
  type RequestContext,
  type RouteDefinition,
  route,
  type SessionPerson,
} from "../http/route.ts";
import { ALERT_KIND_NAMES, alertKindsOf } from "../lib/alerts.ts";
import { GatewayError } from "../lib/errors.ts";
import type { Role } from "../lib/roles.ts";
import { body, ofSession, PREFIX, personOf, unstored } from "./account-routes.ts";

export interface AlertRouteDependencies {
  readonly sql: Database;
  readonly alerts: AlertChannels;
}

const path = `${PREFIX}/account/alerts`;

const choice = body({
  alerts: Type.Array(Type.Enum([...ALERT_KIND_NAMES]), {
    maxItems: ALERT_KIND_NAMES.length,
    uniqueItems: true,
  }),
});

/** Returns the routes by which a member chooses the alerts that it gets by mail. */
export function memberAlertRoutes(dependencies: AlertRouteDependencies): RouteDefinition[] {
  const { alerts } = dependencies;
  const answer = async (member: Member) =>
    unstored(jsonResponse(await shapeOf(dependencies, member)));
  return [
    route({
      ...ofSession,
      method: "GET",
      path,
      summary: "Get the alerts by mail of the session's member",
      responses: { 200: { description: "The choice, the possible kinds, and the last outcome" } },
      handle: (context) => answer(memberOf(context)),
    }),
    route({
      ...ofSession,
      method: "PATCH",
      path,
      summary: "Choose alerts by mail",
      body: choice,
      responses: { 200: { description: "The choice, the possible kinds, and the last outcome" } },
      async handle(context) {
        const member = memberOf(context);
        const { alerts: kinds } = context.body;
        const unreadable = kinds.find((kind) => !alertKindsOf(member.role).includes(kind));
        if (unreadable !== undefined) {
          const message = `The role ${member.role} cannot get alerts of the kind ${unreadable}.`;
          throw new GatewayError("role_not_permitted", message, { param: "alerts" });
        }
        await alerts.chooseMemberAlerts(member, kinds, context.author);
        return answer(member);
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${path}/test`,
      summary: "Mail a test alert to the session's member",
      asksOtherServers: true,
      responses: { 200: { description: "The result of the attempt" } },
      async handle(context) {
        const member = memberOf(context);
        const { address, chosen } = await mailOf(dependencies, member);
        if (address === undefined || chosen === undefined) {
          const message = alerts.canMail
            ? "Choose alerts first. Mail is sent only to a verified address."
            : "This gateway does not send mail.";
          throw new GatewayError("invalid_body", message);
        }
        return unstored(jsonResponse(testShape(await alerts.testMemberAlerts(chosen, address))));
      },
    }),
  ];
}

interface Member {
  readonly person: SessionPerson;
  readonly memberId: string;
  readonly organizationId: string;
  readonly role: Role;
}

/** Returns the member of the session. Throws 403 if the session acts for no organization. */
function memberOf(context: Pick<RequestContext, "person" | "caller">): Member {
  const person = personOf(context);
  const { memberId, role } = person;
  if (memberId === undefined || role === undefined) {
    throw new GatewayError("role_not_permitted", "Only members of an organization get alerts.");
  }
  return { person, memberId, role, organizationId: organizationOf(context) };
}

async function mailOf({ sql, alerts }: AlertRouteDependencies, { person, memberId }: Member) {
  const [account, chosen] = await Promise.all([
    findPerson(sql, { id: person.id }),
    alerts.memberAlerts(memberId),
  ]);
  const isVerified = account !== undefined && account.emailVerifiedAtMs !== null;
  const address = isVerified && alerts.canMail ? account.email : undefined;
  return { chosen, isVerified, address };
}

async function shapeOf(dependencies: AlertRouteDependencies, member: Member) {
  const { chosen, isVerified } = await mailOf(dependencies, member);
  const possible = alertKindsOf(member.role);
  return {
    // A role that was changed since the choice can have fewer kinds.
    alerts: (chosen?.alerts ?? []).filter((kind) => possible.includes(kind)),
    possible,
    mail: dependencies.alerts.canMail,
    email: member.person.email,
    is_verified: isVerified,
    ...(chosen && outcomeShape(chosen)),
  };
}
