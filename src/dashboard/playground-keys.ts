import { Type } from "typebox";
import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import { authored } from "../../db/authored.ts";
import { type Database, sqlState } from "../../db/client.ts";
import { FOREIGN_KEY_VIOLATION } from "../../db/error-states.ts";
import { findKeyPolicies, type KeyPolicy } from "../../db/queries/api-keys.ts";
import { insertPlaygroundSecret } from "../../db/queries/playground-secrets.ts";
import { newKey, withGatewayErrors } from "../accounts/keys/api-keys.ts";
import { jsonResponse } from "../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../http/route.ts";
import { generateApiKey, hashApiKey } from "../lib/api-key-format.ts";
import { holdsScope } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { usdNumber } from "../lib/money.ts";
import { ROLE_RIGHTS } from "../lib/roles.ts";
import { isoTime } from "../lib/utc-time.ts";
import { type DashboardSessions, sessionEnded } from "./sessions.ts";

export interface PlaygroundKeysDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keys: ApiKeyActors;
  readonly sessions: Pick<DashboardSessions, "currentSession" | "endOf">;
}

/** Most that a person, or the holders of a management key, spend in the playground in a UTC day: 1 USD. */
const DAILY_BUDGET_NANO = 1_000_000_000n;
const LIFETIME_MS = 3_600_000;
/** Lifetime for users of the identity provider, whose access only the dashboard checks. */
const SUBJECT_LIFETIME_MS = 600_000;
/** Scopes of inference, without those that store anything. */
const SCOPES = ["chat:completions", "embeddings", "images", "audio"] as const;
const MAX_NAME_CHARACTERS = 240;
/** In place of the beginning of a secret: the key has a secret for each session. */
const KEY_PREFIX = "playground";

const keyBody = Type.Object(
  { team_id: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })) },
  { additionalProperties: false },
);

const playgroundKey = Type.Object({
  key: Type.String({ description: "The secret, for the memory of the page" }),
  id: Type.String(),
  name: Type.String(),
  team_id: nullable(Type.String()),
  daily_budget_usd: nullable(Type.Number({ description: "Of all playgrounds of the holder" })),
  expires_at: Type.String(),
});

/**
 * Returns the route with which a session gets a secret key for its playground. Each holder has one key, whose daily
 * budget all its sessions share. Each session has one secret of it, which ends with the session, within an hour.
 */
export function playgroundRoutes(
  path: string,
  dependencies: PlaygroundKeysDependencies,
): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: `${path}/key`,
      tag: "Dashboard",
      summary: "Create a secret key for the playground of the session",
      access: { kind: "administration", scope: "keys:manage" },
      body: keyBody,
      responses: {
        201: {
          description: "The key. The previous one of the session ends",
          schema: playgroundKey,
        },
      },
      handle: (context) => createKey(dependencies, context, context.body.team_id),
    }),
  ];
}

async function createKey(
  { sql, clock, keys, sessions }: PlaygroundKeysDependencies,
  { request, caller, person, author }: RequestContext,
  statedTeamId: string | undefined,
): Promise<Response> {
  const holder = caller!.key;
  const granter = { scopes: holder.grantedScopes ?? holder.scopes };
  if (!holdsScope(granter, SCOPES[0])) {
    throw new GatewayError("missing_scope", "This session may not give keys the scope of chats.");
  }
  const session = await sessions.currentSession(request);
  const { organizationId } = holder;
  const memberId = person?.memberId;
  const policies =
    memberId === undefined ? [] : await findKeyPolicies(sql, { organizationId, memberId });
  const isSelfOnly = person?.role !== undefined && ROLE_RIGHTS[person.role].isSelfOnly === true;
  const team = teamOf(policies, statedTeamId, isSelfOnly);
  const nowMs = clock.nowMs();
  const lifetimeMs = session.subject === null ? LIFETIME_MS : SUBJECT_LIFETIME_MS;
  const end = await sessions.endOf(request);
  const expiresAtMs = Math.min(nowMs + lifetimeMs, end.expiresAtMs);
  const { key: secret } = generateApiKey("secret");
  const created = await withGatewayErrors(
    insertPlaygroundSecret(
      authored(sql, author),
      {
        ...newKey({
          organizationId,
          kind: "secret",
          // No caller has this secret. Those of sessions are stored beside the key.
          secret: generateApiKey("secret").key,
          nowMs,
          settings: {
            name: `Playground of ${holder.name}`.slice(0, MAX_NAME_CHARACTERS),
            scopes: SCOPES.filter((scope) => holdsScope(granter, scope)),
            dailyBudgetNano: lowest(DAILY_BUDGET_NANO, team?.maxDailyBudgetNano ?? null),
            budgetIncludesByok: true,
            ownerId: memberId ?? null,
            teamId: team?.teamId ?? null,
          },
        }),
        keyPrefix: KEY_PREFIX,
        playgroundHolder: holder.id,
      },
      {
        sessionHash: session.tokenHash,
        secretHash: hashApiKey(secret),
        createdAtMs: nowMs,
        expiresAtMs,
      },
    ).catch((error: unknown) => {
      throw isMissingSession(error) ? sessionEnded() : error;
    }),
  );
  if (!created.isActive) {
    throw new GatewayError(
      "key_inactive",
      `The key "${created.name}" is inactive. Ask an admin to activate it.`,
    );
  }
  // The record in memory can have another team or other scopes.
  keys.get(created.id).forget();
  const { id, name, dailyBudgetNano } = created;
  return jsonResponse(
    {
      ...{ key: secret, id, name, team_id: team?.teamId ?? null },
      daily_budget_usd: dailyBudgetNano === null ? null : usdNumber(dailyBudgetNano),
      expires_at: isoTime(expiresAtMs),
    },
    201,
  );
}

/** Returns the team of the key. Undefined if the person is in none. Throws 403 if the key needs another one. */
function teamOf(
  policies: readonly KeyPolicy[],
  statedTeamId: string | undefined,
  needsTeam: boolean,
): KeyPolicy | undefined {
  const team =
    statedTeamId === undefined
      ? policies[0]
      : policies.find(({ teamId }) => teamId === statedTeamId);
  if (team === undefined && statedTeamId !== undefined) {
    throw new GatewayError("key_not_permitted", "You are not in this team.", { param: "team_id" });
  }
  if (team === undefined && needsTeam) {
    throw new GatewayError(
      "key_not_permitted",
      "You are in no team, so you cannot use the playground. Ask an admin to add you to one.",
    );
  }
  return team;
}

function lowest(budget: bigint, limit: bigint | null): bigint {
  return limit !== null && limit < budget ? limit : budget;
}

function isMissingSession(error: unknown): boolean {
  const { constraint_name: constraint } = (error ?? {}) as { constraint_name?: string };
  return sqlState(error) === FOREIGN_KEY_VIOLATION && constraint?.includes("session_hash") === true;
}
