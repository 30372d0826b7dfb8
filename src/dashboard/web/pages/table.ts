import type { ComponentType } from "preact";
import type { Session } from "../api.ts";
import { AuditLogPage } from "./audit-log.tsx";
import { ComponentsPage } from "./components.tsx";
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
  /** Its address below /dashboard; "" is the first one. */
  readonly name: string;
  readonly title: string;
  /** Whose session shows it. */
  readonly of: readonly Session["kind"][];
  readonly isUnlisted?: true;
  /** What can follow its name in the address; "" is its first section. */
  readonly sections?: readonly string[];
  readonly Page: ComponentType;
}

/** Every page, in the order of the menu. */
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
  { name: "audit-log", title: "Audit log", of: ["organization", "operator"], Page: AuditLogPage },
  {
    name: "components",
    title: "Components",
    of: ["organization", "operator"],
    isUnlisted: true,
    Page: ComponentsPage,
  },
];
