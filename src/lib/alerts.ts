import type { Scope } from "./api-key-record.ts";
import { ROLE_RIGHTS, type Role } from "./roles.ts";

/** A kind of alert, which people and channels choose. */
interface AlertKindDefinition {
  readonly kind: string;
  readonly title: string;
  readonly description: string;
  /** A member gets the alerts in mail only if its role may read this. */
  readonly scope: Scope;
  /** True if an alert can concern one member's keys. Self-only members get only such alerts. */
  readonly concernsKeys?: true;
}

/**
 * All kinds of alerts. The SQL function `alert_kind` says which events are alerts of which kind.
 */
export const ALERT_KINDS = [
  {
    kind: "balance",
    title: "Low balance",
    description: "The balance fell to its threshold.",
    scope: "billing:read",
  },
  {
    kind: "budgets",
    title: "Budgets",
    description:
      "A key, team, member or end user reached a threshold of its budget, or exhausted it.",
    scope: "keys:manage",
    concernsKeys: true,
  },
  {
    kind: "payments",
    title: "Payments",
    description: "A payment failed or is disputed, or automatic top-up has stopped.",
    scope: "billing:read",
  },
  {
    kind: "requests",
    title: "Failed requests",
    description: "A fifth or more of the requests of five minutes failed.",
    scope: "usage:read",
  },
  {
    kind: "jobs",
    title: "Failed jobs",
    description:
      "A batch or a fine-tuning job failed, or at least half of the requests of a batch.",
    scope: "files:read",
    concernsKeys: true,
  },
  {
    kind: "webhooks",
    title: "Disabled webhooks",
    description: "A webhook was disabled because its receiver failed.",
    scope: "webhooks:manage",
  },
] as const satisfies readonly AlertKindDefinition[];

export type AlertKind = (typeof ALERT_KINDS)[number]["kind"];

export const ALERT_KIND_NAMES: readonly AlertKind[] = ALERT_KINDS.map(({ kind }) => kind);

/** Returns the kinds of alerts that a role may read. */
export function alertKindsOf(role: Role): readonly AlertKind[] {
  const { reads, isSelfOnly } = ROLE_RIGHTS[role];
  const kinds: readonly (AlertKindDefinition & { readonly kind: AlertKind })[] = ALERT_KINDS;
  return kinds
    .filter(({ scope, concernsKeys }) => reads.includes(scope) && (concernsKeys || !isSelfOnly))
    .map(({ kind }) => kind);
}

/** Services whose incoming webhooks a channel can use. */
export const CHAT_TYPES = ["slack", "teams", "discord"] as const;
export type ChatType = (typeof CHAT_TYPES)[number];

/** The type of a channel. `email` is the mail to one member. */
export type AlertChannelType = ChatType | "email";

/** Most messages to one channel in an hour. Further alerts wait, and come together in one message. */
export const MAX_ALERT_MESSAGES_AN_HOUR = 10;
