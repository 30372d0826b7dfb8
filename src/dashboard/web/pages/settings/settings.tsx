import { type Section, Sections } from "../../components/sections.tsx";
import { AlertsSection } from "./alerts.tsx";
import { BillingSection } from "./billing.tsx";
import { GuardrailsSection } from "./guardrails.tsx";
import { OrganizationSection } from "./organization.tsx";
import { PresetsSection } from "./presets.tsx";
import { ProviderKeysSection } from "./provider-keys.tsx";
import "./settings.css";

export const SETTINGS_SECTIONS: readonly Section[] = [
  { name: "", title: "Organization", needs: "usage:read", Section: OrganizationSection },
  { name: "billing", title: "Billing", needs: "billing:read", Section: BillingSection },
  {
    ...{ name: "provider-keys", title: "Provider keys" },
    ...{ needs: "provider_keys:manage" as const, Section: ProviderKeysSection },
  },
  { name: "alerts", title: "Alerts", needs: "webhooks:manage", Section: AlertsSection },
  { name: "presets", title: "Presets", needs: "presets:manage", Section: PresetsSection },
  {
    ...{ name: "guardrails", title: "Guardrails" },
    ...{ needs: "guardrails:manage" as const, Section: GuardrailsSection },
  },
];

export function SettingsPage() {
  return <Sections page="settings" title="Settings" sections={SETTINGS_SECTIONS} />;
}
