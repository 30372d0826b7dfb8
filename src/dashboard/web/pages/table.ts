import type { ComponentType } from "preact";
import type { Scope } from "../../../lib/api-key-record.ts";
import type { Session } from "../api.ts";
import { isSelfOnly, mayRead } from "../rights.ts";
import { AccountPage } from "./account.tsx";
import { AliasesPage } from "./aliases.tsx";
import { AuditLogPage } from "./audit-log.tsx";
import { ComponentsPage } from "./components.tsx";
import { ConfiguredModelsPage } from "./configured-models.tsx";
import { IdentityProvidersPage } from "./identity-providers.tsx";
import { KeysPage } from "./keys.tsx";
import { ModelsPage } from "./models.tsx";
import { OrganizationsPage } from "./organizations.tsx";
import { OverviewPage } from "./overview.tsx";
import { MembersPage } from "./people/members.tsx";
import { TeamsPage } from "./people/teams.tsx";
import { PlaygroundPage } from "./playground.tsx";
import { ProvidersPage } from "./providers.tsx";
import { RequestsPage } from "./requests.tsx";
import { SETTINGS_SECTIONS, SettingsPage } from "./settings/settings.tsx";
import { UsagePage } from "./usage.tsx";
import { WebhooksPage } from "./webhooks.tsx";

export interface DashboardPage {
  /** Path segment under /dashboard. Empty for the first page. */
  readonly name: string;
  readonly title: string;
  /** Title for self-only members. Default: the title. */
  readonly selfTitle?: string;
  /** Kinds of session that show the page. */
  readonly of: readonly Session["kind"][];
  /** Scope of what the page shows. */
  readonly needs?: Scope;
  /** True for a page that self-only members cannot open. */
  readonly isForAll?: true;
  /** True for a page about the account of the session. */
  readonly isForPeople?: true;
  readonly isUnlisted?: true;
  /** Path segments that can follow its name. Empty for the first section. */
  readonly sections?: readonly string[];
  readonly Page: ComponentType;
}

/** Returns the pages that a session may open, in menu order. */
export function pagesOf({ kind, person }: Session): readonly DashboardPage[] {
  return PAGES.filter(
    ({ of, needs, isForAll, isForPeople }) =>
      of.includes(kind) &&
      (needs === undefined || mayRead(needs)) &&
      !(isForAll && isSelfOnly()) &&
      !(isForPeople && person === null),
  );
}

/** Returns the title of a page for the session. */
export function pageTitle({ title, selfTitle = title }: DashboardPage): string {
  return isSelfOnly() ? selfTitle : title;
}

const organization = { of: ["organization"] } as const;
const operator = { of: ["operator"] } as const;
const everyone = { of: ["organization", "operator"] } as const;

/** All pages, in menu order. */
const PAGES: readonly DashboardPage[] = [
  {
    ...{ name: "", title: "Overview", ...organization },
    ...{ needs: "usage:read", isForAll: true, Page: OverviewPage },
  },
  { name: "usage", title: "Usage", ...organization, needs: "usage:read", Page: UsagePage },
  { name: "requests", title: "Requests", ...organization, needs: "usage:read", Page: RequestsPage },
  {
    ...{ name: "keys", title: "Keys", selfTitle: "My keys" },
    ...{ ...organization, needs: "keys:manage", Page: KeysPage },
  },
  {
    ...{ name: "members", title: "Members", ...organization },
    ...{ needs: "keys:manage", isForAll: true, Page: MembersPage },
  },
  {
    ...{ name: "teams", title: "Teams", ...organization },
    ...{ needs: "keys:manage", isForAll: true, Page: TeamsPage },
  },
  {
    ...{ name: "webhooks", title: "Webhooks", ...organization },
    ...{ needs: "webhooks:manage", Page: WebhooksPage },
  },
  { name: "models", title: "Models", ...organization, needs: "models:read", Page: ModelsPage },
  {
    ...{ name: "playground", title: "Playground", ...organization },
    ...{ needs: "models:read", Page: PlaygroundPage },
  },
  {
    ...{ name: "settings", title: "Settings", ...organization, Page: SettingsPage },
    sections: SETTINGS_SECTIONS.map(({ name }) => name),
  },
  { name: "organizations", title: "Organizations", ...operator, Page: OrganizationsPage },
  { name: "providers", title: "Providers", ...operator, Page: ProvidersPage },
  { name: "configured-models", title: "Models", ...operator, Page: ConfiguredModelsPage },
  { name: "aliases", title: "Aliases", ...operator, Page: AliasesPage },
  {
    ...{ name: "identity-providers", title: "Identity providers", ...operator },
    Page: IdentityProvidersPage,
  },
  {
    ...{ name: "audit-log", title: "Audit log", ...everyone },
    ...{ needs: "keys:manage", isForAll: true, Page: AuditLogPage },
  },
  { name: "account", title: "Account", ...everyone, isForPeople: true, Page: AccountPage },
  { name: "components", title: "Components", ...everyone, isUnlisted: true, Page: ComponentsPage },
];
