import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  index,
  pgTable,
  primaryKey,
  text,
  timestamp,
  unique,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import type { OperatorRole, Role, TeamRole } from "../../src/lib/roles.ts";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";
import { teams } from "./teams.ts";

const time = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true });

/** People with an account. An account is one for all organizations of which the person is a member. */
export const people = pgTable(
  "people",
  {
    id: text("id").primaryKey(),
    /** The address in the form that the person writes. No two accounts have addresses that differ only in case. */
    email: text("email").notNull(),
    name: text("name").notNull(),
    /** Null: the address is not verified. */
    emailVerifiedAt: time("email_verified_at"),
    /** Argon2id, in the PHC format. Null: the person cannot sign in with a password. */
    passwordHash: text("password_hash"),
    /** Sealed secret of the second factor. Null: none. */
    totpSecret: bytea("totp_secret"),
    /** The last accepted time step of the second factor, so that a code counts once. */
    totpStep: text("totp_step"),
    /** Null: the person is no operator of the gateway. */
    operatorRole: text("operator_role").$type<OperatorRole>(),
    /** The identity provider whose rules have granted the role. Null: the gateway itself. */
    operatorProviderId: text("operator_provider_id"),
    createdAt: time("created_at").notNull(),
    lastSignInAt: time("last_sign_in_at"),
  },
  () => [
    uniqueIndex("people_email").on(sql`lower(email)`),
    check("people_operator_role", sql`operator_role IN ('operator', 'operator_viewer')`),
  ],
);

/** Memberships of people in organizations. A removed member keeps the row, so that keys and usage can name it. */
export const members = pgTable(
  "members",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    personId: text("person_id")
      .notNull()
      .references(() => people.id),
    role: text("role").$type<Role>().notNull(),
    /** Id at the identity provider that manages members by SCIM. */
    externalId: text("external_id"),
    /** The identity provider whose rules have granted the membership. Null: an invitation, or SCIM. */
    identityProviderId: text("identity_provider_id"),
    /** False: the member cannot sign in, and its keys are rejected. */
    isActive: boolean("is_active").notNull().default(true),
    createdAt: time("created_at").notNull(),
    deletedAt: time("deleted_at"),
  },
  (table) => [
    uniqueIndex("members_person")
      .on(table.organizationId, table.personId)
      .where(sql`deleted_at IS NULL`),
    index("members_of_person").on(table.personId),
    // Referenced by keys and teams, whose members are always of their organization.
    unique("members_of_organization").on(table.organizationId, table.id),
    check("members_role", sql`role IN ('owner', 'admin', 'developer', 'billing', 'viewer')`),
  ],
);

/** Members of teams. */
export const teamMembers = pgTable(
  "team_members",
  {
    teamId: text("team_id")
      .notNull()
      .references(() => teams.id),
    memberId: text("member_id")
      .notNull()
      .references(() => members.id),
    organizationId: text("organization_id").notNull(),
    role: text("role").$type<TeamRole>().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.teamId, table.memberId] }),
    index("team_members_of_member").on(table.memberId),
    check("team_members_role", sql`role IN ('lead', 'member')`),
  ],
);

/** Invitations to an organization. Their links work once. */
export const invitations = pgTable(
  "invitations",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    email: text("email").notNull(),
    role: text("role").$type<Role>().notNull(),
    teamIds: text("team_ids").array().notNull(),
    /** SHA-256 of the link's token, hex. */
    tokenHash: text("token_hash").notNull(),
    createdAt: time("created_at").notNull(),
    expiresAt: time("expires_at").notNull(),
    acceptedAt: time("accepted_at"),
    deletedAt: time("deleted_at"),
  },
  (table) => [
    uniqueIndex("invitations_token").on(table.tokenHash),
    index("invitations_listing").on(table.organizationId, table.id),
  ],
);

/** Links that work once: to the account of the first operator, or to a new password. */
export const accountLinks = pgTable(
  "account_links",
  {
    /** SHA-256 of the link's token, hex. */
    tokenHash: text("token_hash").primaryKey(),
    purpose: text("purpose").$type<"first_operator" | "password">().notNull(),
    /** Null for the first operator, who has no account yet. */
    personId: text("person_id").references(() => people.id),
    createdAt: time("created_at").notNull(),
    expiresAt: time("expires_at").notNull(),
    usedAt: time("used_at"),
  },
  (table) => [index("account_links_person").on(table.personId)],
);

/** Passkeys of people: discoverable credentials of WebAuthn. */
export const passkeys = pgTable(
  "passkeys",
  {
    /** Id of the credential, base64url. */
    id: text("id").primaryKey(),
    personId: text("person_id")
      .notNull()
      .references(() => people.id),
    name: text("name").notNull(),
    /** In the format of COSE. */
    publicKey: bytea("public_key").notNull(),
    /** Signatures that the authenticator has counted. Always 0 for authenticators that do not count. */
    counter: bigint("counter", { mode: "number" }).notNull(),
    /** How browsers reach the authenticator, such as "internal" or "usb". */
    transports: text("transports").array().notNull(),
    /** True if the passkey is synchronised between devices. */
    isBackedUp: boolean("is_backed_up").notNull(),
    createdAt: time("created_at").notNull(),
    lastUsedAt: time("last_used_at"),
  },
  (table) => [index("passkeys_of_person").on(table.personId)],
);

/** Challenges that a passkey has to sign. Each is deleted when it is used. */
export const passkeyChallenges = pgTable(
  "passkey_challenges",
  {
    /** Base64url. It is no secret. */
    challenge: text("challenge").primaryKey(),
    /** The person who adds a passkey. Null: the challenge is for a sign-in. */
    personId: text("person_id").references(() => people.id),
    expiresAt: time("expires_at").notNull(),
  },
  (table) => [index("passkey_challenges_expiry").on(table.expiresAt)],
);
