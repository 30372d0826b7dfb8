import {
  boolean,
  index,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import type { IdentityRule } from "../../src/lib/identity-rules.ts";
import { bytea } from "../bytea.ts";
import { people } from "./people.ts";

const time = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true });

/** Issuers of OpenID Connect at which people sign in. Operators configure them. */
export const identityProviders = pgTable(
  "identity_providers",
  {
    id: text("id").primaryKey(),
    /** The text on the button after "Sign in with". */
    name: text("name").notNull(),
    issuer: text("issuer").notNull(),
    clientId: text("client_id").notNull(),
    /** Sealed client secret. */
    secret: bytea("secret").notNull(),
    scopes: text("scopes").notNull(),
    /** True if an address counts as verified although the issuer does not say so. */
    vouchesForEmail: boolean("vouches_for_email").notNull(),
    rules: jsonb("rules").$type<readonly IdentityRule[]>().notNull(),
    createdAt: time("created_at").notNull(),
    updatedAt: time("updated_at").notNull(),
  },
  (table) => [uniqueIndex("identity_providers_name").on(table.name)],
);

/** The accounts of people at issuers. */
export const personIdentities = pgTable(
  "person_identities",
  {
    providerId: text("provider_id")
      .notNull()
      .references(() => identityProviders.id, { onDelete: "cascade" }),
    /** The claim `sub`. */
    subject: text("subject").notNull(),
    personId: text("person_id")
      .notNull()
      .references(() => people.id),
    /** The rules that the person met at the latest sign-in. Null: an earlier version has stored the account. */
    metRules: jsonb("met_rules").$type<readonly IdentityRule[]>(),
    createdAt: time("created_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.providerId, table.subject] }),
    index("person_identities_person").on(table.personId),
  ],
);
