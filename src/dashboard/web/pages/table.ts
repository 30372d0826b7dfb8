import type { ComponentType } from "preact";
import type { Scope } from "../../../lib/api-key-record.ts";
import type { Session } from "../api.ts";
import type { IconName } from "../components/icon.tsx";
import { isSelfOnly, mayRead } from "../rights.ts";
import { AccountPage } from "./account.tsx";
import { AliasesPage } from "./aliases.tsx";
import { AuditLogPage } from "./audit-log.tsx";
import { ComponentsPage } from "./components.tsx";
import { ConfiguredModelsPage } from "./configured-models.tsx";
import { IdentityProvidersPage } from "./identity-providers.tsx";
import { KeysPage } from "./keys.tsx";
import { ModelsPage } from "./models.tsx";
import { BatchesPage } from "./objects/batches.tsx";
import { BudgetsPage } from "./objects/budgets.tsx";
import { FineTuningPage } from "./objects/fine-tuning.tsx";
import { RESPONSE_SECTIONS, ResponsesPage } from "./objects/responses.tsx";
import { STORAGE_SECTIONS, StoragePage } from "./objects/storage.tsx";
import { OperationPage } from "./operation/overview.tsx";
import { OrganizationsPage } from "./organizations.tsx";
import { OverviewPage } from "./overview.tsx";
import { MembersPage } from "./people/members.tsx";
import { TeamsPage } from "./people/teams.tsx";
import { PlaygroundPage } from "./playground.tsx";
import { ProvidersPage } from "./providers.tsx";
import { RequestsPage } from "./requests.tsx";
import { SETTINGS_SECTIONS, SettingsPage } from "./settings/settings.tsx";
import { TransactionsPage } from "./transactions.tsx";
import { UsagePage } from "./usage.tsx";
import { WebhooksPage } from "./webhooks.tsx";

export interface DashboardPage {
  /** Path segment under /dashboard. Empty for the first page. */
  readonly name: string;
  readonly title: string;
  readonly icon: IconName;
  /** Heading of the menu above the page. Without one it comes first. Pages of a group follow each other. */
  readonly group?: "Build" | "Monitor" | "Money" | "Access" | "Gateway" | "Settings";
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
export function pagesOf({ kind, person, viewing }: Session): readonly DashboardPage[] {
  return PAGES.filter(
    ({ of, needs, isForAll, isForPeople }) =>
      of.includes(kind) &&
      (needs === undefined || mayRead(needs)) &&
      !(isForAll && isSelfOnly()) &&
      !(isForPeople && (person === null || viewing !== null)),
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
    ...{ name: "", title: "Overview", icon: "layout-dashboard", ...organization },
    ...{ needs: "usage:read", isForAll: true, Page: OverviewPage },
  },
  {
    ...{ name: "", title: "Overview", icon: "layout-dashboard", ...operator },
    Page: OperationPage,
  },
  {
    ...{ name: "usage", title: "Usage", icon: "chart-column", group: "Monitor" },
    ...{ ...organization, needs: "usage:read", Page: UsagePage },
  },
  {
    ...{ name: "requests", title: "Requests", icon: "list", group: "Monitor" },
    ...{ ...organization, needs: "usage:read", Page: RequestsPage },
  },
  {
    ...{ name: "transactions", title: "Transactions", icon: "receipt-text", group: "Monitor" },
    ...{ ...organization, needs: "billing:read", isForAll: true, Page: TransactionsPage },
  },
  {
    ...{ name: "models", title: "Models", icon: "boxes", group: "Build" },
    ...{ ...organization, needs: "models:read", Page: ModelsPage },
  },
  {
    ...{ name: "playground", title: "Playground", icon: "terminal", group: "Build" },
    ...{ ...organization, needs: "models:read", Page: PlaygroundPage },
  },
  {
    ...{ name: "batches", title: "Batches", icon: "layers", group: "Build" },
    ...{ ...organization, needs: "files:read", Page: BatchesPage },
  },
  {
    ...{ name: "fine-tuning", title: "Fine-tuning", icon: "sliders-horizontal", group: "Build" },
    ...{ ...organization, needs: "fine_tuning", Page: FineTuningPage },
  },
  {
    ...{ name: "responses", title: "Responses", icon: "messages-square", group: "Build" },
    ...{ ...organization, needs: "responses", Page: ResponsesPage },
    sections: RESPONSE_SECTIONS.map(({ name }) => name),
  },
  {
    ...{ name: "storage", title: "Storage", icon: "archive", group: "Build" },
    ...{ ...organization, needs: "files:read", Page: StoragePage },
    sections: STORAGE_SECTIONS.map(({ name }) => name),
  },
  {
    ...{ name: "keys", title: "Keys", selfTitle: "My keys", icon: "key-round", group: "Access" },
    ...{ ...organization, needs: "keys:manage", Page: KeysPage },
  },
  {
    ...{ name: "members", title: "Members", icon: "users", group: "Access" },
    ...{ ...organization, needs: "keys:manage", isForAll: true, Page: MembersPage },
  },
  {
    ...{ name: "teams", title: "Teams", icon: "users-round", group: "Access" },
    ...{ ...organization, needs: "keys:manage", isForAll: true, Page: TeamsPage },
  },
  {
    ...{ name: "budgets", title: "Budgets", icon: "gauge", group: "Access" },
    ...{ ...organization, needs: "keys:manage", isForAll: true, Page: BudgetsPage },
  },
  {
    ...{ name: "organizations", title: "Organizations", icon: "building-2", group: "Gateway" },
    ...{ ...operator, Page: OrganizationsPage },
  },
  {
    ...{ name: "providers", title: "Providers", icon: "server", group: "Gateway" },
    ...{ ...operator, Page: ProvidersPage },
  },
  {
    ...{ name: "configured-models", title: "Models", icon: "boxes", group: "Gateway" },
    ...{ ...operator, Page: ConfiguredModelsPage },
  },
  {
    ...{ name: "aliases", title: "Aliases", icon: "shuffle", group: "Gateway" },
    ...{ ...operator, Page: AliasesPage },
  },
  {
    ...{ name: "identity-providers", title: "Identity providers", icon: "id-card" },
    ...{ ...operator, group: "Gateway", Page: IdentityProvidersPage },
  },
  {
    ...{ name: "webhooks", title: "Webhooks", icon: "webhook", group: "Settings" },
    ...{ ...organization, needs: "webhooks:manage", Page: WebhooksPage },
  },
  {
    ...{ name: "settings", title: "Settings", icon: "settings", group: "Settings" },
    ...{ ...organization, Page: SettingsPage },
    sections: SETTINGS_SECTIONS.map(({ name }) => name),
  },
  {
    ...{ name: "audit-log", title: "Audit log", icon: "scroll-text", group: "Settings" },
    ...{ ...everyone, needs: "keys:manage", isForAll: true, Page: AuditLogPage },
  },
  {
    ...{ name: "account", title: "Account", icon: "circle-user", group: "Settings" },
    ...{ ...everyone, isForPeople: true, Page: AccountPage },
  },
  {
    ...{ name: "components", title: "Components", icon: "boxes" },
    ...{ ...everyone, isUnlisted: true, Page: ComponentsPage },
  },
];
