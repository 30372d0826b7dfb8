import type { ComponentType } from "preact";
import type { Session } from "../api.ts";
import { AliasesPage } from "./aliases.tsx";
import { AuditLogPage } from "./audit-log.tsx";
import { ComponentsPage } from "./components.tsx";
import { ConfiguredModelsPage } from "./configured-models.tsx";
import { KeysPage } from "./keys.tsx";
import { ModelsPage } from "./models.tsx";
import { OrganizationsPage } from "./organizations.tsx";
import { OverviewPage } from "./overview.tsx";
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
  /** Kinds of session that show the page. */
  readonly of: readonly Session["kind"][];
  readonly isUnlisted?: true;
  /** Path segments that can follow its name. Empty for the first section. */
  readonly sections?: readonly string[];
  readonly Page: ComponentType;
}

/** All pages, in menu order. */
export const PAGES: readonly DashboardPage[] = [
  { name: "", title: "Overview", of: ["organization"], Page: OverviewPage },
  { name: "usage", title: "Usage", of: ["organization"], Page: UsagePage },
  { name: "requests", title: "Requests", of: ["organization"], Page: RequestsPage },
  { name: "keys", title: "Keys", of: ["organization"], Page: KeysPage },
  { name: "webhooks", title: "Webhooks", of: ["organization"], Page: WebhooksPage },
  { name: "models", title: "Models", of: ["organization"], Page: ModelsPage },
  { name: "playground", title: "Playground", of: ["organization"], Page: PlaygroundPage },
  {
    name: "settings",
    title: "Settings",
    of: ["organization"],
    sections: SETTINGS_SECTIONS.map(({ name }) => name),
    Page: SettingsPage,
  },
  { name: "organizations", title: "Organizations", of: ["operator"], Page: OrganizationsPage },
  { name: "providers", title: "Providers", of: ["operator"], Page: ProvidersPage },
  { name: "configured-models", title: "Models", of: ["operator"], Page: ConfiguredModelsPage },
  { name: "aliases", title: "Aliases", of: ["operator"], Page: AliasesPage },
  { name: "audit-log", title: "Audit log", of: ["organization", "operator"], Page: AuditLogPage },
  {
    name: "components",
    title: "Components",
    of: ["organization", "operator"],
    isUnlisted: true,
    Page: ComponentsPage,
  },
];
