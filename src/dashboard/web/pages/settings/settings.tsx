import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Link } from "../../components/controls.tsx";
import { PageHead } from "../../components/display.tsx";
import { sectionName } from "../../router.ts";
import { BillingSection } from "./billing.tsx";
import { GuardrailsSection } from "./guardrails.tsx";
import { OrganizationSection } from "./organization.tsx";
import { PresetsSection } from "./presets.tsx";
import { ProviderKeysSection } from "./provider-keys.tsx";
import "./settings.css";

interface SettingsSection {
  /** Path segment under the page. Empty for the first section. */
  readonly name: string;
  readonly title: string;
  readonly Section: ComponentType;
}

export const SETTINGS_SECTIONS: readonly SettingsSection[] = [
  { name: "", title: "Organization", Section: OrganizationSection },
  { name: "billing", title: "Billing", Section: BillingSection },
  { name: "provider-keys", title: "Provider keys", Section: ProviderKeysSection },
  { name: "presets", title: "Presets", Section: PresetsSection },
  { name: "guardrails", title: "Guardrails", Section: GuardrailsSection },
];

export function SettingsPage() {
  const current = SETTINGS_SECTIONS.find(({ name }) => name === sectionName.value)!;
  const sections = useRef<HTMLElement>(null);
  useEffect(() => {
    // On narrow screens the list of sections scrolls.
    const link = sections.current?.querySelector("[aria-current]");
    link?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [current]);
  return (
    <>
      <PageHead title="Settings" section={current.title} />
      <nav ref={sections} class="tabs" aria-label="Settings sections">
        {SETTINGS_SECTIONS.map(({ name, title }) => (
          <Link
            key={name}
            page={name === "" ? "settings" : `settings/${name}`}
            isCurrent={name === current.name}
          >
            {title}
          </Link>
        ))}
      </nav>
      <current.Section />
    </>
  );
}
